"""The routes of an endpoint, behind `coevo.endpoint.gate`. Imported where a policy is served, not before."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from coevo.endpoint.body import understood
from coevo.endpoint.chat import ChatBody, check_completions, chunks, requests_of, response
from coevo.endpoint.errors import ApiError, CallLimitError
from coevo.errors import CoevoError, UserError
from coevo.interfaces import Policy
from coevo.numerics.seeds import derive
from coevo.records import Completion, Json, Request, Sampling

Handler = Callable[[HttpRequest], Awaitable[Response]]


class Application:
    """One policy behind `/v1/models` and `/v1/chat/completions`; see `coevo.endpoint.serve` for the arguments."""

    def __init__(
        self, policy: Policy, sampling: Sampling, seed: int | None, system: str, model: str, patience: float | None
    ) -> None:
        self._policy, self._sampling, self._system = policy, sampling, system
        self._model, self._patience = model, patience
        self._seed, self._seeded = seed, 0
        self._running: set[asyncio.Future[list[Completion]]] = set()
        self._ended = False
        self.app = Starlette(
            routes=[
                Route("/v1/models", self._guarded(self._models), methods=["GET"]),
                Route("/v1/models/{name:path}", self._guarded(self._one_model), methods=["GET"]),
                Route("/v1/chat/completions", self._guarded(self._chat), methods=["POST"]),
            ],
            exception_handlers={HTTPException: _elsewhere},
        )
        self.app.router.redirect_slashes = False  # few clients send a body on, and an agent should read what is wrong

    def end(self) -> None:
        """Refuse what comes from here on, and what is being answered."""
        self._ended = True
        for running in self._running:
            running.cancel()

    def _guarded(self, handler: Handler) -> Handler:
        async def answer(request: HttpRequest) -> Response:
            try:
                return await handler(request)
            except ApiError as error:
                return _refusal(error)
            except ClientDisconnect:
                return Response(status_code=499)
            except Exception as error:  # noqa: BLE001 - a client is told in one line, whatever it was
                return _refusal(ApiError(500, f"{type(error).__name__}: {error}", "internal_error"))

        return answer

    async def _models(self, request: HttpRequest) -> Response:
        return JSONResponse({"object": "list", "data": [self._described()]})

    async def _one_model(self, request: HttpRequest) -> Response:
        self._check_model(str(request.path_params["name"]))
        return JSONResponse(self._described())

    def _described(self) -> dict[str, Json]:
        # `root` is vLLM's field for what is behind the name.
        return {"id": self._model, "object": "model", "created": 0, "owned_by": "coevo", "root": self._policy.id}

    def _check_model(self, name: str | None) -> None:
        if name is not None and name != self._model:
            raise ApiError(404, f"no model {name!r}; there is {self._model!r}", "model_not_found", "model")

    async def _chat(self, request: HttpRequest) -> Response:
        body = await understood(await request.body())
        self._check_model(body.model)
        asked = requests_of(body, self._sampling, self._next_seed, self._system)
        completions = await self._complete(request, asked)
        check_completions(completions, bool(body.logprobs))
        if body.stream:
            return _stream(body, completions, self._model, self._policy.id)
        return JSONResponse(response(completions, self._model, self._policy.id))

    def _next_seed(self) -> int:
        if self._seed is None:
            return 0
        self._seeded += 1
        return derive(self._seed, "endpoint", self._seeded - 1)

    async def _complete(self, request: HttpRequest, asked: Sequence[Request]) -> list[Completion]:
        """The policy's answers; nobody works for a client that has gone."""
        if self._ended:
            raise _over()
        work = asyncio.ensure_future(self._policy.complete(asked))
        gone = asyncio.ensure_future(_gone(request))
        self._running.add(work)
        try:
            await asyncio.wait({work, gone}, timeout=self._patience, return_when=asyncio.FIRST_COMPLETED)
            if gone.done() and not work.done():
                raise ClientDisconnect
            if not work.done():
                raise ApiError(504, f"there was no answer within {self._patience:g} s", "answer_timeout")
            return work.result()
        except asyncio.CancelledError:
            if self._ended:
                raise _over() from None
            raise
        except UserError as error:
            raise ApiError(400, str(error)) from None
        except CallLimitError as error:
            # Not 429: most clients wait and ask again then, and no waiting helps.
            raise ApiError(403, str(error), "call_limit") from None
        except CoevoError as error:
            raise ApiError(500, str(error), "engine_error") from None
        except (ApiError, ClientDisconnect):
            raise
        except Exception as error:  # noqa: BLE001 - engines fail in their own ways
            raise ApiError(500, f"the engine failed: {type(error).__name__}: {error}", "engine_error") from None
        finally:
            self._running.discard(work)
            work.cancel()
            gone.cancel()


def _over() -> ApiError:
    return ApiError(503, "this endpoint has ended with the lease of its policy", "lease_ended")


async def _gone(request: HttpRequest) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _stream(body: ChatBody, completions: Sequence[Completion], model: str, fingerprint: str) -> Response:
    # The text is there as a whole; it comes as a stream for clients that know no other way.
    def events() -> Iterator[str]:
        for chunk in chunks(completions, model, fingerprint, body.include_usage):
            yield f"data: {json.dumps(chunk)}\n\n"
        yield "data: [DONE]\n\n"

    return Response("".join(events()), media_type="text/event-stream", headers={"cache-control": "no-cache"})


def _refusal(error: ApiError) -> Response:
    return JSONResponse(error.body(), error.status, error.headers())


async def _elsewhere(request: HttpRequest, error: Exception) -> Response:
    """A path or a method that there is not."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    there = "GET /v1/models and POST /v1/chat/completions"
    return _refusal(ApiError(status, f"no {request.method} {request.url.path}; there are {there}", "not_found"))

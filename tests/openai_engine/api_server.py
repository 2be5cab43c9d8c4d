"""A small real HTTP server on loopback that speaks chat completions and fails in every way that servers do.

`plan` holds what becomes of the next requests, `always` of all after them. Everything asked is kept.
"""

import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODEL = "org/some-model"


def chat(text, usage=(10, 3), **changes):
    """The body of an answer."""
    body = {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": MODEL,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
    }  # fmt: skip
    if usage is not None:
        body["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}
    return {**body, **changes}


def says(text="1.0", usage=(10, 3), after=0.0, **changes):
    """A good answer; `text` may be a function of the request's body."""

    def act(handler, body):
        time.sleep(after)
        handler.reply(200, chat(text(body) if callable(text) else text, usage, **changes))

    return act


def together(count, act):
    """Like `act`, once so many requests have been under way at the same time."""

    def wait(handler, body):
        deadline = time.monotonic() + 60.0
        while handler.server.most_at_once < count and time.monotonic() < deadline:
            time.sleep(0.005)
        act(handler, body)

    return wait


def fails(status, message="no", headers=(), **error):
    """An error as OpenAI words it."""

    def act(handler, body):
        # As real servers do, some of which repeat the key.
        said = message.replace("{key}", handler.headers.get("Authorization", "").removeprefix("Bearer "))
        handler.reply(status, {"error": {"message": said, "type": "error", "code": None, **error}}, dict(headers))

    return act


def hangs(handler, body):
    """Never answers; ends when the server does."""
    handler.server.closing.wait(30)


def cut(handler, body):
    """The connection ends in the middle of the body."""
    data = json.dumps(chat("1.0")).encode()
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data[: len(data) // 2])
    handler.close_connection = True


def raw(data, content_type="application/json"):
    """A success with any body."""

    def act(handler, body):
        handler.reply_bytes(200, data, {"Content-Type": content_type})

    return act


def answers(status, data, **headers):
    """Any status, body and headers; `_` in a header's name stands for `-`."""

    def act(handler, body):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        handler.reply_bytes(status, data, {"Content-Type": "application/json", **named})

    return act


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or every answer waits 40 ms for the client to confirm its headers

    def do_GET(self):
        if self.path.endswith("/models"):
            self.server.models_asked += 1
            self.server.models_act(self, None)
        else:
            self.reply(404, {"error": {"message": f"no {self.path}"}})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.asked.append((time.monotonic(), body))
            self.server.keys.append(self.headers.get("Authorization", ""))
            self.server.headers.append(dict(self.headers.items()))
            self.server.under_way += 1
            self.server.most_at_once = max(self.server.most_at_once, self.server.under_way)
            act = self.server.plan.pop(0) if self.server.plan else self.server.always
        try:
            act(self, body)
        finally:
            with self.server.lock:
                self.server.under_way -= 1

    def reply(self, status, body, headers=()):
        self.reply_bytes(status, json.dumps(body).encode(), {"Content-Type": "application/json", **dict(headers)})

    def reply_bytes(self, status, data, headers):
        try:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # it was given up meanwhile

    def log_message(self, *_):
        pass


class ApiServer(ThreadingHTTPServer):
    """Answers in a thread for each connection."""

    daemon_threads = False  # so that closing it waits for them, and none outlives its test

    def __init__(self, *plan, always=None, owner="somebody", models=None):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.plan, self.always = list(plan), always or says()
        self.models_act = models or (
            lambda handler, _: handler.reply(
                200, {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": owner, "created": 1}]}
            )
        )
        self.asked, self.keys, self.headers = [], [], []
        self.models_asked = self.under_way = self.most_at_once = 0
        self.lock, self.closing = threading.Lock(), threading.Event()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/v1"

    @property
    def bodies(self):
        return [body for _, body in self.asked]


@contextmanager
def serving(*plan, **options):
    """A server for the length of a block."""
    server = ApiServer(*plan, **options)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.closing.set()
        server.shutdown()
        thread.join()
        server.server_close()

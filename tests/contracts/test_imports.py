"""Commands that only look are quick: they import no model library."""

import json
import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "vllm", "ray", "openai", "numba", "safetensors")
PROGRAM = """
import json, sys
from coevo.cli import main
code = main(sys.argv[1:])
print(json.dumps([name for name in {heavy} if name in sys.modules]), file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.parametrize("command", ["--help", "run --help", "plugins", "tasks", "options param es", "show none"])
def test_a_command_imports_nothing_heavy(command, tmp_path):
    program = PROGRAM.format(heavy=repr(HEAVY))
    done = subprocess.run(
        [sys.executable, "-c", program, *command.split()], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert json.loads(done.stderr.splitlines()[-1]) == []
    assert done.returncode == (2 if "none" in command else 0)


def test_importing_coevo_imports_neither_the_application_nor_numpy():
    program = "import sys, coevo; print([n for n in ('coevo.app.launch', 'numpy', 'pydantic') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"

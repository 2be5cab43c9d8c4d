"""Where standard output or standard error is full or closed, a command ends in words and never in a traceback."""

import subprocess
import sys
from pathlib import Path

import pytest

FULL = Path("/dev/full")
COEVO = f"{sys.executable} -m coevo"
LOST = "coevo: standard output cannot be written: {}\n"

pytestmark = pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full, which Linux has")


def _shell(line):
    done = subprocess.run(["bash", "-c", line.replace("coevo", COEVO, 1)], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("command", ["tasks", "tasks --json", "--help", "--version", "options param es"])
@pytest.mark.parametrize(("where", "why"), [(">/dev/full", "No space left on device"), (">&-", "it is closed")])
def test_output_that_cannot_be_written_is_one_line_and_exit_code_1(command, where, why):
    assert _shell(f"coevo {command} {where}") == (1, "", LOST.format(why))


@pytest.mark.parametrize("where", ["2>/dev/full", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_mistake_that_cannot_be_told_is_exit_code_2_all_the_same(where):
    assert _shell(f"coevo show nope {where}") == (2, "", "")


def test_a_mistake_is_told_and_counts_where_the_output_is_full():
    code, _, said = _shell("coevo show nope >/dev/full")
    assert (code, said.count("\n")) == (2, 1)
    assert "no run named 'nope'" in said


def test_a_run_goes_on_where_standard_error_is_full_and_ends_as_it_would(small):
    run = f"coevo run {' '.join(small)} --generations 1 --name"
    assert _shell(f"{run} a 2>/dev/full")[0] == 0
    code, _, said = _shell(f"{run} b --quiet >/dev/full")
    assert (code, said) == (1, LOST.format("No space left on device"))
    for name in ("a", "b"):
        assert '"reason": "generations"' in Path(f"runs/{name}/journal.jsonl").read_text()

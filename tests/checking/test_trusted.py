"""`coevo check` tells an author what the code that the run trusts does besides, and stops it where it never ends."""

import json

import pytest

from coevo_heuristics.checking import Check

OBJECTIVE = "    return float(instance[2, solution].sum())\n"
SOLVE = "    start, end, price = instance\n    clash"


def rows(hall):
    """What is said before candidates are sent."""
    found = {}
    for row in Check(hall, 2).rows():
        if row.name.endswith(": the seed"):
            break
        found[row.name] = row
    return found


def test_functions_that_do_nothing_besides_are_told_so(hall):
    assert rows(hall)["evaluate.py and its functions"].state == "ok"


BESIDES = {
    "objective changes": ("    instance[2, solution] = 0\n", "changes instance 0"),
    "objective prints": ("    print('a tour of 3')\n", "prints ('a tour of 3 a tour of 3"),
    "objective warns": ("    import warnings; warnings.warn('old')\n", "warns: UserWarning: old"),
    "objective gives": (
        "    COUNT.append(1); return float(len(COUNT))\n",
        "gives 1.0 and then 2.0 for the same solution",
    ),
    "objective draws": ("    np.random.rand()\n", "draw from a generator with a fixed seed instead"),
    "objective closes": ("    import sys; sys.stdout = None\n", "closes or replaces sys.stdout; leave it as it is"),
    "objective again": ("    return float(np.random.default_rng().random())\n", "must depend on its arguments alone"),
}


@pytest.mark.parametrize("name", BESIDES)
def test_what_an_objective_does_besides_is_a_row_that_says_what_mends_it(change, hall, name):
    text, said = BESIDES[name]
    change("evaluate.py", OBJECTIVE, f"{text}{'' if 'return' in text else '    pass'}\n{OBJECTIVE}")
    change("evaluate.py", "def overlaps", "COUNT = []\n\n\ndef overlaps")
    if name == "objective changes":
        change("evaluate.py", text, f"    value = float(instance[2, solution].sum())\n{text}    return value\n")
    row = rows(hall)[name]
    assert row.state == ("failure" if name == "objective again" else "warning")
    assert said in row.found


def test_a_solve_that_changes_its_instance_is_told(change, hall):
    change("evaluate.py", SOLVE, f"    instance[2] += 1\n{SOLVE}")
    row = rows(hall)["solve changes"]
    assert (row.state, "changes instance 0; copy what it changes" in row.found) == ("warning", True)


def test_an_import_that_prints_is_told_and_its_json_is_json(change, hall, coevo):
    change("evaluate.py", "import math\n", "import math\n\nprint('on import')\n")
    change("evaluate.py", OBJECTIVE, f"    print('in objective')\n{OBJECTIVE}")
    change("evaluate.py", "    random = np", "    print('in instances')\n    random = np")
    _, out, _ = coevo("check", hall, "--json")
    told = {row["name"]: row["found"] for row in json.loads(out)["checks"]}
    assert "prints ('on import')" in told["the import of evaluate.py prints"]
    assert "prints ('in instances')" in told["split train: instances('train') prints"]
    assert "prints ('in objective" in told["objective prints"]


def limited(change):
    change("problem.toml", "memory_mb = 64", "memory_mb = 64\nauthor_seconds = 1.0")


@pytest.mark.parametrize(
    ("old", "new", "name", "said"),
    [
        (OBJECTIVE, "    while True: pass\n", "objective", "`objective` of"),
        ("    random = np", "    while True: pass\n    random = np", "split train", "`instances('train')` of"),
    ],
)
def test_what_never_ends_is_a_failure_that_names_function_file_limit_and_option(change, hall, old, new, name, said):
    limited(change)
    change("evaluate.py", old, new)
    if name == "split train":
        change("evaluate.py", "    while True: pass", "    while split == 'train': pass")
    row = rows(hall)[name]
    assert row.state == "failure"
    assert row.found.startswith(f"{said} 'hall/evaluate.py' takes more than 1 s of CPU time")
    assert "author_seconds in [limits] of problem.toml" in row.found


def test_an_import_that_never_ends_is_one_line(change, hall, coevo):
    limited(change)
    change("evaluate.py", "import math\n", "import math\n\nwhile True: pass\n")
    code, out, said = coevo("check", hall)
    assert (code, out, said.count("\n")) == (2, "", 1)
    assert said.startswith("coevo: the import of 'hall/evaluate.py' takes more than 1 s of CPU time")

"""Who writes files: a name that coevo chose may be a stranger's link, so `coevo.files` opens it, and few others may."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WRITERS = {"write_text", "write_bytes", "copyfile", "copy2", "copytree", "copyfileobj", "save_file", "savez", "touch"}
"""Methods and functions that write to a name, and follow what is there."""
MODULES = {("shutil", "copy"), ("shutil", "move"), ("np", "save"), ("numpy", "save"), ("torch", "save")}

ALLOWED = {
    "coevo/files.py": "opens without following",
    "coevo/tools/bench/sandbox.py": "in a temporary folder of its own",
    "coevo/models/export.py": "copies into a temporary folder of its own",
    "coevo/cli/streams.py": "the null device, by its name in os",
    "coevo/tools/doctor/child.py": "in a temporary folder of its own",
    "coevo/tools/doctor/inside.py": "in the temporary folder of `child`, by the name that it is given",
    "coevo/sandbox/candidate.py": "in /proc, whose folder is held open",
    "coevo/sandbox/examining.py": "a descriptor that is open already",
    "coevo/sandbox/namespaces.py": "in an empty root of its own, and in /proc",
    "coevo/tools/scaffold/writing.py": "mode x, which follows nothing",
    "coevo/weights/configuration.py": "in a temporary folder of its own",
    "coevo/weights/master.py": "attaches to a file that its owner made",
    "coevo/weights/memory.py": "mode x, which follows nothing",
}


def _writes(call):
    """What of a call opens a file to write, empty where nothing does."""
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    owner = getattr(getattr(function, "value", None), "id", "")
    if name in WRITERS or (owner, name) in MODULES:
        return name
    if (owner, name) == ("os", "open"):
        flags = ast.unparse(call.args[1])
        return "os.open" if any(word in flags for word in ("WRONLY", "RDWR", "CREAT", "flags")) else ""
    if name in ("open", "fdopen") and owner not in ("os", "webbrowser"):
        strings = [a.value for a in [*call.args, *(k.value for k in call.keywords)] if isinstance(a, ast.Constant)]
        modes = [s for s in strings if isinstance(s, str) and s and set(s) <= set("rwaxbt+")]
        computed = any(isinstance(a, ast.IfExp) for a in call.args)
        return name if computed or any(set(mode) & set("wax+") for mode in modes) else ""
    return ""


def writers(source):
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [(call.lineno, found) for call in calls if (found := _writes(call))]


def sources():
    for top in ("coevo", "plugins", "tasks"):
        yield from sorted((ROOT / top).rglob("*.py"))


def test_files_are_written_by_coevo_files_alone():
    strays = [
        f"{name}:{line}: {what}"
        for path in sources()
        if (name := str(path.relative_to(ROOT))) not in ALLOWED
        for line, what in writers(path.read_text("utf-8"))
    ]
    assert strays == [], "use open_own, replacing or write_atomic of coevo.files"


@pytest.mark.parametrize("name", ALLOWED)
def test_who_may_write_by_himself_does(name):
    assert writers((ROOT / name).read_text("utf-8"))


@pytest.mark.parametrize(
    "source",
    ["open(p, 'w')", "p.open('ab')", "p.open(mode='r+b')", "p.write_text('')", "os.open(p, os.O_WRONLY)",
     "np.save(p, a)", "shutil.copyfile(a, b)", "p.open('wb' if a else 'rb')", "save_file({}, p)"],
)  # fmt: skip
def test_what_writes_is_seen(source):
    assert writers(source)


@pytest.mark.parametrize("source", ["open(p)", "p.open('rb')", "a.copy()", "open_own(p, 'ab')", "webbrowser.open('a')"])
def test_what_only_reads_is_not(source):
    assert not writers(source)

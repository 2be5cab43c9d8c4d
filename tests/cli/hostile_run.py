"""A run as a stranger may hand it over: whatever is changed, its checksums are right again."""

import copy
import json
from pathlib import Path

import tomli_w
import zstandard

from coevo.host.config import read_file
from coevo.runs.journal import check_of

WRONG = (None, True, -1, 2**62, 10**30, 1.7e308, "x\x1b[2J", [], [[1]], {}, {"a": {"b": 1}})
"""What no key is sure to have, and some have."""
WRITTEN = (
    "config.toml", "run.json", "journal.jsonl", "asked.jsonl", "lock", "report.html", "curves.svg", "curves.png",
    "report.html.new", "curves.svg.new", "curves.png.new", "run.json.new", "config.toml.new", "asked.jsonl.new",
    "best/best.json", "best/best.json.new", "best/number.txt", "rollouts/g0000-b00.jsonl.zst",
)  # fmt: skip
"""Names of files that are written in a run's folder, or once were on the way to it."""
FOLDERS = ("rollouts", "contexts", "best", "anchors")


def places(value, path=()):
    """Where every value of a JSON object is, the containers before what they hold; of a list the first item."""
    items = value.items() if isinstance(value, dict) else [(0, value[0])] if isinstance(value, list) and value else []
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


def changed(value, place, new):
    """A copy with another value at a place."""
    whole = inner = copy.deepcopy(value)
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = new
    return whole


def lines_of(run):
    return [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines()]


def write_journal(run, lines):
    """Write lines as a chain that is whole: who may write the file may compute its checksums."""
    previous, texts = "", []
    for line in lines:
        plain = {**line, "previous": previous}
        whole = {**plain, "check": check_of(plain)}
        previous = previous if line.get("kind") == "stop" else whole["check"]
        texts.append(json.dumps(whole) + "\n")
    (run / "journal.jsonl").write_text("".join(texts))


def journal_places(run):
    """(number of a line, place in it), of the first line of each kind and of the last batch, which says where it is."""
    lines = lines_of(run)
    kinds = [line["kind"] for line in lines]
    numbers = {kinds.index(kind) for kind in kinds} | {len(kinds) - 1 - kinds[::-1].index("batch")}
    return [(number, place) for number in sorted(numbers) for place in places(lines[number])]


def wrong_journal(run, number, place, new):
    lines = lines_of(run)
    lines[number] = changed(lines[number], place, new)
    write_journal(run, lines)


def wrong_json(run, name, place, new):
    path = run / name
    path.write_text(json.dumps(changed(json.loads(path.read_text()), place, new)))


def wrong_config(run, key, new):
    config = read_file(run / "config.toml")
    (run / "config.toml").write_text(tomli_w.dumps({**config, key: new}))


def unfinished(run, content, notes='{"place": "g0009-b00", "lost": [0, 0, 0]}\n'):
    """A batch in progress, whose frame every command that counts calls must open."""
    (run / "asked.jsonl").write_text(notes)
    (run / "rollouts" / "g0009-b00.jsonl.zst").write_bytes(content)


def first_rollout(run):
    path = min((run / "rollouts").iterdir())
    with path.open("rb") as file:
        text = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=False).read()
    return json.loads(text.splitlines()[0])


def frame(text):
    return zstandard.ZstdCompressor().compress(text)


def leave_code(folder, marker):
    """Plugin files that say that they were run, and bytecode that is taken for that of an innocent one."""
    evil = f"from pathlib import Path\nPath({str(marker)!r}).write_text('run')\n"
    for name in ("coevo_plugin.py", "evil.py"):
        Path(folder, name).write_text(evil)
    return folder / "evil.py"

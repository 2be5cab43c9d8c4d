"""What is on disk: frames, journal lines, locks; torn writes are cut, changed numbers are found."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coevo.errors import CheckFailedError, UserError
from coevo.records import DenseUpdate, GradientUpdate, Provenance, Rollout, SeedsUpdate, Step, Trajectory
from coevo.runs.chunks import ChunkFile, read_chunks
from coevo.runs.folder import RunFolder, check_free
from coevo.runs.journal import Journal, update_from_json, update_to_json


def rollout(chunk, sample=0, text="hi"):
    provenance = Provenance(0, 0, chunk, None, 0, 0.0, 0, "abc", "e", sample, 2**63 + 1, "p", "m1")
    step = Step(({"role": "user", "content": text},), (1, 2), (3,), "stop", text)
    return Rollout(provenance, "ok", 1.5, Trajectory((step,)), metrics={"objective": 1.5}, seconds=0.25)


@given(st.text(), st.integers(0, 2**64 - 1))
def test_a_rollout_comes_back_from_its_frame_as_it_was(tmp_path_factory, text, seed):
    path = tmp_path_factory.mktemp("frames") / "f"
    with ChunkFile(path) as file:
        file.append([rollout(0, text=text)])
    assert read_chunks(path) == [(rollout(0, text=text),)]


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_torn_last_frame_is_cut_and_its_chunk_can_be_written_again(tmp_path, cut):
    path = tmp_path / "f"
    with ChunkFile(path) as file:
        file.append([rollout(0)])
        whole = path.stat().st_size
        file.append([rollout(1)])
    data = path.read_bytes()
    path.write_bytes(data[:-cut])
    assert read_chunks(path) == [(rollout(0),)]
    with ChunkFile(path) as file:
        assert path.stat().st_size == whole
        assert len(file.chunks) == 1
        file.append([rollout(1)])
    assert path.read_bytes() == data


def test_chunks_can_only_be_appended_in_order(tmp_path):
    with (
        ChunkFile(tmp_path / "f") as file,
        pytest.raises(CheckFailedError, match="chunk 1 of f comes before 0"),
    ):
        file.append([rollout(1)])


@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.floats(allow_nan=False, allow_infinity=False)), max_size=5))
def test_an_update_comes_back_from_the_journal_to_the_last_bit(terms):
    update = SeedsUpdate(tuple(terms), reason="", metrics={"sigma": 0.1})
    back = update_from_json(json.loads(json.dumps(update_to_json(update))))
    assert back == update
    assert [math.copysign(1, c) for _, c in back.terms] == [math.copysign(1, c) for _, c in terms]


@pytest.mark.parametrize("update", [GradientUpdate(("a", "b"), (1.0, -1.0)), DenseUpdate("d", "ff"), None])
def test_every_kind_of_update_comes_back(update):
    assert update_from_json(json.loads(json.dumps(update_to_json(update)))) == update


def line(batch=0, coefficient=0.5):
    update = update_to_json(SeedsUpdate(((7, coefficient),)))
    return {
        "kind": "batch", "generation": 2, "batch": batch, "operator": "m1", "adapt": True, "update": update,
        "states": {}, "ledger": {"calls": 1, "prompt_tokens": 2, "completion_tokens": 3}, "best": None,
        "digest": "d", "time": {"seconds": 1.0},
    }  # fmt: skip


def test_a_torn_last_line_is_left_out_and_cut(tmp_path):
    journal = Journal(tmp_path / "j")
    journal.append(line(0))
    journal.append(line(1))
    data = journal.path.read_bytes()
    journal.path.write_bytes(data[:-10])
    assert [entry["batch"] for entry in journal.lines()] == [0]
    journal.repair()
    journal.append(line(1))
    assert journal.path.read_bytes() == data


def test_one_changed_ulp_names_the_batch(tmp_path):
    journal = Journal(tmp_path / "j")
    journal.append(line())
    changed = journal.path.read_text().replace("0.5", repr(math.nextafter(0.5, 1)))
    journal.path.write_text(changed)
    with pytest.raises(CheckFailedError, match=r"batch 0 of generation 2 \(m1\).*differs from its checksum"):
        list(journal.lines())


@pytest.mark.parametrize("gone", [0, 1])
def test_a_missing_line_is_noticed(tmp_path, gone):
    journal = Journal(tmp_path / "j")
    for number in range(3):
        journal.append(line(number))
    lines = journal.path.read_text().splitlines(keepends=True)
    del lines[gone]
    journal.path.write_text("".join(lines))
    with pytest.raises(CheckFailedError, match=rf"batch {gone + 1} of generation 2 .* does not follow"):
        list(journal.lines())


@pytest.mark.parametrize("text", ["[]", "5", '{"a": NaN}', "[" * 100_000])
def test_a_line_that_is_no_object_is_named(tmp_path, text):
    journal = Journal(tmp_path / "j")
    journal.append(line())
    with journal.path.open("a") as file:
        file.write(text + "\n")
    with pytest.raises(CheckFailedError, match=r"line 2 of .* is no JSON"):
        list(journal.lines())


def test_what_a_model_said_can_be_written_whatever_it_is(tmp_path):
    with ChunkFile(tmp_path / "f") as file:
        file.append([rollout(0, text="\ud800 \x00 é")])
    assert read_chunks(tmp_path / "f") == [(rollout(0, text="\ud800 \x00 é"),)]


def test_the_time_of_a_line_is_no_part_of_its_checksum(tmp_path):
    journal = Journal(tmp_path / "j")
    journal.append(line())
    journal.path.write_text(journal.path.read_text().replace('"seconds": 1.0', '"seconds": 9.0'))
    assert len(list(journal.lines())) == 1


def test_a_damaged_line_in_the_middle_is_named(tmp_path):
    journal = Journal(tmp_path / "j")
    journal.path.write_text("rubbish\n")
    with pytest.raises(CheckFailedError, match=r"line 1 of .* is no JSON"):
        journal.history()


def test_only_one_holder_at_a_time(tmp_path):
    folder = RunFolder.create(tmp_path / "a", {"task": "t"})
    with folder.lock():
        assert folder.is_locked()
        with pytest.raises(UserError, match="run 'a' is going in process"), RunFolder(folder.path).lock():
            pass
    assert not folder.is_locked()


def test_a_place_below_a_file_is_refused_by_name(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file' is a file"):
        check_free(tmp_path / "file" / "runs" / "a")


def test_a_run_is_found_by_name_and_by_path_and_missed_with_a_hint(tmp_path):
    RunFolder.create(tmp_path / "alpha", {"task": "t"})
    assert RunFolder.find("alpha", str(tmp_path)).name == "alpha"
    assert RunFolder.find(str(tmp_path / "alpha")).name == "alpha"
    with pytest.raises(UserError, match="did you mean 'alpha'"):
        RunFolder.find("alpa", str(tmp_path))

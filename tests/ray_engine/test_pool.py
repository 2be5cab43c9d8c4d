"""The pool behind the engine's contract: who serves whom, weights that agree, and processes that die."""

import asyncio
import os
import re
import signal
from pathlib import Path

import fakes
import numpy as np
import pytest

import coevo
from coevo.app.parts import local_files
from coevo.errors import CheckFailedError, RunError, UserError
from coevo.host import consent
from coevo.host.config import RunConfig
from coevo.interfaces import Engine, Policy
from coevo.records import DenseUpdate, Perturbation, SeedsUpdate
from coevo_ray import RayEngine
from tests.ray_engine import frail
from tests.ray_engine.ray_kit import ask, complete, said

MEMBER = Perturbation(11, 0.5)
UPDATES = [SeedsUpdate(((1, 0.5), (2, -0.25))), SeedsUpdate(((3, 0.125),))]


def alone(*updates):
    """A single engine after some updates."""
    engine = fakes.NumberEngine()
    for update in updates:
        engine.apply(update)
    return engine


def process(engine, index):
    return engine._pool.members[index].seat.facts.pid


def kill(engine, index=0):
    os.kill(process(engine, index), signal.SIGKILL)


def test_a_pool_is_an_engine_of_as_many_slots_as_workers(shared):
    assert isinstance(shared, Engine)
    assert shared.capabilities == coevo.Capabilities(adapts=True, slots=2)
    assert shared.digest() == alone().digest()

    async def lease():
        async with shared.lease(MEMBER) as policy:
            assert isinstance(policy, Policy)
            return policy.id

    assert asyncio.run(lease()) == f"{alone().digest()[:8]}-000000000000000b"


def test_it_has_the_optional_methods_of_its_workers_engine_and_no_others(shared):
    assert shared.moved(MEMBER) == 1.0
    assert shared.count_tokens(ask("say number 0")) == 3
    assert not hasattr(shared, "reached")
    assert not hasattr(shared, "served_digest")
    assert shared.record()["ray"]["engine"] == "frail"


def test_a_worker_has_as_many_threads_as_cpus_unless_they_are_set(shared, pool):
    told = shared.describe()
    assert (told["workers"], told["threads"]) == ("2 of engine 'frail', 0.25 CPU each", "1")
    assert pool(workers=1, threads=3).describe()["threads"] == "3"


def test_a_member_gets_the_answer_that_it_gets_from_one_engine(shared):
    for member in (None, MEMBER, Perturbation(11, -0.5)):
        assert said(shared, "say number 1", member) == said(alone(), "say number 1", member)


def test_leases_are_served_at_once_on_different_workers(shared):
    async def both():
        return await asyncio.gather(*(complete(shared, "slow 0", Perturbation(seed, 0.1)) for seed in (1, 2)))

    assert set(asyncio.run(both())) == {str(process(shared, i)) for i in (0, 1)}


def test_a_member_and_its_antithetic_twin_go_back_to_the_worker_that_has_them(shared):
    one, other = Perturbation(1, 0.1), Perturbation(2, 0.1)
    places = [said(shared, "who 0", member) for member in (one, other, one, other, Perturbation(1, -0.1), other)]
    assert places == [places[0], places[1]] * 3
    assert places[0] != places[1]


def test_a_lease_waits_for_a_free_worker_and_ends_with_its_context(pool):
    engine = pool(workers=1)

    async def run():
        async with engine.lease(MEMBER) as policy:
            second = asyncio.create_task(complete(engine, "who 0"))
            await asyncio.sleep(0.1)
            assert not second.done()
        await second
        with pytest.raises(RuntimeError, match="after the policy's lease ended"):
            await policy.complete([ask("who 0")])

    asyncio.run(run())


def test_every_worker_applies_an_update_by_itself_and_all_agree_with_one_engine(pool, logs):
    engine = pool()
    for update in UPDATES:
        engine.apply(update)
    assert engine.digest() == alone(*UPDATES).digest()
    assert logs() == [["apply [1, 2]", "apply [3]"]] * 2
    assert engine._pool.ask(engine._pool.members[1], "digest") == engine.digest()


def test_only_seeds_are_sent_to_workers(shared):
    with pytest.raises(ValueError, match="applies seeds updates, got a DenseUpdate"):
        shared.apply(DenseUpdate("delta", "0" * 64))


def test_a_worker_with_other_weights_after_an_update_is_named(pool):
    engine = pool(workers=2, odd="apply")
    with pytest.raises(CheckFailedError, match=r"'ray' apply to different weights: worker \d on \S+ [0-9a-f]{16}"):
        engine.apply(UPDATES[0])
    with pytest.raises(CheckFailedError, match="different weights"):
        said(engine, "say number 0")


def test_workers_that_start_with_different_weights_are_refused(pool):
    with pytest.raises(CheckFailedError, match="start with different weights: worker"):
        pool(odd="start")


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("refuse 0", UserError, "this cannot be asked; ask otherwise"),
        ("fail 0", RuntimeError, "no luck"),
        ("sad 0", RuntimeError, "SadError: this and that"),
        ("missing 0", UserError, "engine 'frail' needs the package 'nothing', which is not installed; mend it with"),
    ],
)
def test_what_an_engine_raises_comes_with_its_class_and_message_and_restarts_nobody(shared, text, kind, message):
    before = [process(shared, i) for i in (0, 1)]
    with pytest.raises(kind, match=message) as caught:
        said(shared, text)
    # An exception that cannot be made again from its pickle comes as the next best.
    assert type(caught.value) is kind
    assert [process(shared, i) for i in (0, 1)] == before
    assert int(said(shared, "who 0")) in before


def test_an_exception_in_a_worker_says_where_it_was_raised(shared):
    with pytest.raises(RuntimeError) as caught:
        said(shared, "fail 0")
    (note,) = caught.value.__notes__
    assert re.match(r"raised in worker \d of engine 'ray':\nTraceback", note)
    assert "frail.py" in note


def test_a_worker_that_dies_under_a_request_is_asked_again_in_its_next_process(pool, capfd):
    engine = pool(workers=1)
    for update in UPDATES:
        engine.apply(update)
    before = process(engine, 0)
    assert said(engine, "die-once 2", MEMBER) == said(alone(*UPDATES), "say number 2", MEMBER)
    assert process(engine, 0) != before
    told = capfd.readouterr()
    assert told.err == (
        f"coevo: note: worker 0 of engine 'ray' (process {before} on {os.uname().nodename}) died and is started again, "
        "1 of at most 3 times\n"
    )
    assert told.out == ""


def test_a_worker_that_died_unnoticed_is_brought_up_to_date_before_it_is_used(pool, logs):
    engine = pool()
    engine.apply(UPDATES[0])
    kill(engine, 1)
    engine.apply(UPDATES[1])
    assert engine.digest() == alone(*UPDATES).digest()
    assert logs()[-1] == ["apply [1, 2]", "apply [3]"]
    assert [member.deaths for member in engine._pool.members] == [0, 1]


def test_a_worker_that_dies_of_an_update_applies_it_once_more_and_no_other_does(pool, logs):
    engine = pool(odd="die")
    engine.apply(UPDATES[0])
    assert engine.digest() == alone(UPDATES[0]).digest()
    assert sorted(logs()) == [["apply [1, 2]"]] * 3


def test_a_restarted_worker_begins_at_the_newest_anchor(pool, logs, tmp_path):
    engine = pool(workers=1)
    engine.apply(UPDATES[0])
    engine.save_anchor(tmp_path / "anchor.npy")
    engine.apply(UPDATES[1])
    kill(engine)
    assert said(engine, "say number 0") == said(alone(*UPDATES), "say number 0")
    assert logs()[-1][:2] == ["load anchor.npy", "apply [3]"]


def test_a_restarted_worker_that_comes_to_other_weights_is_refused(pool, tmp_path):
    engine = pool(workers=1)
    engine.save_anchor(tmp_path / "anchor.npy")
    np.save(tmp_path / "anchor.npy", np.ones(3, np.float32))
    kill(engine)
    with pytest.raises(CheckFailedError, match="worker 0 of engine 'ray' was started again and comes to other"):
        said(engine, "say number 0")


def test_a_loaded_anchor_is_where_all_workers_are(pool, tmp_path):
    theirs = pool(workers=1)
    theirs.apply(UPDATES[0])
    theirs.save_anchor(tmp_path / "anchor.npy")
    engine = pool()
    engine.load_anchor(tmp_path / "anchor.npy")
    engine.apply(UPDATES[1])
    assert engine.digest() == alone(*UPDATES).digest()


def test_a_worker_that_dies_too_often_ends_the_run_in_one_line(pool):
    engine = pool(workers=1, restarts=1)
    with pytest.raises(RunError) as caught:
        said(engine, "die 0")
    line = str(caught.value)
    assert line.startswith("worker 0 of engine 'ray' died 2 times, and ray.restarts=1 allows 1 restarts; its log is '")
    assert Path(line.split("'")[-2]).is_file()


def test_all_that_was_asked_of_a_rolling_worker_that_dies_is_answered_once(pool):
    engine = pool(workers=1, rolling=True, delay=0.05)
    assert engine.capabilities.rolling

    async def run():
        async with engine.lease(MEMBER) as policy:
            texts = [f"{'die-once' if i == 3 else 'say'} {i % 3}" for i in range(8)]
            return await asyncio.gather(*(policy.complete([ask(text, seed=i)]) for i, text in enumerate(texts)))

    async def expected(one):
        async with one.lease(MEMBER) as policy:
            return [await policy.complete([ask(f"say {i % 3}", seed=i)]) for i in range(8)]

    assert asyncio.run(run()) == asyncio.run(expected(alone()))
    assert engine._pool.members[0].deaths == 1


def test_a_cancelled_request_frees_its_worker(shared):
    async def run():
        waiting = [asyncio.create_task(complete(shared, "wait 0")) for _ in range(2)]
        await asyncio.sleep(0.3)
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        assert all(task.cancelled() for task in waiting)
        return await asyncio.wait_for(complete(shared, "say number 0"), 180)

    assert asyncio.run(run()) == said(alone(), "say number 0")


def test_closing_a_pool_ends_its_workers_and_leaves_the_ray_that_was_there(pool, cluster):
    engine = pool()
    numbers = [process(engine, i) for i in (0, 1)]
    engine.close()
    deadline = 180 / 0.05
    while any(Path(f"/proc/{number}/cmdline").exists() for number in numbers) and deadline:
        asyncio.run(asyncio.sleep(0.05))
        deadline -= 1
    assert deadline
    assert cluster.ray.is_initialized()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "fraill"}, "no engine named 'fraill'; did you mean 'frail'?"),
        ({"engine": "frail", "options": {"dely": 1, "folder": ""}}, "has no option 'dely'; did you mean 'delay'?"),
        ({"engine": "frail"}, "engine 'frail' needs option 'folder'"),
        ({"engine": "ray"}, "a pool is no worker"),
        ({"engine": "numbers", "model": "no/such/folder"}, "no/such/folder"),
    ],
)
def test_what_the_workers_engine_would_refuse_is_refused_before_ray_starts(monkeypatch, options, message):
    monkeypatch.setattr("coevo_ray.engine.Cluster", None)
    with pytest.raises(UserError) as caught:
        RayEngine(plugins=[frail.__file__, fakes.__file__], **options)
    assert message in str(caught.value)


def test_what_does_not_fit_is_refused(pool):
    with pytest.raises(UserError, match=r"ray.workers=2 with \S+ CPU and 4 GPU each do not fit into"):
        RayEngine(plugins=[fakes.__file__], engine="numbers", gpus=4)


def test_without_ray_the_mend_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    from coevo_ray.cluster import Cluster

    with pytest.raises(coevo.MissingExtraError, match=r"pip install 'coevo\[ray\]'"):
        Cluster("")


def test_the_plugin_files_of_a_run_are_known_to_its_engine_by_full_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "coevo_plugin.py").touch()
    assert local_files(RunConfig()) == ()
    consent.remember(tmp_path / "coevo_plugin.py", b"")
    assert local_files(RunConfig()) == (str(tmp_path / "coevo_plugin.py"),)
    config = RunConfig(plugins=("mine.py", "coevo_plugin.py"))
    assert local_files(config) == (str(tmp_path / "coevo_plugin.py"), str(tmp_path / "mine.py"))

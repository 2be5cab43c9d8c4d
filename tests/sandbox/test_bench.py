from __future__ import annotations

from coevo.tools.bench.sandbox import bench_sandbox


def test_a_zygote_is_timed_beside_a_fresh_interpreter() -> None:
    times = bench_sandbox(rounds=1, candidates=1)

    assert times.keys() == {"ratio", "zygote_seconds", "fresh_seconds", "start_seconds"}
    assert times["ratio"] == times["fresh_seconds"] / times["zygote_seconds"]

from __future__ import annotations

from coevo.bench.sandbox import bench_sandbox


def test_a_zygote_is_at_least_five_times_cheaper_than_a_fresh_interpreter() -> None:
    times = bench_sandbox(rounds=3, candidates=4)

    assert times["ratio"] >= 5.0, times

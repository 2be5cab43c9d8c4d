"""What a worker may use: arithmetic."""

import pytest

from coevo.errors import UserError
from coevo_ray.shares import Node, Shares, shares

LAPTOP = [Node(2, 0)]
BOX = [Node(64, 8)]
TWO_BOXES = [Node(10, 4), Node(10, 4)]


@pytest.mark.parametrize(
    ("nodes", "workers", "cpus", "gpus", "expected"),
    [
        (LAPTOP, 2, None, None, Shares(2, 1, 0)),
        (LAPTOP, 1, None, None, Shares(1, 2, 0)),
        (LAPTOP, 0, None, None, Shares(2, 1, 0)),
        (LAPTOP, 4, None, None, Shares(4, 0.5, 0)),
        (LAPTOP, 6, None, None, Shares(6, 0.3333, 0)),
        (LAPTOP, 8, 0.25, None, Shares(8, 0.25, 0)),
        (BOX, 8, None, None, Shares(8, 8, 1)),
        (BOX, 0, None, None, Shares(8, 1, 1)),
        (BOX, 0, None, 2, Shares(4, 1, 2)),
        (BOX, 16, None, 0.5, Shares(16, 4, 0.5)),
        (BOX, 16, None, 0, Shares(16, 4, 0)),
        # Six CPUs each would leave the third worker no machine to be on.
        (TWO_BOXES, 3, None, 0, Shares(3, 5, 0)),
        ([*TWO_BOXES, Node(100, 0)], 8, None, None, Shares(8, 2, 1)),
    ],
)
def test_workers_share_what_there_is(nodes, workers, cpus, gpus, expected):
    assert shares(nodes, workers, cpus, gpus) == expected


@pytest.mark.parametrize(("cpus", "threads"), [(0.25, 1), (1, 1), (8, 8)])
def test_a_worker_has_at_least_one_thread(cpus, threads):
    assert Shares(1, cpus, 0).threads == threads


@pytest.mark.parametrize(
    ("nodes", "workers", "cpus", "gpus", "message"),
    [
        (
            LAPTOP,
            3,
            1,
            None,
            "ray.workers=3 with 1 CPU and 0 GPU each do not fit into 2 CPUs and 0 GPUs on 1",
        ),
        (LAPTOP, 1, None, 1, "there is room for 0; set ray.workers, ray.cpus or ray.gpus lower"),
        (TWO_BOXES, 2, None, 8, "there is room for 0"),
        (TWO_BOXES, 9, None, None, "there is room for 8"),
        (LAPTOP, 0, 4, None, "there is room for 0"),
        (LAPTOP, 64, None, None, "ray.workers=64 with 0.25 CPU and 0 GPU each do not fit into 2 CPUs"),
        (BOX, 2, None, 1.5, "ray.gpus got 1.5: more than 1 must be a whole number"),
        (BOX, 2, 2.5, None, "ray.cpus got 2.5: more than 1 must be a whole number"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_numbers(nodes, workers, cpus, gpus, message):
    with pytest.raises(UserError) as caught:
        shares(nodes, workers, cpus, gpus)
    assert message in str(caught.value)

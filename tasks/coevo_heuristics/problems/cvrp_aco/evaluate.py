"""CVRP by an ant colony: a heuristic says how promising each edge is, ants build routes, the best plan counts.

Instances are the common ones of the literature, bit for bit: a depot in the middle of the unit square, customers
uniform in it with demands 1 to 9, vehicles of capacity 50, drawn in the order of `_DRAWS` from one
`RandomState(1234)`. `validation` and `test` alone mean those with 50 customers.

The colony: 30 ants, pheromone 1 at the start; an ant starts at the depot and goes to an unvisited customer that
still fits, or to the depot if it is not there, with a probability proportional to pheromone times heuristic value;
then pheromone decays by 0.9, every ant adds one over its cost to its edges in their direction, and no pheromone
falls below 1e-10. All draws come from a seed of the instance, so equal heuristics get equal plans. The diagonal of
the distances is 1, so that a heuristic may divide by them.

`rules="paper"` counts as the published evaluator does: ants that have finished wait at the depot for the
slowest, at a cost of 1 (the diagonal) a step, in what they deposit and in the objective.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Literal, TypeAlias, TypeVar, cast, get_args

import numba
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Nodes = NDArray[np.int64]
_Function = TypeVar("_Function", bound=Callable[..., Any])

_DRAWS = (
    ("train", 10, 50),
    *(("validation", 64, size) for size in (20, 50, 100)),
    *(("test", 64, size) for size in (20, 50, 100)),
)
_ALIASES = {"train": "train50", "search": "train50", "validation": "validation50", "test": "test50"}
Rules: TypeAlias = Literal["plain", "paper"]
_RULES = get_args(Rules)
_SEED = 1234
_CAPACITY = 50
_ANTS = 30
_DECAY = 0.9
_ITERATIONS = {"train": 100, "validation": 100, "test": 500}
_SMALLEST, _FAINTEST = 1e-9, 1e-10


class Instance:
    """Depot (node 0) and customers, and what the colony on them needs; `waiting` is the cost of an idle step."""

    def __init__(self, coordinates: Floats, demands: Nodes, iterations: int, seed: int, waiting: float) -> None:
        self.coordinates = coordinates  # (n + 1, 2)
        self.demands = demands  # (n + 1,), 0 for the depot
        self.size = len(coordinates)
        self.iterations = iterations
        self.seed = seed
        self.waiting = waiting
        difference = coordinates[:, None, :] - coordinates[None, :, :]  # (n + 1, n + 1, 2)
        self.distances: Floats = np.sqrt(np.add.reduce(difference * difference, axis=2))
        np.fill_diagonal(self.distances, 1.0)


def instances(
    split: str, count: int | None = None, iterations: int | None = None, rules: Rules = "plain"
) -> list[Instance]:
    """The instances of `split`, or the first `count` of them; `iterations` of the colony other than usual."""
    if count is not None and count < 1:
        raise ValueError(f"count = {count!r}; expected 1 or more")
    if rules not in _RULES:
        raise ValueError(f"there are no rules {rules!r}; there are {', '.join(_RULES)}")
    if iterations is not None and iterations < 1:
        raise ValueError(f"iterations = {iterations!r}; a colony has 1 or more")
    wanted = _ALIASES.get(split, split)
    random = np.random.RandomState(_SEED)
    waiting = 1.0 if rules == "paper" else 0.0
    for name, number, size in _DRAWS:
        drawn = [(random.rand(size, 2), random.randint(1, 10, size)) for _ in range(number)]
        if f"{name}{size}" == wanted:
            rounds = _ITERATIONS[name] if iterations is None else iterations
            _ready()
            return [
                Instance(
                    np.vstack(([[0.5, 0.5]], nodes)),
                    np.concatenate(([0], demands)).astype(np.int64),
                    rounds,
                    _SEED + 1000 * size + i,
                    waiting,
                )
                for i, (nodes, demands) in enumerate(drawn[:count])
            ]
    names = ", ".join([*_ALIASES, *(f"{name}{size}" for name, _, size in _DRAWS[1:])])
    raise ValueError(f"there is no split {split!r}; there are {names}")


def solve(function: Callable[..., object], instance: Instance) -> list[int] | str:
    """The best plan of the colony; for an answer that is no heuristic matrix what is wrong, for `objective`.

    A plan is the nodes from depot to depot in the order of the visits; idle steps are depots at its end.
    """
    arguments = instance.distances.copy(), instance.coordinates.copy(), instance.demands.copy()
    heuristic = _matrix(function(*arguments, _CAPACITY), instance.size)
    return heuristic if isinstance(heuristic, str) else _colony(heuristic, instance)


def _matrix(answer: object, size: int) -> Floats | str:
    """The (size, size) heuristic, at least `_SMALLEST` and at most 1 in each row; or what is wrong with it."""
    found = np.asarray(answer)
    if found.shape != (size, size) or found.dtype.kind not in "biuf":
        kind = f"{type(answer).__name__} of shape {found.shape} and type {found.dtype}"
        return f"the heuristic is a {kind}, not a real matrix of shape ({size}, {size})"
    values: Floats = found.astype(np.float64)
    if not np.isfinite(values).all():
        raise FloatingPointError("a heuristic value is not finite")
    values = np.maximum(values, _SMALLEST)
    # Only the ratios within a row matter; this keeps sums of large ones finite.
    return values / values.max(axis=1, keepdims=True)


def _colony(heuristic: Floats, instance: Instance) -> list[int]:
    random = np.random.RandomState(instance.seed)
    pheromone = np.ones_like(heuristic)
    # Each customer may be followed by the depot, and the depot comes first.
    longest = 2 * instance.size - 1
    plans = np.empty((_ANTS, longest), np.int64)
    steps, lengths = np.empty(_ANTS, np.int64), np.empty(_ANTS)
    best, cheapest = [0], np.inf
    for _ in range(instance.iterations):
        draws = random.random_sample((_ANTS, longest))
        weights = pheromone * heuristic
        _walk(instance.distances, instance.demands, _CAPACITY, weights, draws, plans, steps, lengths)
        idle = steps.max() - steps
        costs = lengths + instance.waiting * idle
        ant = int(costs.argmin())
        if costs[ant] < cheapest:
            cheapest = costs[ant]
            best = plans[ant, : steps[ant]].tolist() + [0] * int(idle[ant] if instance.waiting else 0)
        pheromone *= _DECAY
        _deposit(pheromone, plans, steps, costs)
        np.maximum(pheromone, _FAINTEST, out=pheromone)
    return best


def _compiled(function: _Function) -> _Function:
    """`numba.njit`, cached on disk where a place for the cache can be written."""
    njit = cast(Callable[..., Callable[[_Function], _Function]], numba.njit)
    try:
        return njit(cache=True)(function)
    except RuntimeError:  # no such place: compile once a process
        return njit(cache=False)(function)


@_compiled
def _walk(
    distances: Floats,
    demands: Nodes,
    capacity: int,
    weights: Floats,
    draws: Floats,
    plans: Nodes,
    steps: Nodes,
    lengths: Floats,
) -> None:
    """Fill `plans` (ants, longest), of which `steps` (ants,) count, and `lengths` (ants,) without idle steps.

    Args:
        distances: (n + 1, n + 1).
        demands: (n + 1,), 0 for the depot.
        capacity: of a vehicle.
        weights: (n + 1, n + 1) of the edges.
        draws: (ants, longest) in [0, 1).
        plans: written.
        steps: written.
        lengths: written.
    """
    size = len(distances)
    left = np.empty(size, np.int64)
    # Running sums of the weights of what may come next, and where it is in `left`; -1 is the depot.
    reached, places = np.empty(size), np.empty(size, np.int64)
    for ant in range(len(plans)):
        remain = size - 1
        for i in range(remain):
            left[i] = i + 1
        plans[ant, 0] = 0
        node, step, length, room = 0, 1, 0.0, capacity
        while remain > 0 or node != 0:
            row = weights[node]
            total, options = 0.0, 0
            if node != 0:
                total = row[0]
                reached[0], places[0], options = total, -1, 1
            for i in range(remain):
                if demands[left[i]] <= room:
                    total += row[left[i]]
                    reached[options], places[options] = total, i
                    options += 1
            aim = draws[ant, step] * total
            choice = 0
            while reached[choice] <= aim and choice < options - 1:
                choice += 1
            place = places[choice]
            if place < 0:
                following, room = 0, capacity
            else:
                following = left[place]
                room -= demands[following]
                remain -= 1
                left[place] = left[remain]
            length += distances[node, following]
            node = following
            plans[ant, step] = node
            step += 1
        steps[ant], lengths[ant] = step, length


@_compiled
def _deposit(pheromone: Floats, plans: Nodes, steps: Nodes, costs: Floats) -> None:
    """Add one over its cost to each edge of each plan."""
    for ant in range(len(plans)):
        for step in range(1, steps[ant]):
            pheromone[plans[ant, step - 1], plans[ant, step]] += 1.0 / costs[ant]


def _ready() -> None:
    """Compile now: what a candidate's process compiles would be lost with it."""
    square, lengths, steps = np.ones((2, 2)), np.ones(1), np.ones(1, np.int64)
    plans = np.zeros((1, 3), np.int64)
    _walk(square, np.array([0, 1]), _CAPACITY, square, np.zeros((1, 3)), plans, steps, lengths)
    _deposit(square, plans, steps, lengths)


def objective(solution: object, instance: Instance) -> float:
    """Length of all routes of the plan `solution`; with idle steps where the definition counts them."""
    if isinstance(solution, str):
        raise ValueError(solution[:200])
    if not isinstance(solution, list):
        raise ValueError("the plan is no list")
    plan: list[int] = []
    for step, node in enumerate(cast("list[object]", solution)):
        if type(node) is not int or not 0 <= node < instance.size:
            raise ValueError(f"step {step} goes to {node!r:.100}, which is no node of 0 to {instance.size - 1}")
        plan.append(node)
    if sorted(node for node in plan if node) != list(range(1, instance.size)):
        raise ValueError(f"the plan does not visit each of the customers 1 to {instance.size - 1} once")
    if plan[0] != 0 or plan[-1] != 0:
        raise ValueError("the plan does not begin and end at the depot")
    load = 0
    for node in plan:
        load = load + int(instance.demands[node]) if node else 0
        if load > _CAPACITY:
            raise ValueError(f"a route to customer {node} carries {load}, more than {_CAPACITY}")
    path = instance.coordinates[np.array(plan, dtype=np.intp)]  # (steps, 2)
    step_lengths = np.sqrt(np.add.reduce(np.diff(path, axis=0) ** 2, axis=1))
    idle = sum(a == b == 0 for a, b in pairwise(plan))
    return float(step_lengths.sum()) + instance.waiting * idle


def bound(instance: Instance) -> float:
    """A length that no plan is shorter than; for races, in the run alone.

    A plan of r routes through n customers is a forest of n - r edges between customers and 2 r edges to the depot, two
    edges at each customer. Without the latter condition the cheapest forest (the cheapest edges of a spanning tree) and
    the cheapest edges to the depot are easy to find for every r from the fewest vehicles that carry all; weights of
    the customers, improved by subgradient steps, bring the condition back in. The other bound: a vehicle that drives to
    a customer and back carries no more than its capacity.
    """
    from coevo_heuristics.one_tree import spanning_tree, subgradient_bound

    customers = instance.size - 1
    between, home = instance.distances[1:, 1:], instance.distances[0, 1:]
    routes = np.arange(max(1, -(-int(instance.demands.sum()) // _CAPACITY)), customers + 1)

    def relaxed(weights: Floats) -> tuple[float, Floats]:
        joined, paid = spanning_tree(between + weights[:, None] + weights[None, :])
        order, near = np.argsort(paid), np.argsort(home + weights)
        forests = np.concatenate(([0.0], np.cumsum(paid[order])))  # of 0 to n - 1 edges
        depot = np.concatenate(([0.0], np.cumsum((home + weights)[near])))
        totals = forests[customers - routes] + 2.0 * depot[routes]
        count = int(routes[totals.argmin()])
        edges = order[: customers - count]
        degrees = np.bincount(edges + 1, minlength=customers) + np.bincount(joined[edges], minlength=customers)
        degrees[near[:count]] += 2
        return float(totals.min() - 2.0 * weights.sum()), (degrees - 2).astype(np.float64)

    radial = 2.0 * float((home * instance.demands[1:]).sum()) / _CAPACITY
    return max(radial, subgradient_bound(relaxed, customers))

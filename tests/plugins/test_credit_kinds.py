"""What the weights learn from an answer: the kinds of credit that `eoh` and `sample` offer beside their own."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coevo.numerics.shaping import zscore
from coevo_eoh import EvolutionOfHeuristics
from coevo_sample import Sample

OBJECTIVES = st.one_of(st.none(), st.floats(1.0, 50.0))


def answers_of(kit, objectives):
    """Answers that are all different; None is a failure."""
    return [kit.Answer(o, f"code{i}") for i, o in enumerate(objectives)]


def filled(kit, kept, *, kind, direction="minimize", offspring=6):
    """`eoh` with a population of objectives `kept`, about to ask `m1`."""
    eoh = EvolutionOfHeuristics(
        services=kit.FakeServices(), brief=kit.make_brief(direction=direction), population=max(len(kept), 1),
        operators=("m1",), offspring=offspring, initial_batches=1, credit=kind,
    )  # fmt: skip
    start = [kit.Answer(o, f"kept{i}") for i, o in enumerate(kept)] or [kit.Answer(None)]
    eoh.tell(kit.play(eoh.ask(), lambda i, _: start[i], direction=direction))
    return eoh


def learned(kit, eoh, objectives, direction="minimize"):
    """(credit, objective of the parent shown) of each answer."""
    said = answers_of(kit, objectives)
    buffer = eoh.credit(kit.play(eoh.ask(), lambda i, _: said[i], direction=direction))
    contexts = [buffer.batch.contexts[r.provenance.context] for r in buffer.rollouts]
    shown = [c.data["parents"][0]["objective"] if c.data else None for c in contexts]
    return [(r.credit, parent) for r, parent in zip(buffer.rollouts, shown, strict=True)]


def papers_reward(objective, parent, worst):
    """By the words of the paper's code, for a problem that is minimised."""
    if objective is not None and objective <= worst:
        return parent - objective
    return parent - min(worst, parent + 1.0)


@given(
    kept=st.lists(st.floats(1.0, 50.0), min_size=1, max_size=4, unique=True),
    said=st.lists(OBJECTIVES, min_size=6, max_size=6),
)
def test_the_papers_credit_of_eoh_is_the_papers(kit, kept, said):
    eoh = filled(kit, kept, kind="paper")
    worst = max(-h.value for h in eoh.population)
    for (credit, parent), objective in zip(learned(kit, eoh, said), said, strict=True):
        assert credit == pytest.approx(papers_reward(objective, parent, worst))


def test_the_papers_credit_may_put_a_failure_above_a_valid_answer_and_tiers_never_do(kit):
    said = [None, 26.0, None, 26.0, None, 26.0]
    kept = [10.0, 30.0]  # 26 is within the population, and far below a parent of 10
    paper = learned(kit, filled(kit, kept, kind="paper"), said)
    best_parent = [
        (objective, credit) for (credit, parent), objective in zip(paper, said, strict=True) if parent == 10.0
    ]
    assert {objective for objective, _ in best_parent} == {None, 26.0}
    assert {credit for objective, credit in best_parent if objective is None} == {-1.0}
    assert {credit for objective, credit in best_parent if objective} == {-16.0}
    for kind in ("parent", "best"):
        found = learned(kit, filled(kit, kept, kind=kind), said)
        assert {credit for (credit, _), objective in zip(found, said, strict=True) if objective is None} == {0.0}
        assert all(credit > 0.4 for (credit, _), objective in zip(found, said, strict=True) if objective)


def test_against_the_best_an_answer_has_one_worth_whatever_it_was_shown(kit):
    said = [15.0, 15.0, 15.0, 9.0, 9.0, 9.0]
    kept = [10.0, 30.0]
    by_parent = learned(kit, filled(kit, kept, kind="parent"), said)
    assert len({parent for _, parent in by_parent[:3]}) == 2
    assert len({credit for credit, _ in by_parent[:3]}) == 2  # better than one parent, worse than the other
    by_best = [credit for credit, _ in learned(kit, filled(kit, kept, kind="best"), said)]
    assert len(set(by_best[:3])) == len(set(by_best[3:])) == 1
    assert 0.45 <= by_best[0] <= 0.6
    assert 0.8 <= by_best[3] <= 1.0


def test_the_direction_of_the_problem_is_followed_by_all_kinds(kit):
    for kind in ("parent", "best", "paper"):
        eoh = filled(kit, [10.0, 12.0], kind=kind, direction="maximize", offspring=2)
        (worse, _), (better, _) = learned(kit, eoh, [11.0, 20.0], direction="maximize")
        assert worse < better, kind


def test_while_nothing_is_kept_the_papers_credit_is_the_return(kit):
    eoh = filled(kit, [], kind="paper", offspring=3)
    credits = [credit for credit, _ in learned(kit, eoh, [10.0, 14.0, None])]
    assert credits == pytest.approx([-10.0, -14.0, -16.0])


def test_an_engine_error_has_no_credit_of_any_kind(kit):
    for kind in ("parent", "best", "paper"):
        eoh = filled(kit, [10.0], kind=kind, offspring=2)
        said = [kit.Answer(9.0, "new"), kit.Answer(None, status="engine_error")]
        buffer = eoh.credit(kit.play(eoh.ask(), lambda i, _, a=said: a[i]))
        assert [r.credit is None for r in buffer.rollouts] == [False, True]


# Sample


def drawn(kit, sample, objectives, direction="minimize"):
    """The credits of one generation, which the updater then has heard of."""
    said = answers_of(kit, objectives)
    buffer = sample.credit(kit.play(sample.ask(), lambda i, _: said[i], direction=direction))
    sample.tell(buffer)
    return [r.credit for r in buffer.rollouts]


def new(kit, services, *, kind, batch=3, **brief):
    return Sample(services=services, brief=kit.make_brief(**brief), batch=batch, credit=kind)


def test_against_the_best_the_same_answer_is_worth_less_once_it_is_known(kit):
    services = kit.FakeServices()
    sample = new(kit, services, kind="best")
    assert drawn(kit, sample, [7.0, 6.5, None]) == pytest.approx([0.5, 0.5 + 0.5 * (0.5 / 7.0) / 0.15, 0.0])
    services.generation = 1
    assert drawn(kit, sample, [6.5, 7.0, None]) == pytest.approx([0.5, 0.5 - 0.2 * (0.5 / 6.5) / 0.5, 0.0])
    services.generation = 2
    assert drawn(kit, sample, [6.0, None, None]) == pytest.approx([0.5 + 0.5 * (0.5 / 6.5) / 0.15, 0.0, 0.0])


def test_without_a_baseline_the_best_is_the_first_reference_there_is(kit):
    services = kit.FakeServices()
    sample = new(kit, services, kind="best", references=())
    assert drawn(kit, sample, [5.0, 7.0, None]) == pytest.approx([1.0, 0.3, 0.0])  # ranks
    services.generation = 1
    assert drawn(kit, sample, [5.0, None, None]) == pytest.approx([0.5, 0.0, 0.0])


def test_a_batch_without_a_valid_answer_leaves_the_best_as_it_was(kit):
    services = kit.FakeServices()
    sample = new(kit, services, kind="best")
    drawn(kit, sample, [5.0, 6.0, None])
    services.generation = 1
    assert drawn(kit, sample, [None] * 3) == [0.0] * 3
    services.generation = 2
    assert drawn(kit, sample, [5.0, None, None])[0] == pytest.approx(0.5)


@given(st.lists(OBJECTIVES, min_size=1, max_size=20))
def test_the_return_as_credit_gives_the_papers_fitness(kit, objectives):
    sample = new(kit, kit.FakeServices(), kind="return", batch=len(objectives))
    credits = np.array(drawn(kit, sample, objectives))
    valid = [-o for o in objectives if o is not None]
    if not valid:
        assert set(credits) == {0.0}
        return
    spread = np.std(valid) if np.std(valid) > 1e-8 else max(0.01 * abs(np.mean(valid)), 1.0)
    paper = np.array([min(valid) - spread if o is None else -o for o in objectives])
    if max(valid) - min(valid) > 1e-6 or len(valid) == len(objectives) or len(set(valid)) == 1:
        assert zscore(credits) == pytest.approx(zscore(paper), abs=1e-5)


def test_a_resumed_run_remembers_the_best_and_others_keep_their_state_as_it_was(kit):
    services = kit.FakeServices()
    sample = new(kit, services, kind="best")
    drawn(kit, sample, [6.5, 6.0, None])
    resumed = new(kit, services, kind="best")
    resumed.load_state_dict(json.loads(json.dumps(sample.state_dict())))
    services.generation = 1
    assert drawn(kit, sample, [6.0, 8.0, None]) == drawn(kit, resumed, [6.0, 8.0, None])
    assert new(kit, services, kind="baseline").state_dict() == {"finished": -1}
    assert new(kit, services, kind="return").state_dict() == {"finished": -1}

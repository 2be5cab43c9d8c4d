"""The questions are the same for everybody, and answers become credits."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import fakes
import numpy as np
import pytest

from coevo.errors import RunError
from coevo.loop.collector import Collector
from coevo.numerics.shaping import bounded_credit
from coevo.records import EpisodeResult, Example, Provenance, Rollout, Sampling, Step, Trajectory
from coevo.tools.tune.asking import Questions, credits_of, equal_share, valid_share

TASK = fakes.AimTask()


def ask(questions, members=(), task=TASK, engine=None):
    with ThreadPoolExecutor(2) as scorers:
        collector = Collector(engine or fakes.NumberEngine(), task, Sampling(max_new_tokens=4), scorers)
        return asyncio.run(questions.ask(collector, members))


def of(answers, task=TASK, seed=7):
    return Questions.of(task, task.brief(), answers, seed, chunk=5)


def keys(rollouts):
    return [(r.provenance.example, r.provenance.sample, r.provenance.sampling_seed) for r in rollouts]


def test_members_of_every_sigma_and_the_centre_answer_the_same_questions():
    questions = of(7)
    assert questions.size == 6  # three examples, twice
    one, other = (ask(questions, questions.members(3, sigma)) for sigma in (1e-3, 0.5))
    assert keys(one) == keys(other) == 3 * keys(ask(questions))
    assert len(set(keys(one))) == 6
    wide = keys(ask(questions.wider(4)))
    assert len(set(wide)) == 24
    assert set(keys(one)) < set(wide)
    assert [r.provenance.member for r in one] == [m for m in range(3) for _ in range(6)]


def test_a_member_has_the_same_noise_at_every_sigma_and_no_other_member_has_it():
    small, large = of(7).members(4, 1e-3), of(7).members(9, 0.5)
    assert [m.seed for m in small] == [m.seed for m in large[:4]]
    assert len({m.seed for m in large}) == 9
    assert {m.sigma for m in large} == {0.5}
    assert of(7, seed=8).members(1, 1e-3)[0].seed != small[0].seed


class ManyExamples(fakes.AimTask):
    def examples(self, split):
        return [Example(str(i)) for i in range(100)]


def test_of_many_examples_a_fixed_spread_is_asked_once_each():
    questions = of(4, ManyExamples())
    assert ([e.id for e in questions.examples], questions.size) == (["0", "25", "50", "75"], 4)


def test_credit_is_bounded_where_the_task_has_a_baseline():
    questions = of(6)
    members = questions.members(2, 0.3)
    centre, rollouts = ask(questions.wider(4)), ask(questions, members)
    credits = credits_of(questions, members, centre, rollouts, TASK.brief())
    assert (credits.members.shape, credits.centre.shape, credits.wide.shape) == ((2, 6), (6,), (24,))
    assert credits.members.ravel().tolist() == [bounded_credit(r.return_, -3.5 / 3) for r in rollouts]
    assert credits.wide.tolist() == [bounded_credit(r.return_, -3.5 / 3) for r in centre]
    # What the centre is compared by is its answers to the members' own questions.
    asked = dict(zip(keys(centre), credits.wide.tolist(), strict=True))
    assert credits.centre.tolist() == [asked[key] for key in keys(rollouts[:6])]


class NoBaseline(fakes.AimTask):
    def brief(self):
        return fakes.coevo.Brief("aim", "Aim", "Say.", failure=-9.0, components={"prompt": "say number"})


def test_credit_is_the_return_where_it_has_none():
    questions = of(6, NoBaseline())
    members = questions.members(2, 0.3)
    centre, rollouts = ask(questions), [*ask(questions, members)]
    rollouts[1] = changed(rollouts[1], "exception")
    credits = credits_of(questions, members, centre, rollouts, NoBaseline().brief())
    assert credits.members[0, 1] == -9.0
    assert np.delete(credits.members, 1).tolist() == [r.return_ for i, r in enumerate(rollouts) if i != 1]
    assert credits.centre.tolist() == credits.wide.tolist() == [r.return_ for r in centre]


def changed(rollout, status):
    return Rollout(rollout.provenance, status, None, rollout.trajectory, artifacts={"message": "it burns"})


def test_a_question_that_the_judge_failed_at_is_left_out_for_all():
    questions, brief = of(6), TASK.brief()
    members = questions.members(2, 0.3)
    centre, rollouts = [*ask(questions.wider(2))], [*ask(questions, members)]
    whole = credits_of(questions, members, centre, rollouts, brief)
    rollouts[8] = changed(rollouts[8], "judge_error")  # the third question
    centre[0] = changed(centre[0], "engine_error")  # the first
    centre[3] = changed(centre[3], "judge_error")  # one that no member was asked
    left = credits_of(questions, members, centre, rollouts, brief)
    assert np.array_equal(left.members, np.delete(whole.members, [0, 2], axis=1))
    assert np.array_equal(left.centre, np.delete(whole.centre, [0, 2]))
    assert np.array_equal(left.wide, np.delete(whole.wide, [0, 3]))
    rollouts = [changed(r, "judge_error") if i % 6 else r for i, r in enumerate(rollouts)]
    with pytest.raises(RunError, match="too many answers failed with 'engine_error': it burns"):
        credits_of(questions, members, centre, rollouts, brief)


class Endless(fakes.AimTask):
    def episode(self, example, context):
        episode = super().episode(example, context)
        episode.result = lambda: EpisodeResult("ok", float("inf"))
        return episode


def test_returns_that_are_not_finite_are_no_credits():
    task = Endless()
    questions = of(6, task)
    members = questions.members(2, 0.3)
    with pytest.raises(RunError, match="not finite"):
        credits_of(questions, members, ask(questions), ask(questions, members, task), NoBaseline().brief())


def said(member, sample, text):
    provenance = Provenance(0, 0, 0, member, 0, 0.1, 0, "c", "x", sample, sample, "p")
    step = Step((), (), (), "stop", text)
    return Rollout(provenance, "ok", 0.0, Trajectory((step,)))


def test_equal_answers_are_counted_in_pairs():
    texts = [["a", "b", "c\0"], ["a", "b", "c"], ["a", "x", "c"], ["y", "b", "z"]]
    rollouts = [said(m, s, text) for m, row in enumerate(texts) for s, text in enumerate(row)]
    # Of six pairs each: three, three and one.
    assert equal_share(rollouts, 4) == pytest.approx((3 + 3 + 1) / 18)


def test_valid_answers_are_counted_among_those_that_were_judged():
    rollouts = [said(0, s, "") for s in range(4)]
    assert valid_share(rollouts) == 1.0
    assert valid_share([changed(rollouts[0], "syntax"), changed(rollouts[1], "judge_error"), *rollouts[2:]]) == 2 / 3
    assert valid_share([changed(r, "engine_error") for r in rollouts]) == 0.0

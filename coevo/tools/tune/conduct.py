"""From a configuration to measurements and a proposal: what `coevo tune` does."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from coevo.app.blueprint import Blueprint
from coevo.app.launch import parts
from coevo.errors import UserError
from coevo.host.discovery import Plugins
from coevo.records import Json
from coevo.runs.folder import RunFolder
from coevo.runs.replay import restore_engine
from coevo.tools.tune.asking import Questions, valid_share
from coevo.tools.tune.checks import check_sizes, default_sigmas, strategy_of, visible, without_context
from coevo.tools.tune.measuring import Measuring, Tell, tokens_of
from coevo.tools.tune.proposal import Finding, Strategy, choose, propose, verdict

MEMBERS = 12
ANSWERS = 16


def tune(
    data: Mapping[str, Json],
    plugins: Plugins,
    *,
    sigmas: Sequence[float] | None = None,
    members: int = MEMBERS,
    answers: int = ANSWERS,
    run: RunFolder | None = None,
    tell: Tell = lambda text: None,
) -> dict[str, Json]:
    """Measure every sigma and propose sizes; returns what `coevo tune --json` prints.

    Args:
        data: the configuration as TOML data.
        plugins: already loaded ones.
        sigmas: standard deviations of the noise; None: factors of two around the configuration's own, or from the
            smallest on that is not rounded away.
        members: at each sigma.
        answers: of each member; with several examples, the largest multiple of their number that this holds.
        run: measure at the end of this run; None: at the base model.
        tell: is told in a line what was measured.

    Raises:
        UserError: something cannot be done as asked.
        RunError: engine or judge failed at too many answers.
        CheckFailedError: the weights of `run` cannot be rebuilt.
    """
    blueprint = without_context(Blueprint.of(data, plugins.registries()))
    config, strategy = blueprint.config, strategy_of(blueprint)
    grid = default_sigmas(strategy) if sigmas is None else sorted(sigmas)
    check_sizes(grid, members, answers)
    history = None if run is None else run.journal.history()
    with parts(blueprint) as (task, engine):
        if not engine.capabilities.adapts:
            raise UserError(
                f"engine {config.engine!r} cannot be tuned, because its weights are fixed; "
                "use an engine that adapts, such as 'transformers'"
            )
        if run is not None and history is not None and history.base:
            restore_engine(engine, run, history)
        if sigmas is None:
            grid = visible(grid, engine)
        started, brief = time.monotonic(), task.brief()
        questions = Questions.of(task, brief, answers, config.seed, config.rollouts.chunk)
        measuring = Measuring(
            task=task, engine=engine, brief=brief, questions=questions, sigmas=grid, members=members, tell=tell
        )
        centre, findings = measuring.run(blueprint)
        chosen = choose(findings, strategy)
        return {
            "task": config.task,
            "model": config.model,
            "engine": config.engine,
            "run": None if run is None else run.address,
            "weights_digest": engine.digest(),
            "seed": config.seed,
            "updater": strategy.name,
            "members": members,
            "answers": questions.size,
            "examples": len(questions.examples),
            "centre": {
                "answers": len(centre),
                "valid": valid_share(centre),
                "credit": findings[0].centre_credit,
            },
            "sigmas": [_shown(finding, strategy) for finding in findings],
            "verdict": verdict(findings, strategy),
            "proposal": None if chosen is None else propose(chosen, strategy),
            "calls": sum(r.calls for r in centre) + sum(f.calls for f in findings),
            "tokens": tokens_of(centre) + sum(f.tokens for f in findings),
            "seconds": time.monotonic() - started,
        }


def _shown(finding: Finding, strategy: Strategy) -> dict[str, Json]:
    spread = finding.spread
    return {
        "sigma": finding.sigma,
        "moved": finding.moved,
        "valid": finding.valid,
        "credit": finding.credit,
        "centre_credit": finding.centre_credit,
        "change": finding.change,
        "change_margin": finding.change_margin,
        "within": spread.within,
        "between": spread.between,
        "shared": spread.shared,
        "f": spread.f,
        "f_interval": list(spread.f_interval),
        "answers": spread.answers,
        "reliability": finding.reliability(strategy),
        "gain": finding.gain(strategy),
        "equal": finding.equal,
        "obstacle": finding.obstacle(strategy),
        "calls": finding.calls,
        "tokens": finding.tokens,
        "seconds": finding.seconds,
    }

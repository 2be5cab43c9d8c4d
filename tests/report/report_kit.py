"""Run folders as a run leaves them, written through the real folder and journal."""

import math
import random
from dataclasses import replace
from html.parser import HTMLParser

from coevo.records import Batch, Buffer, Context, Perturbation, Provenance, Rollout, SeedsUpdate, Step, Trajectory
from coevo.reports import BatchReport, Best, Ledger  # fmt: skip
from coevo.runs.folder import RunFolder
from coevo.runs.store import RunStore

CONFIG = {
    "task": "tsp_construct", "engine": "transformers", "model": "smollm2-135m", "param": "es", "context": "eoh",
    "generations": 8, "seed": 3, "es": {"population": 4, "sigma": 0.002},
}  # fmt: skip
INFO = {
    "task": {
        "title": "TSP, constructive", "direction": "minimize",
        "reference": ["optimum", 5.7047], "baseline": ["nearest_neighbour", 7.00437],
    },
    "versions": {"coevo": "0.1.0", "numpy": "2.4.6"}, "python": "3.11.7", "machine": "x86_64",
    "engine": {"selection": {"tensors": [{"name": "w", "shape": [3, 4]}, {"name": "b", "shape": [4]}]}},
    "describe": {"device": "cpu", "dtype": "bfloat16"},
}  # fmt: skip
CODE = "def select_next_node(current, destination, unvisited, distances):\n    return min(unvisited)\n"
EVIL = "</code></pre></title></style><script>alert(1)</script><img src=x onerror=alert(1)> {{ 7 * 7 }} & \"'"


class Files:
    """A task that shows its best answer as a file."""

    def __init__(self, code=CODE):
        self.code = code

    def best_files(self, rollout, header):
        return {"heuristic.py": f"# {header.splitlines()[0]}\n{self.code}"}


class Author:
    """Writes a run's journal batch after batch, as the loop does."""

    def __init__(self, path, config=None, info=INFO, code=CODE):
        self.folder = RunFolder.create(path, CONFIG | (config or {}))
        if info is not None:
            self.folder.write_info(info)
            self.folder.journal.append({"kind": "base", "format": 1, "digest": "a" * 64})
        self.store = RunStore(self.folder, Files(code))
        self.random, self.ledger, self.best, self.answer = random.Random(7), Ledger(), None, code

    def spend(self, calls):
        before = self.ledger
        self.ledger = Ledger(
            before.calls + calls, before.prompt_tokens + 250 * calls, before.completion_tokens + 90 * calls
        )

    def report(self, generation, batch, operator, objectives, failures, **changes):
        answers = len(objectives) + sum(failures.values())
        self.spend(answers)
        plain = BatchReport(
            generation, batch, operator, "search", True, 4, {**failures, "ok": len(objectives)}, tuple(objectives),
            self.best, {}, "", "b" * 64, answers, 250 * answers, 90 * answers, 12.5,
        )  # fmt: skip
        return replace(plain, **changes)

    def batch(self, generation, batch, operator, objectives, failures, metrics=None, zero="", moves=True):
        for value in objectives:
            if self.best is None or value < self.best.objective:
                self.best = Best(f"g{generation}-b{batch}-m0-c0-train-s0", generation, batch, -value, value)
                self.store.save_best(self.best, rollout(generation, batch, self.answer))
        report = self.report(
            generation, batch, operator, objectives, failures, metrics=metrics or {}, zero_update=zero,
            members=4 if metrics else 0,
        )  # fmt: skip
        asked = Batch((Context({"prompt": "say"}, operator),), operator=operator)
        buffer = Buffer(asked, (Perturbation(11, 0.002),), (rollout(generation, batch, self.answer),))
        update = SeedsUpdate(((11, 0.001),), metrics=metrics) if metrics and moves and not zero else None
        self.store.commit(report, buffer, update, {}, self.ledger)

    def probe(self, generation, objectives, failures):
        report = self.report(generation, 0, "probe", objectives, failures, purpose="probe", adapt=False, members=0)
        self.store.commit_probe(report, [*objectives, *[None] * sum(failures.values())], self.ledger)

    def finish(self, reason="generations", message="", **place):
        self.store.stop(reason, message, **place)
        return self.folder

    def draw(self, level, count, valid):
        """`count` answers around a level, of which a share is valid."""
        values = [level + abs(self.random.gauss(0.0, 0.8)) for _ in range(round(count * valid))]
        failed = count - len(values)
        return values, {"syntax": failed // 2, "exception": failed - failed // 2}


def rollout(generation, batch, answer):
    place = Provenance(generation, batch, 0, 0, 11, 0.002, 0, "abc", "train", 0, 5, "p")
    step = Step((), (1,), (2,), "stop", answer)
    return Rollout(place, "ok", -1.0, Trajectory((step,)), credit=0.5, artifacts={"answer": answer})


def rich_run(path, generations=8, operators=("e1", "e2", "m1"), code=CODE, **changes):
    """A run that has everything: several operators, ES, probes, a zero update; it learns."""
    author = Author(path, code=code, **changes)
    for g in range(generations):
        share = g / max(generations - 1, 1)
        author.probe(g, *author.draw(7.4 - 0.9 * share, 32, 0.55 + 0.3 * share))
        for b, operator in enumerate(operators):
            values, failures = author.draw(7.3 - 0.7 * share + 0.2 * b, 24, 0.4 + 0.1 * b + 0.3 * share)
            metrics = {
                "informative": 3.0 + (g % 2), "members_scored": 4.0, "credit_mean": 0.5, "credit_std": 0.1,
                "variance_ratio": 1.0 + 0.6 * author.random.random(), "moved": 0.85 - 0.3 * share,
                "sigma": 0.001 * (1 + math.cos(math.pi * share)), "alpha": 0.004, "cosine": 0.45 + 0.02 * b,
                "cosine_run": 0.5 + 0.4 * share,
            }  # fmt: skip
            zero = "all credits are equal" if (g, b) == (2, 1) else ""
            author.batch(g, b, operator, values, failures, metrics, zero)
    author.probe(generations, *author.draw(6.5, 32, 0.86))
    return author.finish()


class Reader(HTMLParser):
    """Tags in order with their attributes, and the text between."""

    def __init__(self):
        super().__init__()
        self.tags, self.text = [], ""

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def read(text):
    reader = Reader()
    reader.feed(text)
    reader.close()
    return reader

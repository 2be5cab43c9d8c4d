"""A run on disk, from Python: what `coevo show`, `replay` and `export` do, as calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from coevo.records import Json, Rollout
from coevo.runs.chunks import read_chunks
from coevo.runs.folder import RunFolder
from coevo.runs.rebuild import export_run, silent, verified
from coevo.runs.summary import summarize


@dataclass(frozen=True, slots=True)
class Run:
    """A run, finished or not, read from its folder: it runs no code of a plugin and changes nothing.

    Attributes:
        path: of the folder.
    """

    path: Path

    @property
    def name(self) -> str:
        """The run's name."""
        return self._folder.name

    @property
    def summary(self) -> dict[str, Json]:
        """What `coevo show --json` prints, as it is now.

        Raises:
            CheckFailedError: the folder is damaged.
        """
        return summarize(self._folder)

    @property
    def best(self) -> dict[str, Json] | None:
        """The best answer so far, as the summary has it: `objective`, `gap`, `path` and more; None before any is valid.

        Raises:
            CheckFailedError: the folder is damaged.
        """
        found: dict[str, Json] | None = self.summary["best"]
        return found

    def rollouts(self, probes: bool = False) -> Iterator[Rollout]:
        """Every rollout of the finished batches, in the order of the batches; a batch is read when it is come to.

        Args:
            probes: whether the answers to probes are among them.

        Raises:
            CheckFailedError: the folder is damaged.
        """
        history = self._folder.journal.history()
        for line in history.told:
            is_probe = line["kind"] == "probe"
            if probes or not is_probe:
                for chunk in read_chunks(self._folder.chunk_file(line["generation"], line["batch"], is_probe)):
                    yield from chunk

    @property
    def _folder(self) -> RunFolder:
        return RunFolder(self.path)


def load(run: str, runs: str = "runs") -> Run:
    """A run by its name or its path.

    Args:
        run: its name, or its folder.
        runs: the folder in which a name is looked for.

    Raises:
        UserError: there is none, with a did-you-mean.
        CheckFailedError: a link leads out of it.
    """
    return Run(RunFolder.find(str(run), str(runs)).path)


def replay(run: str, at: str = "last", runs: str = "runs") -> dict[str, Json]:
    """Rebuild the weights of a run from base and journal, and check every digest; returns what `--json` prints.

    Args:
        run: its name, or its folder.
        at: `last`, `best`, or a generation that is finished.
        runs: the folder in which a name is looked for.

    Raises:
        UserError: there is no such run or generation, or it has no weights.
        CheckFailedError: the first digest that differs; names the batch.
    """
    return verified(RunFolder.find(str(run), str(runs)), str(at), silent)


def export(
    run: str, out: str | Path, dtype: str | None = None, at: str = "last", runs: str = "runs"
) -> dict[str, Json]:
    """Write the weights of a run as a folder that transformers loads; returns what `coevo export --json` prints.

    Args:
        run: its name, or its folder.
        out: a folder that does not exist, or is empty.
        dtype: `bfloat16`, `float16` or `float32`; None keeps the checkpoint's own.
        at: `last`, `best`, or a generation that is finished.
        runs: the folder in which a name is looked for.

    Raises:
        UserError: there is no such run or generation, `out` is taken, or `dtype` is unknown.
        CheckFailedError: the rebuilt weights are not those of the journal.
    """
    return export_run(RunFolder.find(str(run), str(runs)), Path(out), dtype, str(at))

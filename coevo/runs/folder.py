"""`runs/<name>/`: where everything of a run is, and everything shown anywhere comes from.

`config.toml` (resolved), `run.json` (what it ran with), `journal.jsonl`, `asked.jsonl`, `rollouts/`, `contexts/`,
`best/`, `anchors/`. One process at a time holds the lock; the lock goes with the process, however it dies.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shlex
import shutil
import stat
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from coevo.errors import CheckFailedError, UserError, did_you_mean
from coevo.files import LEFTOVERS, open_own, read_own, read_toml, why_not, write_atomic
from coevo.host.config import check_own, to_toml
from coevo.loop.services import Unbooked, place_of
from coevo.records import Json
from coevo.runs.asked import SUFFIX, unbooked
from coevo.runs.codec import dumps
from coevo.runs.forms import BEST, CONFIG, INFO, check, loads
from coevo.runs.journal import History, Journal

if TYPE_CHECKING:
    from pydantic import TypeAdapter

PARTS = ("rollouts", "contexts", "best")
"""Folders of a run, there before its configuration."""
ASKED = "asked.jsonl"


class RunFolder:
    """A run on disk.

    Usage::

        folder = RunFolder.create(Path("runs"), "a", config)
        with folder.lock():
            ...
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal = Journal(path / "journal.jsonl")

    @property
    def name(self) -> str:
        """The folder's name, also of `.` and `..`."""
        return self.path.name if self.path.name not in ("", "..") else self.path.resolve().name

    @property
    def address(self) -> str:
        """What to type after `coevo show`: the name where that is enough, else the path."""
        return shlex.quote(self.name if self.path.parent == Path("runs") else str(self.path))

    @classmethod
    def create(cls, path: Path, config: Mapping[str, Json]) -> RunFolder:
        """Make the folder of a new run.

        Raises:
            UserError: it exists, or cannot be made there.
        """
        check_free(path)
        try:
            path.mkdir(parents=True)
        except OSError as error:
            raise UserError(
                f"cannot make the run's folder {str(path)!r}: {error.strerror}; choose another with --runs"
            ) from None
        try:
            for part in PARTS:
                (path / part).mkdir()
            write_atomic(path / "config.toml", to_toml(config))
        except OSError as error:
            shutil.rmtree(path, ignore_errors=True)
            raise UserError(f"cannot write in the run's folder {str(path)!r}: {error.strerror}") from None
        return cls(path)

    @classmethod
    def find(cls, run: str, runs: str = "runs") -> RunFolder:
        """A run by name (below `runs`) or by path.

        Raises:
            UserError: there is none, with a did-you-mean.
            CheckFailedError: a link leads out of it.
        """
        for path in (Path(runs) / run, Path(run)):
            if _is_run(path):
                check_unlinked(path)
                return cls(path)
        if os.path.exists(run) and not os.path.isfile(os.path.join(run, "study.json")):
            raise UserError(f"{run!r} is no run: a run is a folder with a config.toml and a journal.jsonl, or its name")
        for study in (Path(runs) / run, Path(run)):
            if os.path.isfile(study / "study.json"):
                made = min(study.glob("**/config.toml"), default=None)
                such = f", such as {shlex.quote(str(made.parent))}" if made else ", of which there are none yet"
                raise UserError(f"{run!r} is a study and no run; name one of its runs{such}")
        known = _names(runs)
        hint = did_you_mean(run, known) or "; there are none yet, start one with: coevo run"
        raise UserError(f"no run named {run!r} in {runs!r}{hint}")

    def config(self) -> dict[str, Json]:
        """The resolved configuration.

        Raises:
            CheckFailedError: it is damaged: no run wrote it so.
        """
        path = self.path / "config.toml"
        try:
            data = read_toml(path)
            check(data, CONFIG, repr(str(path)))
            check_own(data)
        except UserError as error:
            said = str(error)
            raise CheckFailedError(
                f"{said if str(path) in said else f'{str(path)!r}: {said}'}; the run's folder is damaged"
            ) from None
        return data

    def best(self) -> dict[str, Json]:
        """`best/best.json`; empty before anything valid was found, and where it is damaged: the journal says it too."""
        try:
            return read_object(self.path / "best" / "best.json", BEST)
        except CheckFailedError:
            return {}

    def info(self) -> dict[str, Json]:
        """`run.json`; empty before the engine was ready.

        Raises:
            CheckFailedError: it is damaged.
        """
        return read_object(self.path / "run.json", INFO)

    def write_info(self, info: Mapping[str, Json]) -> None:
        """Write `run.json`."""
        write_atomic(self.path / "run.json", dumps(info, indent=1) + "\n")

    @contextmanager
    def lock(self) -> Generator[None]:
        """Hold the run for this process.

        Raises:
            UserError: another process has it.
            CheckFailedError: a link leads out of it.
        """
        check_unlinked(self.path)
        try:
            file = open_own(self.path / "lock", "a+b", 0)
        except OSError as error:
            raise UserError(f"cannot write in the run's folder {str(self.path)!r}: {error.strerror}") from None
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                raise UserError(
                    f"run {self.name!r} is going in process {file.read(20).decode(errors='replace').strip()}; "
                    f"watch it with: coevo show {self.address}"
                ) from None
            file.truncate(0)
            file.write(str(os.getpid()).encode())
            yield

    def is_locked(self) -> bool:
        """Whether a process holds the run now."""
        try:
            with open_own(self.path / "lock", "rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False  # no lock that a process of coevo could hold
        return False

    def has_rollouts(self) -> bool:
        """Whether anything was answered: an empty file holds a place only."""
        return any(path.stat().st_size > 0 for path in (self.path / "rollouts").glob("*"))

    def chunk_file(self, generation: int, batch: int, probe: bool = False) -> Path:
        """Where the rollouts of a batch, or of the probe before it, are."""
        return self.path / "rollouts" / f"{place_of(generation, batch, probe)}{SUFFIX}"

    def unbooked(self, history: History) -> Unbooked:
        """What the run has asked besides what the journal counts.

        Raises:
            CheckFailedError: `asked.jsonl` was changed.
        """
        committed = {place_of(line["generation"], line["batch"], line["kind"] == "probe") for line in history.told}
        return unbooked(self.path / ASKED, self.path / "rollouts", committed)


def _is_run(path: Path) -> bool:
    try:
        return stat.S_ISREG((path / "config.toml").stat().st_mode)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
            return False
        raise UserError(f"run {str(path)!r} cannot be read: {error.strerror}") from None


def _names(runs: str) -> list[str]:
    """The names of the runs in a folder, none where there is no such folder."""
    try:
        return sorted(name for name in os.listdir(runs) if os.path.isfile(os.path.join(runs, name, "config.toml")))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(
            f"--runs got {runs!r}, which cannot be read: {error.strerror}; expected the folder of the runs"
        ) from None


def read_object(path: Path, form: TypeAdapter[Any]) -> dict[str, Json]:
    """A JSON object of a run's folder, empty where there is no such file.

    Raises:
        CheckFailedError: it is none, or does not look like `form`; names the key.
    """
    data = read_own(path)
    if not data and not os.path.lexists(path):
        return {}
    try:
        value = loads(data)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise CheckFailedError(f"{str(path)!r} holds no JSON object; the run's folder is damaged")
    check(value, form, repr(str(path)))
    return cast(dict[str, Json], value)


def check_unlinked(path: Path) -> None:
    """Refuse a run in which a name that coevo reads and writes is a link; the folder itself may be one.

    Raises:
        CheckFailedError: which.
    """
    for name in (*PARTS, "anchors", "config.toml", "run.json", "journal.jsonl", ASKED, "lock"):
        if os.path.islink(path / name):
            raise CheckFailedError(
                f"{str(path / name)!r} is a symbolic link, which may lead anywhere; put what it names in its place to "
                "use this run"
            )


def clear_stillborn(path: Path) -> None:
    """Remove a run's folder in which a kill left nothing, not even a configuration; never one that holds anything."""
    if not os.path.isdir(path) or os.path.islink(path) or os.path.lexists(path / "config.toml"):
        return
    with suppress(OSError):
        for unfinished in path.glob(LEFTOVERS):
            unfinished.unlink()
        for part in PARTS:
            with suppress(FileNotFoundError):
                (path / part).rmdir()
        path.rmdir()


def check_free(path: Path) -> None:
    """Refuse a name that is taken or a place where nothing can be made.

    Raises:
        UserError: which, and how to go on.
    """
    clear_stillborn(path)
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise UserError(
            f"cannot make the run's folder {str(path)!r}: {error.strerror}; choose another with --name or --runs"
        ) from None
    else:
        if not (path / "config.toml").is_file():
            raise UserError(f"{str(path)!r} exists and is no run; choose another with --name or --runs")
        raise UserError(
            f"run {path.name!r} exists in {str(path.parent)!r}; "
            f"go on with: coevo resume {RunFolder(path).address}, or take another --name"
        )
    if reason := why_not(path):
        raise UserError(f"cannot make the run's folder {str(path)!r}: {reason}; choose another with --name or --runs")

"""Linux namespaces around the zygote and around each candidate.

The zygote gets a process namespace, in which the death of the zygote kills everything, and a file system
that holds the interpreter, its packages and the problem, read-only, but no home, no runs and no keys. Each
candidate gets a process namespace of its own inside that one, an empty network and a private folder.
Without root the same is tried in a user namespace. What the system refuses is left out and reported.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from coevo.sandbox import linux

SCRATCH = "/scratch"
_PACKAGES = ("site-packages", "dist-packages")
_SYSTEM = (
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/bin",
    "/usr/local/lib",
    "/usr/local/bin",
    "/usr/share/zoneinfo",
    "/lib",
    "/lib64",
    "/bin",
    "/nix/store",
    "/etc/ld.so.cache",
    "/etc/localtime",
)
_DEVICES = ("/dev/null", "/dev/random", "/dev/urandom")
_LOCKED = {
    os.ST_NOSUID: linux.MS_NOSUID,
    getattr(os, "ST_NODEV", 4): linux.MS_NODEV,
    getattr(os, "ST_NOEXEC", 8): linux.MS_NOEXEC,
    getattr(os, "ST_NOATIME", 1024): linux.MS_NOATIME,
    getattr(os, "ST_NODIRATIME", 2048): linux.MS_NODIRATIME,
    getattr(os, "ST_RELATIME", 4096): linux.MS_RELATIME,
}


def enter_processes() -> bool:
    """Make the next child the first process of a new namespace; False where that is not permitted."""
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        with contextlib.suppress(OSError):
            linux.unshare(linux.CLONE_NEWPID)
            return True
        return False
    with contextlib.suppress(OSError):
        linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWPID)
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            Path("/proc/self", name).write_text(text, encoding="ascii")
        return True
    return False


def enter_mounts() -> bool:
    """Give this process mounts of its own, which nobody else sees; False where that is not permitted."""
    with contextlib.suppress(OSError):
        linux.unshare(linux.CLONE_NEWNS)
        linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)
        return True
    return False


def open_processes(fresh: bool) -> int | None:
    """A descriptor of /proc, None where there is none; `fresh` mounts one for this process's namespace."""
    with contextlib.suppress(OSError):
        if fresh:
            # A user namespace inside a container may not do this; trees are not measured then.
            linux.mount("proc", "/proc", "proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)
        return os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    return None


def close_ipc(proc: int) -> bool:
    """Leave the system's shared memory and allow none here: it would outlive candidates and their limits."""
    with contextlib.suppress(OSError):
        linux.unshare(linux.CLONE_NEWIPC | linux.CLONE_NEWUTS)
        for name, text in (("shmmni", "0"), ("shmall", "0"), ("msgmni", "0"), ("sem", "0 0 0 0")):
            fd = os.open(f"sys/kernel/{name}", os.O_WRONLY, dir_fd=proc)
            try:
                os.write(fd, text.encode())
            finally:
                os.close(fd)
        return True
    return False


def _interpreter() -> list[str]:
    """What the interpreter consists of; a project may lie beside it, as in /usr/src."""
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix}
    return [os.path.join(prefix, part) for prefix in prefixes for part in ("bin", "lib", "lib64", "pyvenv.cfg")]


def packages() -> list[str]:
    """Where modules are installed, of `sys.path`; not a working folder, a checkout or another folder of the user."""
    library = sysconfig.get_paths()
    known = {os.path.realpath(library[name]) for name in ("stdlib", "platstdlib")}
    inside = [path for path in sys.path if os.path.isabs(path)]
    return [
        path
        for path in inside
        if os.path.basename(path) in _PACKAGES or any(os.path.realpath(path).startswith(root) for root in known)
    ]


def close_files(readable: Iterable[str], hidden: Iterable[str] = ()) -> bool:
    """Leave nothing in sight but the interpreter, the system's libraries and `readable`, all read-only.

    For a process with mounts of its own only: it mounts over /proc.

    Args:
        readable: files and folders.
        hidden: folders in them that shall be empty.
    """
    try:
        # Any folder does as the place to build at; this one is never among what is shown.
        base = "/proc"
        linux.mount("tmpfs", base, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "size=1m,mode=755")
        os.mkdir(base + SCRATCH)
        shown = _outermost([*_SYSTEM, *_interpreter(), *readable])
        for path in shown:
            _show(path, base, linux.MS_NODEV)
        for path in _DEVICES:
            _show(path, base, 0)
        for path in hidden:
            _hide(base + os.path.realpath(path))
        os.chdir(base)
        linux.pivot_root_here()
        linux.mount(None, "/", None, linux.MS_REMOUNT | linux.MS_BIND | linux.MS_RDONLY | linux.MS_NOSUID)
    except OSError:
        return False
    return True


def own_packages() -> list[str]:
    """Folders of coevo's packages where modules are installed: problems lie in them, with their instances."""
    return [str(path) for folder in packages() for path in Path(folder).glob("coevo*") if path.is_dir()]


def _hide(path: str) -> None:
    if os.path.isdir(path):
        flags = linux.MS_RDONLY | linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
        linux.mount("tmpfs", path, "tmpfs", flags, "size=4k,mode=755")


def _outermost(paths: Iterable[str]) -> list[str]:
    wanted = {os.path.normpath(path) for path in paths if os.path.exists(path)}
    wanted |= {os.path.realpath(path) for path in wanted}
    if "/" in wanted:
        raise OSError("the whole file system would be shown")
    kept: list[str] = []
    for path in sorted(wanted):
        if not any(path.startswith(f"{outer}/") for outer in kept):
            kept.append(path)
    return kept


def _show(path: str, base: str, flags: int) -> None:
    target = base + path
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(path):
        os.symlink(os.readlink(path), target)
        return
    if os.path.isdir(path):
        os.mkdir(target)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    flags |= linux.MS_RDONLY | linux.MS_NOSUID
    try:
        linux.mount(path, target, None, linux.MS_BIND | linux.MS_REC)
        linux.mount_setattr_below(target, flags)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EINVAL, errno.EPERM):
            raise
        # An old kernel: what is mounted below cannot be made read-only at once, so it is not shown.
        linux.detach(target)
        linux.mount(path, target, None, linux.MS_BIND)
        # In a user namespace the options that the mount came with must be repeated.
        present = os.statvfs(target).f_flag
        locked = sum(option for bit, option in _LOCKED.items() if present & bit)
        linux.mount(None, target, None, linux.MS_REMOUNT | linux.MS_BIND | flags | locked)


def mount_scratch(megabytes: int, user: int) -> None:
    """Mount an empty folder of at most `megabytes` at `SCRATCH` for `user`; it goes with the process."""
    linux.unshare(linux.CLONE_NEWNS)
    options = f"size={megabytes}m,nr_inodes=4096,mode=700,uid={user},gid={user}"
    linux.mount("tmpfs", SCRATCH, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, options)

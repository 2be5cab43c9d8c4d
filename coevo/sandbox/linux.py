"""The Linux system calls that Python 3.11 has no function for, and nothing else.

Each raises `OSError` with the kernel's errno. Off Linux every call raises `ENOSYS`, so that a caller handles
"not permitted here" and "does not exist here" alike.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

CLONE_NEWNS = 0x0002_0000
CLONE_NEWUTS = 0x0400_0000
CLONE_NEWIPC = 0x0800_0000
CLONE_NEWUSER = 0x1000_0000
CLONE_NEWPID = 0x2000_0000
CLONE_NEWNET = 0x4000_0000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_NOATIME = 1024
MS_NODIRATIME = 2048
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MS_RELATIME = 1 << 21
MNT_DETACH = 2

_PR_SET_PDEATHSIG = 1
_PR_SET_SECCOMP = 22
_FILTER = 2
_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_CHILD_SUBREAPER = 36
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "riscv64": 41, "ppc64le": 203, "s390x": 217}

_libc: ctypes.CDLL | None = None
if sys.platform == "linux":
    _libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: object) -> None:
    if _libc is None:
        raise OSError(errno.ENOSYS, f"{name} exists on Linux only")
    if getattr(_libc, name)(*arguments) < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


def unshare(flags: int) -> None:
    """Give this process new namespaces; a new PID namespace starts with its next child."""
    _call("unshare", ctypes.c_int(flags))


def setns(fd: int, flags: int) -> None:
    """Join the namespace that `fd` stands for."""
    _call("setns", ctypes.c_int(fd), ctypes.c_int(flags))


def mount(source: str | None, target: str, kind: str | None, flags: int = 0, data: str = "") -> None:
    """Put a file system or a folder in the tree; the arguments are those of the system call."""
    _call(
        "mount",
        None if source is None else os.fsencode(source),
        os.fsencode(target),
        None if kind is None else kind.encode(),
        ctypes.c_ulong(flags),
        data.encode() or None,
    )


def mount_setattr_below(target: str, flags: int) -> None:
    """Put options in force for a mount and for all that is mounted below it: mount_setattr(2), since Linux 5.12.

    Args:
        target: a mount.
        flags: of `MS_RDONLY`, `MS_NOSUID`, `MS_NODEV` and `MS_NOEXEC`, which have the same numbers there.
    """
    attributes = struct.pack("=QQQQ", flags, 0, 0, 0)
    path, size = os.fsencode(target), ctypes.c_size_t(len(attributes))
    at, recursive = ctypes.c_int(-100), ctypes.c_uint(0x8000)
    _call("syscall", ctypes.c_long(442), at, path, recursive, attributes, size)


def detach(target: str) -> None:
    """Take the mount at `target` out of the tree; what is open on it stays usable."""
    _call("umount2", os.fsencode(target), ctypes.c_int(MNT_DETACH))


def pivot_root_here() -> None:
    """Make the working folder, a mount point, the root of this mount namespace and drop the old root."""
    number = _PIVOT_ROOT.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, f"pivot_root: unknown machine {platform.machine()!r}")
    # Stacking the old root on the new one saves a folder to put it in: pivot_root(2), NOTES.
    _call("syscall", ctypes.c_long(number), b".", b".")
    detach(".")
    os.chdir("/")


def _prctl(option: int, value: int, further: int = 0) -> None:
    zero = ctypes.c_ulong(0)
    _call("prctl", ctypes.c_int(option), ctypes.c_ulong(value), ctypes.c_ulong(further), zero, zero)


def die_with_parent(signal: int) -> None:
    """Get `signal` when the thread that forked this process ends; a change of user forgets it."""
    _prctl(_PR_SET_PDEATHSIG, signal)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def forbid_new_privileges() -> None:
    """Let no set-uid program give this process or its children more rights."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def system_call(number: int, *arguments: int) -> None:
    """Make a system call that the C library has no function for, with numbers as arguments."""
    _call("syscall", ctypes.c_long(number), *map(ctypes.c_ulong, arguments))


def install_filter(address: int, steps: int) -> None:
    """Filter the system calls of this process by a program of so many steps: seccomp(2)."""
    program = struct.pack("@HxxxxxxP" if struct.calcsize("P") == 8 else "@HxxP", steps, address)
    buffer = ctypes.create_string_buffer(program, len(program))
    _prctl(_PR_SET_SECCOMP, _FILTER, ctypes.addressof(buffer))


def set_capabilities(header: bytes, sets: bytes) -> None:
    """Set what this process may do beyond others: capset(2)."""
    _call("capset", header, sets)

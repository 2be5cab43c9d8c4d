"""Keeps system calls from a candidate that no heuristic needs: seccomp(2), a keyring of its own, no capabilities.

The filter names what is refused, so that whatever Python and numpy need works: what reaches other processes or the
kernel's own programs, keys that outlive a candidate, memory that no limit counts, mounts and namespaces, and sockets
altogether. A call of another architecture ends the process.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct

from coevo.sandbox import linux

_ALLOW, _REFUSE, _KILL = 0x7FFF_0000, 0x0005_0000, 0x8000_0000
_LOAD, _AND, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _FOURTH_ARGUMENT = 0, 4, 16, 40
_X32 = 0x4000_0000
_NEW_NAMESPACES = 0x7E02_0080
_SHARED_ANONYMOUS = 0x21
_JOIN_SESSION_KEYRING = 1
_CAPABILITIES = 0x2008_0522

# By architecture: what it is called in a filter, and the numbers of clone, mmap and keyctl.
_MACHINES = {"x86_64": (0xC000_003E, 56, 9, 250), "aarch64": (0xC000_00B7, 220, 222, 219)}
# Numbers for x86_64 and aarch64.
_REFUSED: dict[str, tuple[int, int]] = {
    # Keys, which stay when a candidate has ended.
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    # Memory that no limit counts.
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "msgget": (68, 186),
    "semget": (64, 190), "mq_open": (240, 180), "userfaultfd": (323, 282),
    # Other processes, on this machine and elsewhere; pairs of sockets are left.
    "socket": (41, 198),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "pidfd_getfd": (438, 438), "kcmp": (312, 272),
    # Namespaces and mounts.
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    # Large parts of the kernel that have had many faults.
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "bpf": (321, 280),
    "perf_event_open": (298, 241), "fanotify_init": (300, 262), "vmsplice": (278, 75),
    # The machine itself.
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "swapon": (167, 224), "swapoff": (168, 225), "reboot": (169, 142), "acct": (163, 89),
    "quotactl": (179, 60), "quotactl_fd": (443, 443), "syslog": (103, 116), "personality": (135, 92),
}  # fmt: skip
_CLONE3 = 435


def _machine() -> tuple[int, int, int, int]:
    found = _MACHINES.get(platform.machine())
    if found is None:
        raise OSError(errno.ENOSYS, f"no filter for machine {platform.machine()!r}")
    return found


def program() -> bytes:
    """The filter for this machine, as the kernel reads it.

    Raises:
        OSError: `ENOSYS`, nobody has written one for this machine.
    """
    architecture, clone, mmap, _ = _machine()
    place = list(_MACHINES).index(platform.machine())

    def unless(test: int, value: int, action: int) -> list[tuple[int, int, int, int]]:
        return [(test, 0, 1, value), (_RETURN, 0, 0, action)]

    steps = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _KILL)]
    steps += [(_LOAD, 0, 0, _NUMBER), *unless(_AT_LEAST, _X32, _REFUSE | errno.ENOSYS)]
    for numbers in _REFUSED.values():
        steps += unless(_EQUAL, numbers[place], _REFUSE | errno.EPERM)
    # Its flags lie in memory, where a filter cannot look; without it the C library takes clone.
    steps += unless(_EQUAL, _CLONE3, _REFUSE | errno.ENOSYS)
    steps += [(_EQUAL, 0, 3, clone), (_LOAD, 0, 0, _FIRST_ARGUMENT)]
    steps += [(_ANY_BIT, 6, 0, _NEW_NAMESPACES), (_RETURN, 0, 0, _ALLOW)]
    # Memory that is shared and of no file: what of it is not resident at the moment nobody counts.
    steps += [(_EQUAL, 0, 3, mmap), (_LOAD, 0, 0, _FOURTH_ARGUMENT), (_AND, 0, 0, _SHARED_ANONYMOUS)]
    steps += [(_EQUAL, 1, 0, _SHARED_ANONYMOUS), (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE | errno.EPERM)]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def filter_calls() -> None:
    """Put the filter in force for this process and its children, for good.

    Raises:
        OSError: the kernel has no filters, or there is none for this machine.
    """
    steps = ctypes.create_string_buffer(program(), len(program()))
    linux.forbid_new_privileges()
    linux.install_filter(ctypes.addressof(steps), len(steps) // 8)


def leave_keyring() -> None:
    """Get a session keyring that is empty and nobody else's.

    Raises:
        OSError: the kernel has none, or its number is unknown for this machine.
    """
    linux.system_call(_machine()[3], _JOIN_SESSION_KEYRING, 0)


def drop_capabilities() -> None:
    """Give up every capability, also those that a namespace of users has given.

    Raises:
        OSError: the kernel does not permit it.
    """
    linux.set_capabilities(struct.pack("=II", _CAPABILITIES, 0), bytes(24))

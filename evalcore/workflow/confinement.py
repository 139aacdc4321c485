"""A process that sees its own folder and Python, and nothing else of the machine (Linux).

A program, started as `python -I confinement.py FOLDER [READABLE …]`: it confines itself by Landlock
(files) and seccomp (sockets, attributes of files), and then becomes a worker process. Both hold for
what it starts, need no privilege and cannot be undone. It imports only the standard library.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import platform
import struct
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 38, 22, 2
# Landlock's calls have the same numbers on all architectures.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG, _BENEATH = 1, 1
_SCOPES, _WITH_SCOPES = 0b11, 6  # abstract sockets and signals, from version 6 on
# execute, write, read, list; then remove and make; refer (2), truncate (3), ioctl (5).
_EXECUTE, _WRITE, _READ, _LIST = 1, 2, 4, 8
_RIGHTS: Final = {1: 0x1FFF, 2: 0x3FFF, 3: 0x7FFF, 4: 0x7FFF, 5: 0xFFFF}
_OF_FILES: Final = _EXECUTE | _WRITE | _READ | 1 << 14 | 1 << 15
_NO_DEVICES: Final = 0xFFFF & ~(1 << 6 | 1 << 11)
# What Landlock leaves open, by architecture: its audit number, then the calls that are refused.
# socket, truncate, chmod (f, at, at2), chown (f, l, at), utime (s, at), setxattr and removexattr
# (l, f), open_by_handle_at, io_uring_setup.
_REFUSED: Final = {
    "x86_64": (
        0xC000003E,
        (
            *(41, 76, 90, 91, 268, 452, 92, 93, 94, 260, 132, 235, 261, 280),
            *(188, 189, 190, 197, 198, 199, 304, 425),
        ),
    ),
    "aarch64": (0xC00000B7, (198, 45, 52, 53, 452, 54, 55, 88, 5, 6, 7, 14, 15, 16, 265, 425)),
}
# kill, tkill, tgkill, rt_sigqueueinfo, pidfd_send_signal: where Landlock has no scope for signals.
_SIGNALS: Final = {"x86_64": [62, 200, 234, 129, 424], "aarch64": [129, 130, 131, 138, 424]}
_X32: Final = 0x40000000
_READABLE: Final = (
    *("/lib", "/lib64", "/lib32", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/libexec"),
    *("/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/share/zoneinfo"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime"),
    *("/etc/mime.types", "/etc/nsswitch.conf", "/etc/passwd", "/etc/group", "/etc/os-release"),
    *("/etc/alternatives", "/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system/cpu"),
)
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")


@lru_cache(maxsize=1)
def can_confine() -> bool:
    """Whether this system offers what `confine` needs."""
    if sys.platform != "linux" or platform.machine() not in _REFUSED or sys.maxsize < 2**32:
        return False
    # Of a filter that is none, a kernel with seccomp says that the address is bad (EFAULT).
    libc = ctypes.CDLL(None, use_errno=True)
    filters = libc.prctl(_SET_SECCOMP, _FILTER, 0, 0, 0) == -1 and ctypes.get_errno() == 14
    return filters and _version() > 0


def confine(folder: Path, readable: Iterable[str] = ()) -> None:
    """Leave to this process `folder`, and reading Python, libraries and `readable`; no sockets.

    Raise `OSError` if the system refuses.
    """
    version = _version()
    rights = _RIGHTS[min(version, max(_RIGHTS))]
    ruleset = struct.pack("=QQQ", rights, 0, _SCOPES if version >= _WITH_SCOPES else 0)
    size = 24 if version >= _WITH_SCOPES else 8
    rules = _call(_CREATE_RULESET, ruleset, size, 0)
    for path in (*_READABLE, *_paths_of_python(), *readable):
        _allow(rules, path, (_EXECUTE | _READ | _LIST) & rights)
    for path in _DEVICES:
        _allow(rules, path, (_READ | _WRITE) & rights)
    _allow(rules, str(folder), rights & _NO_DEVICES)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs")
    _call(_RESTRICT_SELF, rules, 0)
    os.close(rules)
    signals = [] if version >= _WITH_SCOPES else _SIGNALS[platform.machine()]
    _refuse_calls(libc, signals)


def _paths_of_python() -> Iterator[str]:
    """Yield where Python and its packages are, and not the folder above: it may be a project's."""
    yield from sysconfig.get_paths().values()
    for prefix in {sys.base_prefix, sys.prefix}:
        yield from (f"{prefix}/{name}" for name in ("bin", "lib", "lib64"))


def _version() -> int:
    """Return the version of Landlock; 0 or less without it."""
    libc = ctypes.CDLL(None)
    return int(libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION_FLAG))


def _call(number: int, *arguments: object) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    result = int(libc.syscall(number, *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), f"Landlock: {os.strerror(ctypes.get_errno())}")
    return result


def _allow(rules: int, path: str, rights: int) -> None:
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # this machine has none
    try:
        allowed = rights if Path(path).is_dir() else rights & _OF_FILES
        _call(_ADD_RULE, rules, _BENEATH, struct.pack("=Qi", allowed, opened), 0)
    finally:
        os.close(opened)


def _refuse_calls(libc: ctypes.CDLL, further: Iterable[int]) -> None:
    """Have the kernel answer EPERM to system calls; other architectures' calls end the process."""
    architecture, refused = _REFUSED[platform.machine()]
    calls = [*refused, *further]
    load, equal, at_least, give = 0x20, 0x15, 0x35, 0x06
    # (code, jump if true, jump if false, value): a program of the classic BPF.
    program = [
        (load, 0, 0, 4),
        (equal, 1, 0, architecture),
        (give, 0, 0, 0x80000000),
        (load, 0, 0, 0),
        (at_least, len(calls) + 1, 0, _X32),
        *((equal, len(calls) - index, 0, call) for index, call in enumerate(calls)),
        (give, 0, 0, 0x7FFF0000),
        (give, 0, 0, 0x00050000 | 1),
    ]
    code = b"".join(struct.pack("=HBBI", *step) for step in program)
    buffer = ctypes.create_string_buffer(code)
    header = struct.pack("@HP", len(program), ctypes.addressof(buffer))
    if libc.prctl(_SET_SECCOMP, _FILTER, header, 0, 0):
        raise OSError(ctypes.get_errno(), f"seccomp: {os.strerror(ctypes.get_errno())}")


def main() -> None:
    """Confine this process and run a worker in it."""
    folder, *readable = sys.argv[1:]
    confine(Path(folder), readable)
    importlib.import_module("evalcore.isolation.worker").main()


if __name__ == "__main__":
    main()

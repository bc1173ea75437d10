"""Processes with limits of memory and time, which read what an outsider has written: model files, templates, records.

One process, the starter, has imported everything and has read nothing of an outsider. It forks each of the others in
milliseconds. They get no environment of this process, which may hold tokens, and they end with this process.
"""

import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import CancelledError
from pathlib import Path
from typing import NamedTuple

from ..failures import Failure
from .frames import Frame, read_frame, write_frame

# The slowest honest step is a record of 8 MiB with a token for each byte and the characters of each token: 8 s of CPU
# time and 1.9 GiB beside a tokenizer. The largest tokenizer.json that is read, 256 MiB, takes 2.6 GiB.
CPU_S = 60.0
MEMORY_BYTES = min(6 << 30, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)
_WALL_S = 1200.0  # of one answer, which has many steps; the machine may be busy
_PACKAGES = Path(__file__).parents[2]
_lock = threading.Lock()
_starter: "_Starter | None" = None


class _Starter(NamedTuple):
    control: socket.socket
    process: subprocess.Popen


class LimitedProcess:
    """A process that answers requests within limits, one after another. It starts with the first request, and any
    thread may use it."""

    def __init__(self, target: str, facts: dict):
        """target: "module:function" of this package. The function gets `facts`, and returns the function that answers
        requests."""
        if "folder" in facts:  # the process has another working directory
            facts = facts | {"folder": os.path.abspath(facts["folder"])}
        self._opening = {"target": target, "facts": facts}
        self._asking = threading.Lock()
        self._socket: socket.socket | None = None
        self._is_open = True

    def ask(self, request: Frame) -> Frame:
        """The answer. A process that another cause than a limit ended is replaced once.

        Raises the Failure of the process, or that of the step that exceeded a limit; CancelledError after `close`.
        """
        with self._asking:
            for _ in range(2):
                try:
                    answer = self._exchange(request)
                except (OSError, ValueError):  # it ended, or `close` closed the socket
                    answer = None
                if answer is not None and "kind" not in answer.facts:
                    return answer
                if answer is None or answer.facts["has_ended"]:
                    self._end()
                if answer is not None:
                    raise Failure(answer.facts["kind"], answer.facts["reason"])
                if not self._is_open:
                    raise CancelledError
            raise Failure(
                "infrastructure",
                f"Failed to read files of a model or lines of a stream: the process of {self._opening['target']} ended "
                "twice for another cause than its limits; take a machine with more memory",
            )

    def close(self) -> None:
        """Ends the process, also while it works."""
        self._is_open = False
        self._end()

    def _exchange(self, request: Frame) -> Frame | None:
        own = self._socket
        if own is None:
            own = _start(self._opening | {"cpu_s": CPU_S, "memory_bytes": MEMORY_BYTES})
            own.settimeout(_WALL_S)
            self._socket = own
            if not self._is_open:
                return None
        with own.makefile("rwb") as file:
            write_frame(file, request)
            return read_frame(file)

    def _end(self) -> None:
        own, self._socket = self._socket, None
        if own:
            try:
                own.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for an answer
            except OSError:
                pass
            own.close()


def call(target: str, facts: dict) -> dict:
    """What the function `target` makes of `facts`, in a process of its own. Raises Failure as LimitedProcess.ask."""
    process = LimitedProcess(target, facts)
    try:
        return process.ask(Frame({})).facts
    finally:
        process.close()


def _start(opening: dict) -> socket.socket:
    """The connection to a new process, which has received `opening`."""
    global _starter
    own, other = socket.socketpair()
    with other, _lock:
        for _ in range(2):
            _starter = _starter or _start_starter()
            try:
                socket.send_fds(_starter.control, [b"."], [other.fileno()])
                break
            except OSError:
                _starter.control.close()
                _starter.process.wait()
                _starter = None
    with own.makefile("wb") as file:
        write_frame(file, Frame(opening))
    return own


def _start_starter() -> _Starter:
    own, other = socket.socketpair()
    # A fixed seed makes hashes reproducible. No library has threads: there are processes for the cores.
    env = {"PYTHONHASHSEED": "0", "LANG": "C.UTF-8", "OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    bytecode = {
        "PYTHONPYCACHEPREFIX": sys.pycache_prefix or "",
        "PYTHONDONTWRITEBYTECODE": "1" if sys.dont_write_bytecode else "",
    }
    with other:
        process = subprocess.Popen(
            [sys.executable, "-s", "-P", "-m", "gleaner_worker.limited"],
            stdin=other.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=env | bytecode | {"PYTHONPATH": str(_PACKAGES)},
            cwd="/",
            start_new_session=True,
        )
    return _Starter(own, process)

"""The starter of processes with limits: `python -m gleaner_worker.limited`, started by process.py.

For each socket that it receives, it forks a keeper. The keeper forks the process that does the work, and waits: when a
limit ends the work, it sends the reason, and when the other side has gone, it ends the work. The other side sends

    {target, facts, cpu_s, memory_bytes}    first, without an answer
    {...}                                   a request; the answer is the target's
                                            or {kind, reason, has_ended}, a Failure
"""

import gc
import importlib
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Callable
from mmap import mmap

from ..failures import Failure, raise_exits
from . import step
from .frames import Frame, read_frame, write_frame

_IMPORTED = ("gleaner_worker.records.samples.tokenize_main", "gleaner_worker.model.read_files")
_ABORTS = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS)  # native code ends so where memory or a stack is exhausted
Answer = Callable[[Frame], Frame]


def main() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):  # the work ends with the other side
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for name in _IMPORTED:
        importlib.import_module(name).warm_up()
    gc.freeze()
    control = socket.socket(fileno=os.dup(0))
    os.dup2(1, 0)
    while fds := socket.recv_fds(control, 1, 1)[1]:
        if os.fork() == 0:
            control.close()
            _keep(socket.socket(fileno=fds[0]))
            os._exit(0)
        os.close(fds[0])


def _keep(other: socket.socket) -> None:
    """Starts the process of `other`, and waits for the end of both."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    memory = step.shared_memory()
    alive, held = os.pipe()  # `alive` ends with the process that holds `held`
    if (pid := os.fork()) == 0:
        os.close(alive)
        _serve(other, memory)
        os._exit(0)
    os.close(held)
    waits = select.poll()
    waits.register(alive, select.POLLIN)
    waits.register(other, 0)  # for its end alone
    if any(fd == other.fileno() for fd, _ in waits.poll()):
        os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with other.makefile("wb") as file:
        if -status == signal.SIGPROF:
            write_frame(file, _exceeded(memory, "it takes more CPU time than the limit of its process"))
        elif -status in _ABORTS:
            write_frame(file, _exceeded(memory, "it needs more memory or nests deeper than its process allows"))


def _serve(other: socket.socket, memory: mmap) -> None:
    with other.makefile("rwb") as file:
        opening = read_frame(file)
        if opening is None:
            return
        facts = opening.facts
        _set_limits(AS=facts["memory_bytes"], FSIZE=0, CORE=0, NPROC=0)
        step.limit_steps(memory, facts["cpu_s"])
        answer: Answer | None = None
        while request := read_frame(file):
            try:
                if answer is None:
                    module, _, name = facts["target"].partition(":")
                    answer = getattr(importlib.import_module(module), name)(facts["facts"])
                    # The standard streams are /dev/null, and no file or socket is opened from now on.
                    _set_limits(NOFILE=3)
                reply = answer(request)
            except Failure as failure:
                reply = Frame({"kind": failure.kind, "reason": failure.reason, "has_ended": False})
            except MemoryError:
                answer = None  # frees what it holds
                reply = _exceeded(memory, f"it needs more than {facts['memory_bytes'] >> 20} MiB of memory")
            except BaseException as error:
                # A bug, or a panic of native code: its cause would be lost with this process.
                raise_exits(error)
                reason = f"{type(error).__name__}: {error}"
                reply = Frame({"kind": "infrastructure", "reason": reason, "has_ended": False})
            step.end()
            write_frame(file, reply)


def _exceeded(memory: mmap, reason: str) -> Frame:
    kind, what, remedy = step.step_of(memory)
    return Frame({"kind": kind, "reason": f"Failed to {what}: {reason}; {remedy}", "has_ended": True})


def _set_limits(**limits: int) -> None:
    for name, most in limits.items():
        try:
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))
        except (AttributeError, ValueError, OSError):
            pass  # macOS lacks some of these limits; that of CPU time applies there too


if __name__ == "__main__":
    main()
    sys.exit(0)

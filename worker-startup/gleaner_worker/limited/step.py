"""The steps of work with an outsider's files. In a process with limits, each step has CPU time of its own.

The process that waits for the work reads the step from memory that both share, and names it when a limit ends the work.
"""

import signal
from mmap import mmap
from typing import NamedTuple

_BYTES = 1 << 12


class Step(NamedTuple):
    """A step: the kind of its failure, and what the failure says about it."""

    kind: str
    what: str  # completes "Failed to"
    remedy: str


class _Limited(NamedTuple):
    memory: mmap
    cpu_s: float


_limited: _Limited | None = None


def shared_memory() -> mmap:
    """The memory for the step, before a fork."""
    memory = mmap(-1, _BYTES)
    _write(memory, Step("infrastructure", "start a process with limits", "take a machine with more memory"))
    return memory


def limit_steps(memory: mmap, cpu_s: float) -> None:
    """From now on, a step of this process that takes more than `cpu_s` of CPU time ends the process by SIGPROF."""
    global _limited
    _limited = _Limited(memory, cpu_s)


def begin(kind: str, what: str, remedy: str) -> None:
    """Begins a step, which ends with the next one. Does nothing in a process without limits."""
    if _limited:
        _write(_limited.memory, (kind, what, remedy))
        signal.setitimer(signal.ITIMER_PROF, _limited.cpu_s)


def end() -> None:
    """Ends the last step."""
    if _limited:
        signal.setitimer(signal.ITIMER_PROF, 0)


def step_of(memory: mmap) -> Step:
    """The step that a process has begun."""
    kind, what, remedy, *_ = bytes(memory[:]).decode(errors="replace").split("\0")
    return Step(kind, what, remedy)


def _write(memory: mmap, texts: tuple[str, str, str]) -> None:
    text = "\0".join(texts).encode(errors="replace")[: _BYTES - 2]
    memory[: len(text) + 2] = text + b"\0\0"

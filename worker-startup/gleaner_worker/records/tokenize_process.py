"""Processes that parse, render and tokenise the lines of a stream, so that reading scales with the cores of a host.

In one process the interpreter's lock bounds reading to some ten thousand lines a second, and other stages need the
same lock. Only the token ids come back, and the samples are the same with any number of processes.
"""

import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import asdict
from pathlib import Path

from ..failures import Failure
from ..spec import Spec
from .samples import Documents
from .stream import Line
from .tokenize_frames import Frame, documents_of_frame, frame_of_lines, read_frame, write_frame

# A small host needs its cores for the other stages, and reads without these processes.
PROCESSES = min(16, (os.cpu_count() or 1) // 8)
_CHECK_EVERY_S = 0.2
_PACKAGES = Path(__file__).parents[2]


class TokenizeProcesses:
    """The processes for one model and spec. They start with the first stream, and serve one stream at a time."""

    def __init__(self, folder: str, spec: Spec, vocab_size: int, max_positions: int, count: int = PROCESSES):
        """The arguments of make_sample_settings, and the number of processes."""
        facts = {"folder": folder, "spec": asdict(spec), "vocab_size": vocab_size, "max_positions": max_positions}
        self._settings, self._count = Frame(facts), count
        self._lock = threading.Lock()
        self._all: list[subprocess.Popen] = []
        self._idle: list[subprocess.Popen] = []
        self._is_open = True

    def tokenize(self, batches: Iterable[list[Line]], name: str, check: Callable[[], None]) -> Generator[Documents]:
        """The documents and rejects of each batch, in the order of the batches. Ends the processes when it ends early.

        name: of the stream's object, for messages. check: called during waits, and may raise. Raises Failure("stream").
        """
        waiting: deque[Future[Documents]] = deque()
        self._is_open = True
        with ThreadPoolExecutor(self._count, "tokenize") as pool:
            try:
                for lines in batches:
                    waiting.append(pool.submit(self._ask, lines, name))
                    if len(waiting) > 2 * self._count:
                        yield _result(waiting.popleft(), check)
                while waiting:
                    yield _result(waiting.popleft(), check)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                self.close()
                raise

    def close(self) -> None:
        """Ends the processes, also while they work."""
        with self._lock:
            self._is_open = False
            ending, self._all, self._idle = self._all, [], []
            for process in ending:
                process.kill()
        for process in ending:
            process.wait()

    def _ask(self, lines: list[Line], name: str) -> Documents:
        status = 0
        for _ in range(2):  # a process that another cause ended is replaced once
            process = self._take()
            answer = _exchange(process, frame_of_lines(lines, name))
            if answer is not None:
                self._give_back(process)
                if "kind" in answer.facts:
                    raise Failure(answer.facts["kind"], answer.facts["reason"])
                return documents_of_frame(answer)
            status = process.wait()
        raise Failure(
            "stream",
            f"Failed to tokenise lines {lines[0].index + 1} to {lines[-1].index + 1} of {name}: the process of the "
            f"tokenizer ended twice, with status {status}; remove these lines, or use a machine with more memory",
        )

    def _take(self) -> subprocess.Popen:
        with self._lock:
            if not self._is_open:
                raise CancelledError
            if self._idle:
                return self._idle.pop()
            # Without threads of its own: there are as many processes as the host's cores can serve.
            process = subprocess.Popen(
                [sys.executable, "-s", "-P", "-m", "gleaner_worker.records.tokenize_main"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": str(_PACKAGES), "TOKENIZERS_PARALLELISM": "false"},
            )
            self._all.append(process)
        _send(process, self._settings)
        return process

    def _give_back(self, process: subprocess.Popen) -> None:
        with self._lock:
            if self._is_open:
                self._idle.append(process)


def _result(answer: Future[Documents], check: Callable[[], None]) -> Documents:
    while not wait([answer], _CHECK_EVERY_S).done:
        check()
    return answer.result()


def _exchange(process: subprocess.Popen, request: Frame) -> Frame | None:
    """The answer; None where the process has ended."""
    assert process.stdout is not None
    return read_frame(process.stdout) if _send(process, request) else None


def _send(process: subprocess.Popen, request: Frame) -> bool:
    """Whether the process still reads."""
    assert process.stdin is not None
    try:
        write_frame(process.stdin, request)
    except BrokenPipeError:
        return False
    return True

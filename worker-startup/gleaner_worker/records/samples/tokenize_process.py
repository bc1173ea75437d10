"""Lines tokenised by processes with limits, so that reading scales with the cores of a host.

In one process the interpreter's lock bounds reading to some ten thousand lines a second, and other stages need the
same lock. Only the token ids come back, and the samples are the same with any number of processes.
"""

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass

from ...limited.frames import Frame
from ...limited.process import LimitedProcess
from ...limited.values import from_json
from ...spec.spec import Spec
from ..lines.stream import Line
from .sample_settings import Documents, SampleSettings, TokenizerFacts, common_settings
from .tokenize_frames import documents_of_frame, frame_of_lines

log = logging.getLogger(__name__)

# Eight cores for each: a host needs the others for the other stages. A process uses one core.
PROCESSES = min(16, max(2, (os.cpu_count() or 1) // 8))
_CHECK_EVERY_S = 0.2


@dataclass(frozen=True)
class LimitedSettings(SampleSettings):
    """Settings whose files are read by processes with limits; they serve one stream at a time."""

    processes: "TokenizeProcesses"

    def tokenize(self, batches: Iterable[list[Line]], name: str, check: Callable[[], None]) -> Generator[Documents]:
        yield from self.processes.tokenize(batches, name, check)

    def decode(self, token_ids: list[int]) -> str:
        return self.processes.ask(Frame({"token_ids": token_ids})).facts["text"]

    def texts(self, token_ids: list[int]) -> list[str]:
        return self.processes.ask(Frame({"token_ids": token_ids, "each": True})).facts["texts"]

    def close(self) -> None:
        self.processes.close()


def limited_settings(
    folder: str, spec: Spec, vocab_size: int, max_positions: int, count: int = PROCESSES
) -> LimitedSettings:
    """The settings of a run with `count` processes. The files of the model are in `folder`. Raises Failure("model")."""
    facts = {"folder": folder, "spec": asdict(spec), "vocab_size": vocab_size, "max_positions": max_positions}
    processes = TokenizeProcesses(facts, count)
    try:
        found = from_json(TokenizerFacts, processes.ask(Frame({})).facts)
        common = common_settings(spec, vocab_size, max_positions, found)
    except BaseException:
        processes.close()
        raise
    for warning in found.warnings:
        log.warning("%s", warning)
    return LimitedSettings(**common, processes=processes)


class TokenizeProcesses:
    """The processes for one model and spec, each started when it has work."""

    def __init__(self, facts: dict, count: int):
        self._facts, self._count = facts, count
        self._lock = threading.Lock()
        self._all: list[LimitedProcess] = []
        self._idle: list[LimitedProcess] = []
        self._is_open = True

    def tokenize(self, batches: Iterable[list[Line]], name: str, check: Callable[[], None]) -> Generator[Documents]:
        """As SampleSettings.tokenize. Ends the processes when it ends early."""
        waiting: deque[Future[Documents]] = deque()
        self._is_open = True
        with ThreadPoolExecutor(self._count, "tokenize") as pool:
            try:
                for lines in batches:
                    waiting.append(pool.submit(self._documents, lines, name))
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
            process.close()

    def ask(self, request: Frame) -> Frame:
        """The answer of a process that has no work. Raises Failure, CancelledError."""
        process = self._take()
        try:
            return process.ask(request)
        finally:
            with self._lock:
                if self._is_open:
                    self._idle.append(process)

    def _documents(self, lines: list[Line], name: str) -> Documents:
        return documents_of_frame(self.ask(frame_of_lines(lines, name)))

    def _take(self) -> LimitedProcess:
        with self._lock:
            if not self._is_open:
                raise CancelledError
            if self._idle:
                return self._idle.pop()
            target = "gleaner_worker.records.samples.tokenize_main:open_tokenizer"
            self._all.append(LimitedProcess(target, self._facts))
            return self._all[-1]


def _result(answer: Future[Documents], check: Callable[[], None]) -> Documents:
    while not wait([answer], _CHECK_EVERY_S).done:
        check()
    return answer.result()

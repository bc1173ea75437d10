"""The worker's side of the process that renders templates: starts, calls and replaces the process."""

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

CPU_S = 5.0  # of one template and one record; real chat templates take milliseconds
_WALL_S = 120.0  # of one answer; longer than CPU_S, because the machine may be busy
_MAX_ANSWER_BYTES = 256 * 1024 * 1024
_RENDERER = Path(__file__).with_name("renderer.py")


class LimitExceeded(Exception):
    """A template needs more time or memory than its process has. The message is the reason.

    It never rejects a record: a faster machine may render the record, and each attempt must make the same samples.
    """

    def __init__(self, reason: str, position: int = 0):
        super().__init__(reason)
        self.position = position  # in the batch of values


class _Ended(Exception):
    """The process ended before its last answer. The message names the exceeded limit; it is empty for another cause."""


class RenderProcess:
    """One child process for all templates of this process. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: subprocess.Popen | None = None
        self._received = bytearray()
        self._sources: dict[int, dict] = {}  # by template: the request that compiles it
        self._compiled: dict[int, dict] = {}  # by template: the answer of the current child
        atexit.register(self._end)

    def compile(self, source: str, is_chat: bool) -> tuple[int, dict]:
        """A number for the template, and the answer. Raises LimitExceeded."""
        with self._lock:
            number = len(self._sources)
            self._sources[number] = {"template": number, "source": source, "is_chat": is_chat}
            self._answer(number, [])
            return number, self._compiled[number]

    def render(self, template: int, values: Sequence[bytes]) -> list[dict]:
        """The answers to `values`, each a JSON object. Raises LimitExceeded."""
        with self._lock:
            return self._answer(template, values)

    def _answer(self, template: int, values: Sequence[bytes]) -> list[dict]:
        answers: list[dict] = []
        ended_at = None
        while True:
            try:
                if self._child is None or template not in self._compiled:
                    self._send(json.dumps(self._sources[template] | {"cpu_s": CPU_S}).encode())
                    self._compiled[template] = self._receive()
                if values:
                    rest = b",".join(values[len(answers) :])
                    self._send(b'{"template":%d,"cpu_s":%f,"values":[%b]}' % (template, CPU_S, rest))
                while len(answers) < len(values):
                    answers.append(self._receive())
                return answers
            except _Ended as ended:
                if str(ended) or ended_at == len(answers):
                    raise LimitExceeded(str(ended) or "its process ended twice", len(answers)) from None
                ended_at = len(answers)  # no limit: retry the same value once, in a new process

    def _send(self, request: bytes) -> None:
        child = self._child or self._start()
        assert child.stdin is not None
        try:
            child.stdin.write(len(request).to_bytes(4, "big") + request)
            child.stdin.flush()
        except BrokenPipeError:
            raise _Ended(self._end()) from None

    def _receive(self) -> dict:
        size = int.from_bytes(self._read(4), "big")
        if size > _MAX_ANSWER_BYTES:
            self._end()
            raise _Ended(f"its answer has {size} bytes; the limit is {_MAX_ANSWER_BYTES}")
        answer = json.loads(self._read(size))
        if "exceeds" in answer:
            self._end()
            raise _Ended(answer["exceeds"])
        return answer

    def _read(self, size: int) -> bytes:
        """The next `size` bytes of the answers."""
        assert self._child is not None and self._child.stdout is not None
        pipe = self._child.stdout.fileno()
        while len(self._received) < size:
            if not select.select([pipe], [], [], _WALL_S)[0]:
                self._end()
                raise _Ended(f"it gives no answer within {_WALL_S:g} s")
            data = os.read(pipe, 1 << 20)
            if not data:
                raise _Ended(self._end())
            self._received += data
        data = bytes(self._received[:size])
        del self._received[:size]
        return data

    def _start(self) -> subprocess.Popen:
        # The child gets no environment of this process, which may hold tokens. A fixed seed makes hashes reproducible.
        # Bytecode halves the time of a start. Templates cannot write it: they can open no file.
        bytecode = {
            "PYTHONPYCACHEPREFIX": sys.pycache_prefix or "",
            "PYTHONDONTWRITEBYTECODE": "1" if sys.dont_write_bytecode else "",
        }
        self._child = subprocess.Popen(
            [sys.executable, "-s", "-P", str(_RENDERER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PYTHONHASHSEED": "0", "LANG": "C.UTF-8"} | bytecode,
            cwd="/",
            start_new_session=True,
        )
        return self._child

    def _end(self) -> str:
        """Ends the process. Returns the limit that ended it, or "" for another cause."""
        child, self._child = self._child, None
        self._compiled.clear()
        self._received.clear()
        if child is None:
            return ""
        try:
            status = child.wait(0.1)
        except subprocess.TimeoutExpired:
            os.kill(child.pid, signal.SIGKILL)
            status = child.wait()
        for pipe in (child.stdin, child.stdout):
            try:
                if pipe:
                    pipe.close()
            except BrokenPipeError:
                pass
        if status == -signal.SIGPROF:
            return f"it takes more than {CPU_S:g} s of CPU time"
        return "it needs more memory or nests deeper than its process allows" if status == -signal.SIGSEGV else ""

"""The worker's side of the process that renders templates: starts it, asks it, and replaces it after a limit."""

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path

CPU_S = 5.0  # of one template and one record; real chat templates take milliseconds
_WALL_S = 120.0  # for a machine that is very busy
_MAX_ANSWER_BYTES = 256 * 1024 * 1024
_RENDERER = Path(__file__).with_name("renderer.py")


class Ended(Exception):
    """The process ended before it answered; the message is a reason."""


class RenderProcess:
    """One process for all templates of this one. Any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: subprocess.Popen | None = None
        self._sources: dict[int, dict] = {}  # by template: the request that compiles it
        self._compiled: set[int] = set()  # in this child
        atexit.register(self._end)

    def compile(self, source: str, is_chat: bool) -> tuple[int, dict]:
        """A number for the template, and the answer. Raises Ended."""
        with self._lock:
            number = len(self._sources)
            self._sources[number] = {"template": number, "source": source, "is_chat": is_chat}
            return number, self._compile(number)

    def render(self, template: int, values: dict) -> dict:
        """The answer. Raises Ended."""
        with self._lock:
            if self._child is None or template not in self._compiled:
                self._compile(template)
            request = {"template": template, "values": values}
            try:
                return self._ask(request)
            except Ended as error:
                if str(error):
                    raise
            self._compile(template)  # something else ended the process: once more
            return self._ask(request)

    def _compile(self, template: int) -> dict:
        answer = self._ask(self._sources[template])
        self._compiled.add(template)
        return answer

    def _ask(self, request: dict) -> dict:
        child = self._child or self._start()
        assert child.stdin is not None and child.stdout is not None
        data = json.dumps(request | {"cpu_s": CPU_S}).encode()
        try:
            child.stdin.write(len(data).to_bytes(4, "big") + data)
            child.stdin.flush()
            header = child.stdout.read(4) if select.select([child.stdout], [], [], _WALL_S)[0] else b""
            size = int.from_bytes(header, "big")
            answer = child.stdout.read(size) if len(header) == 4 and size <= _MAX_ANSWER_BYTES else b""
        except BrokenPipeError:
            answer = b""
        if answer:
            return json.loads(answer)
        raise Ended(self._end())

    def _start(self) -> subprocess.Popen:
        # Without the environment of this process, which may hold tokens; with hashes that are the same everywhere.
        self._child = subprocess.Popen(
            [sys.executable, "-s", "-P", str(_RENDERER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "LANG": "C.UTF-8"},
            cwd="/",
            start_new_session=True,
        )
        self._compiled = set()
        return self._child

    def _end(self) -> str:
        """Ends the process. Returns the limit that ended it, or "" for another cause."""
        child, self._child = self._child, None
        if child is None:
            return ""
        try:
            status = child.wait(0.1)
        except subprocess.TimeoutExpired:
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
            status = -signal.SIGPROF  # it answers nothing
        for pipe in (child.stdin, child.stdout):
            try:
                if pipe:
                    pipe.close()
            except BrokenPipeError:
                pass
        if status == -signal.SIGPROF:
            return f"it takes more than {CPU_S:g} s of a processor"
        return "it needs more memory or nests deeper than its process allows" if status == -signal.SIGSEGV else ""

"""Runs programs that prepare code, as the job user, and returns their output and exit."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..jobs.limits import Limits
from ..jobs.prepared_code import SYSTEM_PATH, SourceFailed
from ..jobs.process import ProcessEnd, run_process
from ..jobs.user import JobUser

_KEPT_BYTES = 64 << 10


@dataclass(frozen=True)
class CommandResult:
    """The end and the output of a program."""

    ended: ProcessEnd
    output: str  # the end of stdout and stderr

    @property
    def is_success(self) -> bool:
        return self.ended.cause is None and self.ended.exit_code == 0

    @property
    def last_line(self) -> str:
        """The last line that is not a hint: the hints of uv and git do not say what failed."""
        printed = [line.strip() for line in self.output.splitlines() if line.strip()]
        lines = [line for line in printed if not line.startswith("hint:")] or printed
        return lines[-1][:500] if lines else "it printed nothing"

    @property
    def why(self) -> str:
        """How the program failed, in a few words."""
        if self.ended.cause == "stopped":
            return "it was stopped"
        if self.ended.cause is not None:
            return f"it exceeded its {self.ended.cause} limit"
        return self.last_line


class Commands:
    """Runs programs in folders of the job user. stop: ends the running program."""

    def __init__(self, user: JobUser, stop: threading.Event):
        self.user, self._stop = user, stop

    def check(self) -> None:
        """Raises SourceFailed when `stop` is set."""
        if self._stop.is_set():
            raise stopped()

    def run(
        self,
        argv: Sequence[str],
        folder: str,
        limit_s: float,
        environment: Mapping[str, str] | None = None,
        visible: Sequence[str] = (),
        file_bytes: int = 50 << 30,
        memory_bytes: int = 16 << 30,
        has_network: bool = True,
    ) -> CommandResult:
        """Runs a program for at most `limit_s` seconds.

        environment: variables besides PATH, HOME, LANG and TMPDIR. visible: paths that the program reads besides
        `folder`. has_network: False for a program that people wrote, unless jobs have the network. Raises SourceFailed
        when `stop` is set, and NotIsolated.
        """
        output = bytearray()

        def write(data: bytes) -> None:
            output.extend(data)
            del output[:-_KEPT_BYTES]

        own = {"PATH": SYSTEM_PATH, "HOME": folder, "LANG": "C.UTF-8", "TMPDIR": "/tmp"}
        ended = run_process(
            argv,
            user=replace(self.user, has_network=has_network or self.user.has_network),
            folder=folder,
            environment=own | dict(environment or {}),
            limits=Limits(limit_s, memory_bytes, 4096, 65_536, file_bytes),
            write=write,
            stop=self._stop,
            visible=visible,
        )
        if ended.cause == "stopped":
            raise stopped()
        return CommandResult(ended, output.decode("utf-8", "replace"))


def stopped() -> SourceFailed:
    """The error of a preparation that `stop` ended."""
    return SourceFailed("machine", "The preparation was stopped, because the lease has ended")

"""How much of a run is stored, as its folder shows it: streams, shards and samples, and a bar while a program waits."""

import html
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from ..format.files import CloudFolder, Folder, LocalFolder

_ACTIVATIONS = re.compile(r"(.*[/\\])?activations([/\\][^/\\]+)?")
_STREAM = re.compile(r"stream_\d{1,9}\.jsonl(\.gz)?")
_BAR = 20
_SHOWN = 3  # problems in a table
_LINE_EVERY_S = 60.0  # where the output keeps its lines, such as in a log


@dataclass(frozen=True)
class Status:
    """How much of a run is stored. `problems` says why the run is not complete; empty for a complete run.

    >>> run.status().complete_streams
    2
    """

    run: str
    streams: int  # dropped, as the datasets beside the run show; without them, those with a shard
    complete_streams: int
    shards: int
    samples: int  # stored or rejected, up to the last shard of each stream
    size_bytes: int
    problems: tuple[str, ...]

    @property
    def is_complete(self) -> bool:
        """Whether every shard of the run is stored, and the run has completed."""
        return not self.problems

    def __repr__(self) -> str:
        state = "complete" if self.is_complete else "incomplete"
        return f"<Status of {self.run}: {state}, {self._counts()}>"

    def bar(self) -> str:
        """One line with a bar of the complete streams."""
        done = self.complete_streams * _BAR // max(self.streams, 1)
        return f"[{'#' * done}{'.' * (_BAR - done)}] {self._counts()}"

    def _repr_html_(self) -> str:
        state = state_of(self.problems)
        bar = f'<progress value="{self.complete_streams}" max="{max(self.streams, 1)}"></progress>'
        return table_html({"run": self.run, "stored": self._counts(), "state": state}, bar)

    def _counts(self) -> str:
        return (
            f"{self.complete_streams:,} of {self.streams:,} streams, {self.shards:,} shards, {self.samples:,} samples, "
            f"{self.size_bytes / 1e9:,.2f} GB"
        )


class Line:
    """A line on standard error that replaces itself, in a terminal and in a notebook. A log gets a line a minute."""

    def __init__(self, shows: bool):
        self._shows, self._last, self._at = shows, "", float("-inf")
        self._replaces = sys.stderr.isatty() or "ipykernel" in sys.modules

    def __enter__(self) -> "Line":
        return self

    def show(self, text: str) -> None:
        if not self._shows or text == self._last:
            return
        if self._replaces:
            print(f"\r{text.ljust(len(self._last))}", end="", file=sys.stderr, flush=True)
        elif time.monotonic() - self._at >= _LINE_EVERY_S:
            self._at = time.monotonic()
            print(text, file=sys.stderr, flush=True)
        self._last = text

    def __exit__(self, *_: object) -> None:
        if self._shows and self._replaces and self._last:
            print(file=sys.stderr, flush=True)


def dropped_streams(url: str) -> int:
    """Streams in `datasets/RUN` beside `activations/RUN`; 0 where they cannot be seen."""
    match = _ACTIVATIONS.fullmatch(url.removeprefix("gs://"))
    if not match:
        return 0
    place = f"{match[1] or ''}datasets{match[2] or ''}"
    folder: Folder = LocalFolder(place)
    if url.startswith("gs://"):
        bucket, _, prefix = place.partition("/")
        folder = CloudFolder(bucket, prefix)
    try:
        return sum(_STREAM.fullmatch(name) is not None for name in folder.files())
    except OSError:
        return 0


def state_of(problems: Sequence[str]) -> str:
    """The state of a run in a table: its first problems, if it has any."""
    return "; ".join(problems[:_SHOWN]) or "complete"


def table_html(facts: dict[str, str], more: str = "") -> str:
    """A table of names and values, which may be any text. more: HTML below the table."""
    cells = ((html.escape(name), html.escape(value)) for name, value in facts.items())
    rows = "".join(f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in cells)
    return f"<table>{rows}</table>{more}"

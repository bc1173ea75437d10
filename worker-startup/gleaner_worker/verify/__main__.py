"""Reads a run's streams and every shard again, and prints as JSON whether each sample is stored exactly once.

    python -m gleaner_worker.verify --bucket B --run RUN

Exit status: 0 for a verified run, 1 for problems, 2 when verify itself failed. Writes nothing to the bucket.
"""

import argparse
import json
import logging
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable

from gleaner_reader.format.errors import printable

from ..failures import Failure
from ..storage.objects import Bucket, make_client
from .verify_run import report_on, verify_run

_PROGRESS_EVERY_S = 3.0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m gleaner_worker.verify", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--bucket", required=True)
    parser.add_argument("--run", required=True)
    parser.add_argument("--project")
    parser.add_argument("--digest", help="that the run must have, instead of the digest in its manifest")
    parser.add_argument("--unanchored", action="store_true", help="accept a run whose manifest states no digest")
    parser.add_argument("--when-told", action="store_true", help="begin at a line on stdin; end at its end without one")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    args = parser.parse_args()
    if args.when_told and not sys.stdin.readline():
        return 2
    logging.getLogger().setLevel(logging.ERROR)
    progress = Progress(args.run, None if args.quiet else lambda line: print(line, file=sys.stderr, flush=True))
    progress.start(_PROGRESS_EVERY_S)
    status = 0
    try:
        with tempfile.TemporaryDirectory(prefix="gleaner-verify-") as folder:
            bucket = Bucket(make_client(args.project), args.bucket)
            report = verify_run(bucket, args.run, folder, progress.update, args.digest, args.unanchored)
        status = 0 if report["ok"] else 1
    except (Failure, OSError) as error:
        report = report_on(args.run, [], [f"Failed to verify {args.run}: {error}"])
        status = 2
    print(json.dumps(report), flush=True)
    return status


class Progress:
    """Reports each problem at once, and the state of the verification every few seconds."""

    def __init__(self, run: str, write_line: Callable[[str], None] | None):
        self._started = time.monotonic()
        self._run = run
        self._write_line = write_line
        self._state: dict = {}

    def update(self, value: dict) -> None:
        """Merges `value` into the state. The keys are those of verify_run's `on_progress`."""
        self._state |= value
        if self._write_line and "problem" in value:
            self._write_line(printable(f"problem: {value['problem']}"))

    def line(self, now: float) -> str:
        """The state in one line. now: of time.monotonic."""
        parts = [f"Verifying {self._run}"]
        if "stream" in self._state:
            parts.append("stream {stream} ({streams_done} of {streams} streams done)".format(**self._state))
        if self._state.get("shards"):
            parts.append("{shards_done} of its {shards} shards read".format(**self._state))
        return f"{', '.join(parts)}, {now - self._started:.0f} s"

    def start(self, every_s: float) -> None:
        """Starts a thread that writes the state every `every_s` seconds."""
        write_line = self._write_line
        if write_line is None:
            return

        def run() -> None:
            while True:
                time.sleep(every_s)
                write_line(self.line(time.monotonic()))

        threading.Thread(target=run, name="progress", daemon=True).start()


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)

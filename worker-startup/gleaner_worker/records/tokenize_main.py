"""A process that tokenises lines: `python -m gleaner_worker.records.tokenize_main`, started by tokenize_process.py."""

import os
import signal
import sys
from typing import Any

from ..failures import Failure, raise_exits
from ..spec import RecordSpec, Spec
from .sample_settings import SampleSettings, make_sample_settings
from .samples import tokenize_lines
from .tokenize_frames import Frame, frame_of_documents, lines_of_frame, read_frame, write_frame


def main() -> None:
    # The worker may read until it has flushed its shards; this process ends with the worker's side of the pipe.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # prints of libraries are no answers
    first = read_frame(requests)
    if first is None:
        return
    settings = _make_settings(first.facts)
    while lines := read_frame(requests):
        write_frame(answers, _answer(lines, settings))


def _make_settings(facts: dict) -> SampleSettings:
    # JSON has lists where a spec has tuples.
    values: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in facts["spec"].items()
    }
    values["record"] = RecordSpec(**values["record"])
    return make_sample_settings(facts["folder"], Spec(**values), facts["vocab_size"], facts["max_positions"])


def _answer(lines: Frame, settings: SampleSettings) -> Frame:
    try:
        return frame_of_documents(tokenize_lines(lines_of_frame(lines), lines.facts["name"], settings))
    except Failure as failure:
        return Frame({"kind": failure.kind, "reason": failure.reason})
    except BaseException as error:  # a bug, or a panic of native code: its cause would be lost with this process
        raise_exits(error)
        return Frame({"kind": "infrastructure", "reason": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    main()

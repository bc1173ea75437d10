"""Lines read and tokenised by processes with limits, and by the process itself.

The figure is the time on the wall, because the others work beside this one. Another figure is the interpreter's
time for a line in the worker's process, which the lock of the interpreter bounds.
"""

import itertools
import json
import time

from gleaner_worker.records.samples.sample_settings import SampleSettings
from gleaner_worker.records.samples.samples import make_samples, read_documents
from gleaner_worker.records.samples.tokenize_lines import make_sample_settings
from gleaner_worker.records.samples.tokenize_process import limited_settings

from .prompts import real_texts
from .timing import Report, speed_up
from .workplace import Workplace

CLAIM = "the time for a line of GSM8K: in the worker's own process over in processes with limits"
_LINES = 30_000
_POSITIONS = 2048


def run(place: Workplace) -> Report:
    report = Report(CLAIM)
    texts = real_texts()
    if texts is None:
        report.notes.append("skipped: shared/data is not there")
        return report
    lines = 2000 if place.is_quick else _LINES
    path = place.path("lines.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(
            json.dumps({"text": text}) + "\n" for text in itertools.islice(itertools.cycle(texts["GSM8K"]), lines)
        )
    making = place.model, place.spec(), place.config["vocab_size"], _POSITIONS
    own, other = make_sample_settings(*making), limited_settings(*making)

    def read(settings: SampleSettings) -> tuple[float, float]:
        start, began = time.perf_counter(), time.process_time()
        count = sum(1 for _ in make_samples(read_documents(path, "lines", settings), settings))
        assert count == lines
        return time.perf_counter() - start, time.process_time() - began

    read(other)  # starts the processes
    pairs = [(read(own), read(other)) for _ in range(place.rounds(3))]
    other.close()
    alone, beside = ([each[side][0] for each in pairs] for side in (0, 1))
    detail = f"{lines / min(alone):.0f} and {lines / min(beside):.0f} lines a second; in the worker's process "
    detail += " and ".join(f"{min(each[side][1] for each in pairs) / lines * 1e6:.0f}" for side in (0, 1))
    report.figures.append(speed_up("own over limited", alone, beside, None, f"{detail} microseconds a line"))
    return report

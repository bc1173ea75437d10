"""Lines read and tokenised by the worker's process, and by processes beside it.

The interpreter's lock bounds a process, so the figure is the interpreter's time for a line in the worker's process. A
host with many cores gives the rest to the other processes.
"""

import itertools
import json
import os
import time

from gleaner_worker.records.sample_settings import make_sample_settings
from gleaner_worker.records.samples import make_samples, read_documents
from gleaner_worker.records.tokenize_process import TokenizeProcesses

from .prompts import real_texts
from .timing import Report, speed_up
from .workplace import Workplace

CLAIM = "the interpreter's time for a line of GSM8K in the worker's process: without over with other processes"
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
    settings = make_sample_settings(*making)

    def read(processes: TokenizeProcesses | None) -> None:
        documents = read_documents(path, "lines", settings, processes.tokenize if processes else None)
        count = sum(1 for _ in make_samples(documents, settings))
        assert count == lines

    others = TokenizeProcesses(*making, count=os.cpu_count() or 1)
    alone, beside, seconds = [], [], []
    read(others)  # starts the processes
    for _ in range(place.rounds(3)):
        began = time.thread_time()  # without the threads of the tokenizer, which need no lock
        read(None)
        alone.append(time.thread_time() - began)
        began, start = time.process_time(), time.perf_counter()
        read(others)
        beside.append(time.process_time() - began)
        seconds.append(time.perf_counter() - start)
    others.close()
    detail = (
        f"{min(alone) / lines * 1e6:.0f} and {min(beside) / lines * 1e6:.0f} microseconds a line; "
        f"{lines / min(seconds):.0f} lines a second with {os.cpu_count()} processes"
    )
    report.figures.append(speed_up("without over with processes", alone, beside, None, detail))
    return report

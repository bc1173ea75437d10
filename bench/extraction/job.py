"""The worker's own parts, connected as in the agent, without a control plane."""

import itertools
import json
import os
from collections.abc import Sequence

import numpy as np

from gleaner_worker.extract.extract import extract
from gleaner_worker.extract.state import ExtractionState
from gleaner_worker.model.model import Model, find_files, load_model
from gleaner_worker.model.program.rows import pack
from gleaner_worker.records.samples.sample import Sample
from gleaner_worker.records.samples.tokenize_lines import make_sample_settings
from gleaner_worker.spec.spec import Spec
from gleaner_worker.spec.work import Work
from gleaner_worker.storage.objects import Bucket
from gleaner_worker.storage.upload_content import BytesContent

from .workplace import Workplace

_NUMBERS = itertools.count()


def load(place: Workplace, spec: Spec) -> Model:
    """The model, compiled and on the devices."""
    return load_model(spec, find_files(spec, place.path("home"), None))


def load_forward(place: Workplace, deepest: int | None = None, **spec) -> Model:
    """Runs all blocks up to the deepest (default: the last) and returns a single row per sample."""
    layer = place.layers - 1 if deepest is None else deepest
    return load(place, place.spec(layers=[layer], tokens="last", **spec))


def samples_of(rows: Sequence[np.ndarray], positions: str = "last") -> list[Sample]:
    """Samples of token ids [length] each; positions: "last" or "all"."""
    return [
        Sample(
            i, np.asarray(ids, np.int32), np.array([len(ids) - 1], np.int32) if positions == "last" else None, "", False
        )
        for i, ids in enumerate(rows)
    ]


def compute(model: Model, samples: list[Sample]) -> None:
    """Computes every sample, packed into rows; the next step starts before the last one is collected."""
    waiting = None
    rows = pack([(len(sample.token_ids), 1) for sample in samples], model.row_limits)
    for begin in range(0, len(rows), model.rows_per_step):
        pending = model.start([[samples[index] for index in row] for row in rows[begin : begin + model.rows_per_step]])
        if waiting is not None:
            waiting.collect()
        waiting = pending
    if waiting is not None:
        waiting.collect()


def put_stream(bucket: Bucket, records: Sequence[dict]) -> tuple[str, int, str]:
    """Uploads a stream; returns its name, generation and checksum."""
    content = BytesContent("".join(json.dumps(record) + "\n" for record in records).encode())
    name = f"datasets/bench/stream_{next(_NUMBERS):03}.jsonl"
    bucket.create(name, content, {}, "application/x-ndjson")
    return name, bucket.head(name).generation, content.crc32c


def store(place: Workplace, model: Model, bucket: Bucket, stream: tuple[str, int, str]) -> ExtractionState:
    """Runs the whole pipeline, from the stream's lines to shards in the bucket, under a new run."""
    run = f"bench-{next(_NUMBERS)}"
    name, generation, crc32c = stream
    work = Work(run, "000", 1, bucket.name, name, generation, crc32c, f"activations/{run}/tpu_0/", model.spec, "0" * 64)
    control = ExtractionState()
    settings = make_sample_settings(model.files.folder, model.spec, model.config.vocab_size, model.config.max_positions)
    folder = os.path.join(place.folder, "scratch")
    outcome = extract(work, model, settings, bucket.checked(control.check_lease), folder, control)
    if outcome != "completed":
        raise RuntimeError(f"Failed to measure: the extraction ended as {outcome}")
    return control

"""Computes samples of a run again with a reference, and measures the drift of the stored rows."""

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

import numpy as np

from gleaner_reader import Run
from gleaner_reader import Sample as StoredSample
from gleaner_reader.format.files import open_folder

from ..architecture.sites import Capture
from ..failures import Failure
from ..model.files.identity import ModelFiles
from ..model.files.model_lock import find_run_model, read_model_lock
from ..model.files.model_source import find_spec_files
from ..model.files.weight_files import BucketFile
from ..model.weights.reduction_weights import ReductionWeights, read_capture
from ..names import output_prefix, run_folder
from ..records.samples.generated import Answers
from ..records.samples.sample import Sample
from ..records.samples.sample_settings import SampleSettings
from ..records.samples.samples import read_samples
from ..records.samples.tokenize_process import limited_settings
from ..shards.answers import stored_answers
from ..spec.selections import POOLS
from ..spec.spec import Spec
from ..storage.objects import Bucket, ObjectInfo
from ..verify.verify_run import list_streams, read_manifest
from .drift import Drift
from .reductions import dense, reconstructed, reduced

# An output: its name, the site and the layer of its rows, and what reduces them.
_Output = tuple[str, str, int, ReductionWeights | None]
# {(site, layer): fp32 [T, width]} of token ids, names of tensors and top_k.
Reference = Callable[[np.ndarray, tuple[tuple[str, int], ...], int], dict[tuple[str, int], np.ndarray]]


def compare_run(
    bucket: Bucket, run: str, count: int, folder: str, load: Callable[[str], Reference], report: Callable[[str], None]
) -> dict:
    """The drift of `count` stored samples, spread over all streams: {"samples", "rows", "drift": {"site.layer": …}}.

    folder: for the model and one stream. load: gives the reference of a folder with a model. Raises Failure, OSError
    and ShardError.
    """
    spec, spec_hash, _ = read_manifest(bucket, run)
    stored = Run(open_folder(f"gs://{bucket.name}/activations/{run_folder(run)}"))
    chosen = choose_samples(stored, count)
    files = _copy_model(spec, run, bucket, folder, report)
    capture, reductions = read_capture(spec, files)
    config, outputs = capture.config, _outputs(capture, reductions)
    names = tuple(dict.fromkeys((site, layer) for _, site, layer, _ in outputs))
    if not names:
        raise Failure("stream", f"Failed to compare {run}: it stores moments alone, and no rows that have a reference")
    settings = limited_settings(files.folder, spec, config.vocab_size, config.max_positions)
    problems: list[str] = []
    streams = list_streams(bucket, run, problems)
    reference = load(files.folder)
    drifts: dict[str, Drift] = defaultdict(Drift)
    for stream, numbers in chosen.items():
        name = f"{stream:03d}"
        if name not in streams:
            raise Failure("stream", f"Failed to compare {run}: {output_prefix(run, name)} has shards of no stream")
        answers = None
        if spec.generates:
            answers = stored_answers(bucket, run, name, streams[name], (spec, spec_hash), settings)
        for sample in _samples(bucket, streams[name], numbers, settings, folder, answers):
            report(f"Computing sample {sample.index} of stream {name}, {len(sample.token_ids)} tokens")
            wanted = reference(sample.token_ids, names, spec.top_k)
            found = stored.sample(stream, sample.index, dtype="float32")
            for output, site, layer, weights in outputs:
                x = _rows_of(wanted[site, layer], sample, spec)
                _add(drifts, (output, layer), found, x, weights, sample, name, capture)
    first = next(iter(drifts.values()))
    return {
        "samples": sum(map(len, chosen.values())),
        "rows": first.rows,
        "drift": {name: drift.report() for name, drift in drifts.items()},
    }


def choose_samples(stored: Run, count: int) -> dict[int, list[int]]:
    """{stream: numbers of samples}: at most `count` stored samples, at equal distances."""
    shards = [(stream, shard) for stream, shards in stored.streams.items() for shard in shards]
    ends = list(accumulate(shard.num_samples for _, shard in shards))
    total = ends[-1] if ends else 0
    if total == 0:
        raise Failure("stream", f"Failed to compare {stored.url}: no samples are stored yet; wait for the first shard")
    count, chosen = min(count, total), defaultdict(list)
    for place in sorted({(2 * number + 1) * total // (2 * count) for number in range(count)}):
        at = int(np.searchsorted(ends, place, "right"))
        stream, shard = shards[at]
        numbers = stored.index(shard).sample_idx
        chosen[stream].append(int(numbers[place - ends[at] + len(numbers)]))
    return dict(chosen)


def _samples(
    bucket: Bucket,
    stream: ObjectInfo,
    numbers: list[int],
    settings: SampleSettings,
    folder: str,
    answers: Answers | None,
) -> Iterator[Sample]:
    path = os.path.join(folder, "stream")
    bucket.download(stream.name, path, stream.generation)
    missing = set(numbers)
    for item in read_samples(path, stream.name, settings, answers):
        if isinstance(item, Sample) and item.index in missing:
            missing.remove(item.index)
            yield item
        if not missing:
            return
    raise Failure(
        "stream",
        f"Failed to compare {stream.name}: it lacks sample {min(missing)}, which is stored; verify the run without a "
        "reference",
    )


def _outputs(capture: Capture, reductions: Sequence[ReductionWeights]) -> list[_Output]:
    """Each output with a reference."""
    outputs: list[_Output] = [(site, site, layer, None) for site in capture.sites for layer in capture.layers_of(site)]
    each = [(weights.reduction, weights) for weights in reductions]
    return outputs + [(of.name, of.site, layer, weights) for of, weights in each for layer in of.layers]


def _rows_of(values: np.ndarray, sample: Sample, spec: Spec) -> np.ndarray:
    """The rows that the run stores of the vectors of all tokens of the sample."""
    positions = _positions(sample)
    if not spec.selection.is_pool:
        return values[positions]
    pool = np.mean if spec.selection.reduction == "mean" else np.max
    pools = [(0, len(sample.token_ids))] if sample.pools is None else sample.pools.tolist()
    return np.stack([pool(values[positions[(begin <= positions) & (positions < end)]], axis=0) for begin, end in pools])


def _positions(sample: Sample) -> np.ndarray:
    return np.arange(len(sample.token_ids)) if sample.positions is None else sample.positions


def _add(
    drifts: dict[str, Drift],
    key: tuple[str, int],
    stored: StoredSample,
    x: np.ndarray,
    weights: ReductionWeights | None,
    sample: Sample,
    stream: str,
    capture: Capture,
) -> None:
    (output, layer), name = key, ".".join(map(str, key))
    found, ids = stored.activations[name], stored.activations.get(f"{output}_ids.{layer}")
    rows = x if weights is None else reduced(weights, layer, x)
    if ids is not None and len(found) == len(rows):
        found = dense(found, ids.astype(np.int64), rows.shape[1])
    problem = None
    if found.shape != rows.shape:
        problem = f"{list(found.shape)} values, and the stream makes {list(rows.shape)}"
    elif not (np.isfinite(found).all() and np.isfinite(rows).all()):
        problem = "values that are not finite, stored or computed"
    if problem:
        raise Failure(
            "stream",
            f"Failed to compare sample {sample.index} of stream {stream}: {name} has {problem}; verify the run without "
            "a reference",
        )
    if weights and ids is not None:
        drifts[name].add_features(found, rows, x, reconstructed(weights, layer, found, x))
    elif capture.dtype_of(output) == "int32":  # numbers of things are equal or not
        found, rows = (found == rows).astype(np.float32), np.ones(rows.shape, np.float32)
    drifts[name].add(found, rows, stream, sample.index, None if capture.mode in POOLS else _positions(sample))


def _copy_model(spec: Spec, run: str, bucket: Bucket, home: str, report: Callable[[str], None]) -> ModelFiles:
    """The files of the run's model, with its weights in their folder. Writes nothing to the bucket."""
    if read_model_lock(bucket, run):
        files = find_run_model(spec, run, home, bucket)
    else:
        files = find_spec_files(spec, home, bucket)
    size_bytes = sum(weights.size_bytes for weights in files.weights)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if 2 * size_bytes > memory:
        raise Failure(
            "model",
            f"Failed to compare {run} with transformers: in fp32 its model takes up to {2 * size_bytes / 1e9:.3g} GB, "
            f"and this machine has {memory / 1e9:.3g} GB of memory; take a machine with more",
        )
    report(f"Reading {size_bytes / 1e9:.3g} GB of weights of {spec.model}")
    for weights in files.weights:
        if isinstance(weights, BucketFile):
            weights.copy_to(files.folder)
    return files

"""The content of a pkl.gz shard, read in one pass, with one sample in memory at a time."""

import numpy as np

from gleaner_reader.convert import Rows
from gleaner_reader.files import open_file
from gleaner_reader.pickle_entries import most_bytes
from gleaner_reader.pickle_shard import PickleShard

from .shard_content import ShardContent, Wanted, contradictions, wrong_values
from .statistics import LayerStatistics

_PICKLED_AS = {"fp16": np.dtype(np.float16), "fp32": np.dtype(np.float32)}


def read_pickle(path: str, metadata: dict[str, str], wanted: Wanted, content: ShardContent) -> None:
    """Raises ShardError."""
    dtype = _PICKLED_AS[wanted.spec.dtype]
    rows, samples = int(metadata["rows"]), int(metadata["samples"])
    row_bytes = wanted.d_model * dtype.itemsize
    limit = most_bytes(len(wanted.layers), rows, row_bytes, samples, keeps=bool(wanted.spec.keep))
    shard = PickleShard(open_file(path), limit)
    content.problems += contradictions(shard.metadata, metadata)
    measures: dict[object, LayerStatistics] = {layer: LayerStatistics() for layer in wanted.layers}

    def take(layer: object, array: np.ndarray) -> str | tuple[int, ...]:
        """The shape of a sample's values, or a phrase for their problem."""
        if array.dtype != dtype or array.ndim != 2 or array.shape[1] != wanted.d_model:
            return f"is {array.dtype} {list(array.shape)}, not {dtype} [rows, {wanted.d_model}]"
        if layer in measures and not measures[layer].add(Rows(array, None)):
            return "has values that are not finite"
        return array.shape

    data = shard.load(take)
    if list(data) != list(wanted.layers):
        content.problems.append(f"does not hold exactly the layers {list(wanted.layers)}")
        return
    first = data[wanted.layers[0]]
    for layer, found in data.items():
        if problem := next(filter(None, (_problem_of(entry, wanted) for entry in found)), None):
            content.problems.append(f"has a wrong layer {layer}: {problem}")
            return
        if found != first:
            content.problems.append(f"tells something else of its samples in layer {layer} than in {wanted.layers[0]}")
            return
    if shard.metadata:
        content.stats = shard.stats
        for name, found in zip(wanted.names, measures.values(), strict=True):
            content.problems += wrong_values(name, found, shard.stats.get(name), False)
    content.sample_idx = [entry["sample_idx"] for entry in first]
    content.row_counts = [entry["activation"][0] for entry in first]
    content.previews = [entry["text_preview"] for entry in first]
    if wanted.spec.keep:
        content.kept = [entry["kept"] for entry in first]
    if wanted.has_positions:
        content.positions = [np.array(entry["positions"], np.int64) for entry in first]
    if len(first) != samples or sum(content.row_counts) != rows:
        content.problems.append(
            f"holds {len(first)} samples and {sum(content.row_counts)} rows, its metadata says {samples} and {rows}"
        )


def _problem_of(entry: dict, wanted: Wanted) -> str | None:
    found = entry["activation"]
    if isinstance(found, str):
        return f"sample {entry['sample_idx']} {found}"
    if found != entry["shape"]:
        return f"sample {entry['sample_idx']} is {list(found)} and says {list(entry['shape'])}"
    for field, is_due in (("positions", wanted.has_positions), ("kept", bool(wanted.spec.keep))):
        if (field in entry) != is_due:
            return f"sample {entry['sample_idx']} {'lacks' if is_due else 'has'} {field}"
    return None

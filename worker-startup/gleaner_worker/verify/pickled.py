"""The content of a pkl.gz shard, read in one pass, with one sample in memory at a time."""

import numpy as np

from gleaner_reader.format.convert import Rows
from gleaner_reader.format.files import open_file
from gleaner_reader.run.pickle_shard import PickleShard

from .shard_content import Expectation, ShardContent, contradictions, wrong_values
from .statistics import LayerStatistics

_PICKLED_AS = {"fp16": np.dtype(np.float16), "fp32": np.dtype(np.float32)}


def read_pickle(path: str, metadata: dict[str, str], expect: Expectation, content: ShardContent) -> None:
    """Reads a pkl.gz shard into `content`, whose problems are its differences from `metadata` and `expect`.

    Raises ShardError.
    """
    dtype = _PICKLED_AS[expect.spec.dtype]
    rows, samples = int(metadata["rows"]), int(metadata["samples"])
    shard = PickleShard(open_file(path))
    content.problems += contradictions(shard.metadata, metadata)
    (site,) = expect.spec.sites
    layers, width = expect.capture.layers_of(site), expect.capture.width(site)
    statistics: dict[object, LayerStatistics] = {layer: LayerStatistics() for layer in layers}

    def take(layer: object, array: np.ndarray) -> str | tuple[tuple[int, ...], bool]:
        """The shape of a sample's values and whether they are finite, or a phrase for another type."""
        if array.dtype != dtype or array.ndim != 2 or array.shape[1] != width:
            return f"is {array.dtype} {list(array.shape)}, not {dtype} [rows, {width}]"
        return array.shape, layer not in statistics or statistics[layer].add(Rows(array, None))

    data = shard.load(take)
    if list(data) != list(layers):
        content.problems.append(f"does not hold exactly the layers {list(layers)}")
        return
    first = data[layers[0]]
    for layer, entries in data.items():
        if problem := next(filter(None, (_problem_of(entry, expect) for entry in entries)), None):
            content.problems.append(f"has a wrong layer {layer}: {problem}")
            return
        are_finite = [entry.pop("activation")[1] for entry in entries]
        if not all(are_finite):
            sample = entries[are_finite.index(False)]["sample_idx"]
            content.problems.append(f"has a wrong layer {layer}: sample {sample} has values that are not finite")
            content.has_wrong_values = True
        if entries != first:
            content.problems.append(f"has different samples in layer {layer} than in layer {layers[0]}")
            return
    content.sample_idx = [entry["sample_idx"] for entry in first]
    content.row_counts = [entry["shape"][0] for entry in first]
    if expect.has_positions:
        content.parts["positions"] = [np.array(entry["positions"], np.int64) for entry in first]
    if shard.metadata:
        content.facts = {"stats": shard.stats}
        by_sample = content.parts.get("positions") or [np.arange(count) for count in content.row_counts]
        positions = None if expect.pooled else np.concatenate([np.empty(0, np.int64), *by_sample])
        for name, actual in zip(expect.names, statistics.values(), strict=True):
            if actual.is_finite:
                content.problems += wrong_values(name, actual, shard.stats.get(name), False, positions)
    content.parts["preview"] = [entry["text_preview"] for entry in first]
    if expect.spec.keeps:
        content.parts["kept"] = [entry["kept"] for entry in first]
    if len(first) != samples or sum(content.row_counts) != rows:
        content.problems.append(
            f"holds {len(first)} samples and {sum(content.row_counts)} rows, but its metadata says {samples} and {rows}"
        )
    content.is_read = True


def _problem_of(entry: dict, expect: Expectation) -> str | None:
    if isinstance(entry["activation"], str):
        return f"sample {entry['sample_idx']} {entry['activation']}"
    shape, _ = entry["activation"]
    if shape != entry["shape"]:
        return f"sample {entry['sample_idx']} has shape {list(shape)} and says {list(entry['shape'])}"
    for field, is_due in (("positions", expect.has_positions), ("kept", bool(expect.spec.keeps))):
        if (field in entry) != is_due:
            return f"sample {entry['sample_idx']} {'lacks' if is_due else 'has'} {field}"
    return None

"""samples.json: the first samples of a stream as the model saw them, so that a person sees a wrong template at once."""

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice

import numpy as np

from ..records.samples.sample import Reject, Sample
from ..records.samples.sample_settings import SampleSettings

SAMPLES = "samples.json"
_SAMPLES, _ITEMS = 3, 1000
_END = 128  # tokens at each end of a sample; those between are left out
_BEFORE = 8  # tokens decoded before the last ones, which may share a character or a space with them
_CHARS = 100  # of a token


class FirstSamples:
    """The first three samples among the first thousand items of a stream, so that memory holds few items."""

    def __init__(self) -> None:
        self._samples: list[Sample] = []

    def note(self, items: Iterator[Sample | Reject]) -> Iterator[Sample | Reject]:
        """Yields every item, the first one when the samples are known: a shard may have one sample alone."""
        head = list[Sample | Reject]()
        for item in islice(items, _ITEMS):
            head.append(item)
            if isinstance(item, Sample):
                self._samples.append(item)
            if len(self._samples) == _SAMPLES:
                break
        return chain(head, items)

    def content(self, settings: SampleSettings) -> bytes | None:
        """At most 1 MB, which follows from the stream, the spec and the tokenizer; None without samples."""
        shown = [_shown(sample, settings.texts, settings.special_ids) for sample in self._samples]
        return json.dumps({"samples": shown}, ensure_ascii=False).encode() + b"\n" if shown else None


def _shown(sample: Sample, texts: Callable[[list[int]], list[str]], special_ids: Iterable[int]) -> dict:
    ids, at = sample.token_ids, np.arange(len(sample.token_ids))
    taken = np.isin(at, at if sample.positions is None else sample.positions)
    if sample.pools is not None:
        edges = np.zeros(len(ids) + 1, np.int64)
        np.add.at(edges, sample.pools[:, 0], 1)
        np.add.at(edges, sample.pools[:, 1], -1)
        taken &= np.cumsum(edges[:-1]) > 0
    if len(ids) > 2 * _END:
        ends = np.r_[at[:_END], at[-_END:]]
        tokens = texts(ids[:_END].tolist()) + texts(ids[-_END - _BEFORE :].tolist())[_BEFORE:]
    else:
        ends, tokens = at, texts(ids.tolist())
    return {
        "sample": sample.index,
        "line": sample.line + 1,
        "tokens": [text[:_CHARS] for text in tokens],
        "special": np.flatnonzero(np.isin(ids[ends], list(special_ids))).tolist(),
        "rows": None if taken.all() else np.flatnonzero(taken[ends]).tolist(),
        "mask": None if sample.mask is None else sample.mask[ends].tolist(),
        "left_out": len(ids) - len(ends),
    }

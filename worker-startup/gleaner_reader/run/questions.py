"""What a run answers about its rows: kept fields, texts, highest scores, features and moments."""

import hashlib
import json
import os
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from ..format.convert import Rows
from ..format.errors import ShardError
from ..format.tokenizer import open_tokenizer
from ..query.moments import Moments, add_samples, moments_of
from ..query.rows import Row, row_numbers, row_of, typed
from ..query.top import FOUND, HISTOGRAM_EDGES, Best, Feature, Top
from .shard import Shard
from .shards import Shards

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_ROWS_AT_ONCE = 1 << 14
_PIECE_BYTES = 1 << 25  # of moments
_MAX_GROUPS = 4096


class Questions(Shards[Shard]):
    """The part of a Run that answers questions. Memory does not grow with the run."""

    stream_numbers: list[int]  # of each shard

    @property
    def outputs(self) -> dict[str, dict]:
        """What the run computed from activations: `{"scope": {"kind": "features", "site", "k", …}}`, or empty."""
        return self.first.outputs

    def rows(
        self, ids: Sequence[int] | np.ndarray, *, context: int = 16, tokenizer: "Tokenizer | str | None" = None
    ) -> list[Row]:
        """The origin of rows, and the text around each: `context` tokens before and after. ids: as in `layer(…)[ids]`.

        tokenizer: that of the run's model: `export.tokenizer_of(run)`, or the path of its tokenizer.json. None for rows
        without text. Raises IndexError for a row that the run lacks, and what `export.open_tokenizer` raises.

        >>> row = run.rows([5], context=2, tokenizer="my-model/tokenizer.json")[0]
        >>> row.stream, row.sample, row.position, row.before + "|" + row.token
        (0, 0, 5, 't3 t4|t5')
        """
        if context < 0:
            raise ValueError(f"context is {context}; set it to at least 0")
        if isinstance(tokenizer, str | os.PathLike):
            tokenizer = open_tokenizer(os.fspath(tokenizer))
        numbers, found = row_numbers(ids, self.num_rows), {}
        shards = np.searchsorted(self.row_offsets, numbers, "right") - 1
        for place in np.argsort(numbers, kind="stable").tolist():  # reads each index once
            shard = int(shards[place])
            row = int(numbers[place] - self.row_offsets[shard])
            found[place] = row_of(self.stream_numbers[shard], self.shard_index(shard), row, context, tokenizer)
        return [found[place] for place in range(len(numbers))]

    def table(self, *fields: str) -> dict[str, np.ndarray]:
        """Kept fields as an array [rows] each: all rows of a sample have its value.

        An array is int64, float64, bool, or of texts up to 64 characters. Other values are in an array of objects, with
        None where a record lacks the field. Raises ValueError for a field that no record has.

        >>> run.table("n")["n"].shape == (run.num_rows,)
        True
        """
        values, counts, known = {name: [] for name in fields}, [np.empty(0, np.int64)], {}
        for number in range(len(self.shards)):
            counts.append(np.diff(self.shard_index(number).row_offsets))
            for kept in self._kept_of(number, known):
                for name, column in values.items():
                    column.append(kept.get(name))
        self._check_fields(fields, known)
        return {name: np.repeat(typed(column), np.concatenate(counts)) for name, column in values.items()}

    def top(
        self,
        layer: int,
        what: np.ndarray | tuple[str, int],
        n: int = 50,
        *,
        site: str | None = None,
        per_sample: int = 1,
        state: dict | None = None,
    ) -> Top:
        """The n rows with the highest scores. Scores that are not finite are left out.

        Args:
            what: a direction [width] for dot products in fp32, or ("probe", 0): a column of a stored projection.
            site: of a direction; needed if the run has several.
            per_sample: the most rows of one sample.
            state: a dict, filled after each shard and plain JSON. An equal call goes on from it.

        Raises:
            ValueError: the run has no such layer, site or column, or `what` or `state` does not fit it.

        >>> top = run.top(12, np.ones(8), n=3)
        >>> texts = [row.text for row in run.rows(top.rows, tokenizer="my-model/tokenizer.json")]
        """
        state, best, column, weights = {} if state is None else state, Best(1, n, per_sample), None, np.empty(0)
        if isinstance(what, tuple):
            site, column = str(what[0]), int(what[1])
        self._check(layer, site)
        site = self.first.site(site)
        if column is None:
            weights = np.asarray(what, np.float32)
            if weights.shape != (self.widths[site],) or not np.isfinite(weights).all():
                raise ValueError(
                    f"what is {weights.shape}; a direction in {site} is {self.widths[site]} finite numbers"
                )
        elif not 0 <= column < self.widths[site]:
            raise ValueError(f"there is no column {column} in {site}; it has {self.widths[site]}")
        question = json.dumps([site, layer, column, n, per_sample, [shard.size_bytes for shard in self.shards]])
        of = hashlib.sha256(question.encode() + weights.tobytes()).hexdigest()
        if state and state.get("of") != of:
            raise ValueError("Failed to resume: the state is of another question or of other shards; use state={}")
        if state:
            best.add(np.array([tuple(each) for each in state["best"]], FOUND))
        for number, begin, rows, found in self._scan(site, layer, state.get("shard", 0)):
            values = rows.to_float32()
            found["score"] = values @ weights if column is None else values[:, column]
            best.add(found)
            if begin + len(found) == self.shards[number].num_rows:
                state |= {"of": of, "shard": number + 1, "best": [list(each) for each in best.found.tolist()]}
        return Top(best.found["row"], best.found["score"], state)

    def feature(self, layer: int, id: int, *, name: str | None = None, n: int = 20) -> Feature:
        """One feature, as `features` reads many."""
        return self.features(layer, [id], name=name, n=n)[id]

    def features(self, layer: int, ids: Sequence[int], *, name: str | None = None, n: int = 20) -> dict[int, Feature]:
        """Where features of a sparse autoencoder are active, by their ids.

        name: of the features in the spec; needed if the run has several. n: the most rows in `top` of a feature. Raises
        ValueError for a layer, a name or an id that the run lacks.

        >>> run.features(12, [3, 5], n=10)[5].density  # doctest: +SKIP
        0.0125
        """
        name = self.features_name(layer, name)
        ids, width = list(dict.fromkeys(int(each) for each in ids)), self.outputs[name]["d_sae"]
        if wrong := [each for each in ids if not 0 <= each < width]:
            raise ValueError(f"there is no feature {wrong[0]} of {name}; it has {width}")
        size = max(ids, default=0) + 1
        place_of = np.full(size + 1, -1, np.int64)
        place_of[ids] = np.arange(len(ids))
        best, largest = Best(len(ids), n, 1), np.zeros(len(ids), np.float32)
        histogram = np.zeros((len(ids), len(HISTOGRAM_EDGES) - 1), np.int64)
        by_stream = {stream: np.zeros(len(ids), np.int64) for stream in self.stream_numbers}
        for number, first, block, found in self._scan(f"{name}_ids", layer):
            places = place_of[np.minimum(block.stored.view("<u4"), size)]  # -1, which pads, is the largest
            rows, columns = np.nonzero(places >= 0)
            if len(rows):
                values = self.shards[number].rows(name, layer, first + rows[0], first + rows[-1] + 1).to_float32()
                found, places = found[rows], places[rows, columns]
                found["group"], found["score"] = places, values[rows - rows[0], columns]
                by_stream[self.stream_numbers[number]] += np.bincount(places, minlength=len(ids))
                np.add.at(histogram, (places, np.searchsorted(HISTOGRAM_EDGES[1:-1], found["score"], "right")), 1)
                np.maximum.at(largest, places, found["score"])
                best.add(found)
        stats = [shard.stats.get(f"{name}.{layer}") for shard in self.shards]
        is_cut = any(isinstance(each, dict) and each.get("cut") not in (None, 0) for each in stats)
        active = sum(by_stream.values(), np.zeros(len(ids), np.int64))
        density, result = active / max(self.num_rows, 1), {}
        for place, each in enumerate(ids):
            counts = {stream: int(counts[place]) for stream, counts in by_stream.items()}
            facts = int(active[place]), float(density[place]), is_cut, float(largest[place]), counts, histogram[place]
            result[each] = Feature(name, layer, each, *facts, best.of(place))
        return result

    def moments(
        self, layer: int, site: str | None = None, *, by: str | None = None, streams: Sequence[int] | None = None
    ) -> dict[Hashable, Moments]:
        """Means and variances of a layer, by each value of a kept field; {None: …} of all without `by`.

        Equal runs give equal bits: samples are added in fp64 in their order. A record without the field counts as None.
        by: a field with at most 4,096 texts or numbers. streams: those to add; None for all. Raises ValueError where
        the run has no such moments, field or stream, or the field does not fit.

        >>> run.moments(12, by="label")["cat"].mean.shape  # doctest: +SKIP
        (2304,)
        """
        stored, totals, known = self.first.moments, {}, {}
        sites = [name for name, number in stored if number == layer]
        key = sites[0] if site is None and len(sites) == 1 else str(site), layer
        if key not in stored:
            names = ", ".join(f"{name}.{number}" for name, number in stored)
            raise ValueError(f"site is {site!r} and layer {layer!r}; {self.url} has moments of {names or 'no site'}")
        chosen = set(self.stream_numbers if streams is None else map(int, streams))
        if absent := chosen - set(self.stream_numbers):
            raise ValueError(f"there is no stream {min(absent)} in {self.url}")
        _, step = self.row_offsets, max(1, _PIECE_BYTES // (4 * stored[key]))  # row_offsets compares all headers
        for number in (n for n, stream in enumerate(self.stream_numbers) if stream in chosen):
            values = [fields.get(by) for fields in self._kept_of(number, known)]
            if any(isinstance(value, list | dict) for value in values):
                raise ValueError(f"{by} is a list or an object in some records; moments are by texts or numbers")
            if len(totals.keys() | set(values)) > _MAX_GROUPS:
                raise ValueError(f"{by} has more than {_MAX_GROUPS:,} values, and each has its own sums in memory")
            counts = np.diff(self.shard_index(number).row_offsets)
            for begin in range(0, len(counts), step):
                end = min(begin + step, len(counts))
                tensors = (f"{key[0]}.{layer}.{kind}" for kind in ("sum", "squares"))
                both = [self.shards[number].tensor(name, begin, end) for name in tensors]
                add_samples(totals, values[begin:end], counts[begin:end], *both)
        self._check_fields([] if by is None else [by], known)
        return {value: moments_of(*total) for value, total in totals.items()}

    def difference_of_means(self, layer: int, by: str, a: Hashable, b: Hashable, site: str | None = None) -> np.ndarray:
        """The mean where the kept field `by` is `a`, minus that where it is `b`: fp64 [width]. Raises as `moments`."""
        groups = self.moments(layer, site, by=by)
        for value in (a, b):
            if value not in groups:
                values = ", ".join(f"{each!r:.50}" for each in list(groups)[:10])
                raise ValueError(f"{by} is {value!r} in no sample of {self.url}; it is {values}")
        return groups[a].mean - groups[b].mean

    def features_name(self, layer: int, name: str | None) -> str:
        """The name of stored features of a layer; None selects the only ones. Raises ValueError and ShardError."""
        names = [each for each, output in self.outputs.items() if output["kind"] == "features"]
        name = names[0] if name is None and len(names) == 1 else str(name)
        if name not in names:
            raise ValueError(
                f"name is {name!r}; {self.url} stores the features {', '.join(names) or 'of no autoencoder'}"
            )
        if self.dtypes.get(f"{name}_ids") != "int32" or self.widths.get(f"{name}_ids") != self.widths.get(name):
            raise ShardError(f"{self.url} cannot be read: {name} and {name}_ids do not belong together")
        self._check(layer, f"{name}_ids")
        return name

    def _kept_of(self, number: int, known: dict) -> list[dict]:
        """The kept fields of each sample of a shard; their names are added to `known`."""
        index = self.shard_index(number)
        kept = index.kept or [{}] * len(index.sample_idx)
        known |= dict.fromkeys(name for fields in kept for name in fields)
        return kept

    def _check_fields(self, names: Sequence[str], known: dict) -> None:
        if wrong := [name for name in names if name not in known]:
            kept = ", ".join(list(known)[:20]) or "none: `keep` of a spec names them"
            raise ValueError(f"there is no field {wrong[0]!r} in {self.url}; it keeps {kept}")

    def _scan(self, site: str, layer: int, first_shard: int = 0) -> Iterator[tuple[int, int, Rows, np.ndarray]]:
        """Yields (shard, its first row, rows, FOUND of them without scores) in the order of storage; reads ahead."""

        def read(number: int, begin: int, end: int) -> tuple[int, int, Rows, np.ndarray]:
            shard, found = self.shards[number], np.zeros(end - begin, FOUND)
            rows, offsets = shard.rows(site, layer, begin, end), shard.index().row_offsets
            found["row"] = np.arange(begin, end) + self.row_offsets[number]
            samples = np.searchsorted(offsets, np.arange(begin, end), "right") - 1
            found["sample"] = offsets[samples] + self.row_offsets[number]
            if end == shard.num_rows:
                shard.release()
            return number, begin, rows, found

        waiting: Future | None = None
        with ThreadPoolExecutor(1, "scan") as pool:
            for number, shard in enumerate(self.shards[first_shard:], first_shard):
                step = max(_ROWS_AT_ONCE, shard.block_rows(site))
                for begin in range(0, shard.num_rows, step):
                    ready, waiting = waiting, pool.submit(read, number, begin, min(begin + step, shard.num_rows))
                    if ready:
                        yield ready.result()
            if waiting:
                yield waiting.result()

"""What a run answers about its rows: kept fields, texts, highest scores, features and moments."""

import hashlib
import json
import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..format.errors import ShardError
from ..format.index import Index
from .answers import FOUND, HISTOGRAM_EDGES, Feature, Moments, Row, Top, best, texts_of
from .layer import row_numbers
from .pieces import Piece, ahead, pieces
from .shard import Shard
from .shards import Shards

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_PIECE_BYTES = 1 << 25  # of moments
_MAX_GROUPS = 4096


class Questions(Shards[Shard]):
    """The part of a Run that answers questions. Memory does not grow with the run."""

    @property
    def outputs(self) -> dict[str, dict]:
        """What the run computed from activations: `{"scope": {"kind": "features", "site", "d_sae", …}}`, or empty."""
        return {name: each for name, each in self.first.stated("outputs").items() if isinstance(each, dict)}

    def rows(
        self, ids: Sequence[int] | np.ndarray, *, context: int = 16, tokenizer: "Tokenizer | None" = None
    ) -> list[Row]:
        """The origin of rows, and the text around each: `context` tokens before and after. ids: as in `layer(…)[ids]`.

        tokenizer: `export.tokenizer_of(run)`; None for no text. Raises IndexError for a row that the run lacks.

        >>> row = run.rows([5], context=2, tokenizer=gleaner_reader.export.open_tokenizer("my-model"))[0]
        >>> row.stream, row.sample, row.position, row.before + "|" + row.token
        (0, 0, 5, ' t3 t4| t5')
        """
        if context < 0:
            raise ValueError(f"context is {context}; set it to at least 0")
        numbers = row_numbers(ids, self.num_rows).tolist()
        found = {number: self._row(number, context, tokenizer) for number in sorted(set(numbers))}  # by shard
        return [found[number] for number in numbers]

    def _row(self, number: int, context: int, tokenizer: "Tokenizer | None") -> Row:
        shard = int(np.searchsorted(self.row_offsets, number, "right")) - 1
        index, row = self.shard_index(shard), number - int(self.row_offsets[shard])
        sample = int(np.searchsorted(index.row_offsets, row, "right")) - 1
        position = None if index.positions is None else int(index.positions[row])
        tokens, texts = [], [None] * 4
        if index.token_ids is not None:
            tokens = index.token_ids[slice(*index.sample_offsets[sample : sample + 2])].tolist()
        if tokenizer and tokens:
            texts = texts_of(tokens, position, context, partial(tokenizer.decode, skip_special_tokens=False))
        token_id = tokens[position] if position is not None and tokens else None
        kept = index.kept[sample] if index.kept else {}
        return Row(self.shards[shard].stream, int(index.sample_idx[sample]), position, token_id, *texts, kept=kept)

    def table(self, *fields: str) -> dict[str, np.ndarray]:
        """Kept fields as an array [rows] each: all rows of a sample have its value.

        An array is int64, float64 or bool, or of objects: texts, mixed values, and None where a record lacks the field.
        Raises ValueError for a field that no record has.

        >>> run.table("n")["n"].shape == (run.num_rows,)
        True
        """
        values, counts = {name: [] for name in fields}, [np.empty(0, np.int64)]
        for _, index, kept in self._kept_of(self.shards, fields):
            counts.append(np.diff(index.row_offsets))
            for name, column in values.items():
                column += [record.get(name) for record in kept]
        return {name: np.repeat(_typed(column), np.concatenate(counts)) for name, column in values.items()}

    def top(
        self,
        layer: int,
        what: np.ndarray | int | tuple[str, int],
        n: int = 50,
        *,
        site: str | None = None,
        per_sample: int = 1,
        context: int = 16,
        tokenizer: "Tokenizer | None" = None,
        state: dict | None = None,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Top:
        """The n rows with the highest scores, and their texts; scores that are not finite are left out.

        Args:
            what: a direction [width] for dot products in fp32, ("probe", 0) for a column of a stored projection, or the
                number of a stored feature.
            site: of a direction, or the name of the features; needed if the run has several.
            per_sample: the most rows of one sample.
            context, tokenizer: as `rows` takes them.
            state: a dict, filled while rows are read, and plain JSON; an equal call goes on from it.
            progress: called with the number of rows that are read, and of all.

        Raises ValueError where one does not fit the run.

        >>> top = run.top(12, np.ones(8), n=3)
        >>> [row.stream for row in top.origins], top.scores.shape
        ([0, 0, 7], (3,))
        """
        if isinstance(what, int | np.integer):
            options = {"per_sample": per_sample, "context": context, "tokenizer": tokenizer}
            return self.feature(layer, int(what), name=site, n=n, state=state, progress=progress, **options).top
        site, column = what if isinstance(what, tuple) else (site, None)
        self._check(layer, site)
        site = self.first.site(site)
        width, weights = self.widths[site], np.asarray([] if column is not None else what, np.float32)
        if not (weights.shape == (width,) and np.isfinite(weights).all() if column is None else 0 <= column < width):
            asked = f"of {weights.shape}" if column is None else f"column {column}"
            raise ValueError(f"what is {asked}; {site} has {width} columns, and a direction as many finite numbers")
        state = self._resumed(state, site, layer, column, n, per_sample, weights.tolist())
        found = best(_found(state), n, per_sample)
        for piece in ahead(pieces(self, site, layer, state["rows"])):
            values = piece.rows.to_float32()
            scores = values @ weights if column is None else values[:, column]
            (rows,) = np.nonzero(scores > (found["score"][-1] if len(found) == n else -np.inf))
            found = best(found, n, per_sample, (piece, rows, scores[rows], 0))
            state |= {"rows": piece.end, "best": found.tolist()}
            progress(piece.end, self.num_rows)
        return Top(found["row"], found["score"], self.rows(found["row"], context=context, tokenizer=tokenizer))

    def feature(self, layer: int, id: int, **options) -> Feature:
        """One feature, as `features` reads many."""
        return self.features(layer, [id], **options)[id]

    def features(
        self,
        layer: int,
        ids: Sequence[int],
        *,
        name: str | None = None,
        n: int = 20,
        per_sample: int = 1,
        context: int = 16,
        tokenizer: "Tokenizer | None" = None,
        state: dict | None = None,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> dict[int, Feature]:
        """Where features of a sparse autoencoder are active, by their ids, and the n strongest rows of each.

        name: as in the spec; needed if there are several. The other options are those of `top`. Raises ValueError for a
        layer, name or id that the run lacks.

        >>> run.features(12, [3, 5], n=10)[5].density  # doctest: +SKIP
        0.0125
        """
        name, wanted = self.features_name(layer, name), np.unique(np.asarray(ids, np.int64))
        count, begun = len(wanted), self._resumed(state, name, layer, wanted.tolist(), n, per_sample)
        found, nothing = best(_found(begun), n, per_sample), np.zeros((count, len(HISTOGRAM_EDGES) - 1), np.int64)
        histogram = np.array(begun.get("histogram", nothing), np.int64)
        zeros, active = np.zeros(count, np.int64), begun.get("by_stream", {})
        by_stream = {each.stream: np.array(active.get(str(each.stream), zeros), np.int64) for each in self.shards}
        for piece, rows, each, values in self.active(layer, name, wanted, begun["rows"]):
            groups = np.searchsorted(wanted, each)
            by_stream[int(piece.columns["stream"][0])] += np.bincount(groups, minlength=count)
            histogram += np.histogram2d(groups, values, (np.arange(count + 1), HISTOGRAM_EDGES))[0].astype(np.int64)
            found = best(found, n, per_sample, (piece, rows, values, groups))
            if state is not None:
                counts = {str(stream): each.tolist() for stream, each in by_stream.items() if each.any()}
                state |= {
                    "rows": piece.end,
                    "best": found.tolist(),
                    "histogram": histogram.tolist(),
                    "by_stream": counts,
                }
            progress(piece.end, self.num_rows)
        stats = [shard.stats.get(f"{name}.{layer}") for shard in self.shards]
        is_cut, result = any(isinstance(each, dict) and each.get("cut") for each in stats), {}
        origins = self.rows(found["row"], context=context, tokenizer=tokenizer)
        rows_of = dict.fromkeys(by_stream, 0)
        for shard in self.shards:
            rows_of[shard.stream] += shard.num_rows
        for place, id in enumerate(wanted.tolist()):
            counts = {stream: int(each[place]) for stream, each in by_stream.items()}
            densities = {stream: each / max(rows_of[stream], 1) for stream, each in counts.items()}
            active, here = sum(counts.values()), np.flatnonzero(found["group"] == place)
            top = Top(found["row"][here], found["score"][here], [origins[row] for row in here.tolist()])
            facts = active, active / max(self.num_rows, 1), is_cut, float(top.scores.max(initial=0))
            result[id] = Feature(name, layer, id, *facts, counts, densities, histogram[place], top)
        return result

    def _resumed(self, state: dict | None, *question: Any) -> dict:
        """The state, or a new one, of a question. Raises ValueError for the state of another question."""
        asked = json.dumps([*question, self.first.metadata, [shard.size_bytes for shard in self.shards]])
        of, state = hashlib.sha256(asked.encode()).hexdigest(), {} if state is None else state
        if state.setdefault("of", of) != of:
            raise ValueError("Failed to resume: the state is of another question or of other shards; use state={}")
        state.setdefault("rows", 0)
        return state

    def active(
        self, layer: int, name: str, ids: np.ndarray | None = None, begin: int = 0
    ) -> Iterator[tuple[Piece, np.ndarray, np.ndarray, np.ndarray]]:
        """Yields (piece of ids, rows in it, ids, fp32 values) of stored features. ids: those wanted; None for all."""
        width, strengths = self.outputs[name]["d_sae"], self.layer(layer, name, dtype="float32")
        wanted = np.append(np.full(width, ids is None), False)  # -1, which pads, is the last one
        if ids is not None and (wrong := ids[(ids < 0) | (ids >= width)]).size:
            raise ValueError(f"there is no feature {wrong[0]} of {name}; it has {width}")
        wanted[[] if ids is None else ids] = True
        for piece in ahead(pieces(self, f"{name}_ids", layer, begin)):
            stored = piece.rows.stored
            rows, columns = np.nonzero(wanted[np.minimum(stored.view("<u4"), width)])
            distinct, places = np.unique(rows, return_inverse=True)
            yield piece, rows, stored[rows, columns], strengths[piece.begin + distinct][places, columns]

    def moments(
        self, layer: int, site: str | None = None, *, by: str | None = None, streams: Sequence[int] | None = None
    ) -> dict[Hashable, Moments]:
        """Means and variances of a layer, by each value of a kept field; {None: …} of all without `by`.

        Samples are added in fp64 in their order, so equal runs give equal bits. A record without the field counts as
        None. by: at most 4,096 texts or numbers. Raises ValueError for moments, a field or a stream that the run lacks.

        >>> run.moments(12, by="label")["cat"].mean.shape  # doctest: +SKIP
        (2304,)
        """
        stored, known, totals = self.first.moments, {shard.stream for shard in self.shards}, {}
        sites = [name for name, number in stored if number == layer]
        key = sites[0] if site is None and len(sites) == 1 else str(site), layer
        if key not in stored:
            names = ", ".join(f"{name}.{number}" for name, number in stored)
            raise ValueError(f"site is {site!r} and layer {layer!r}; {self.url} has moments of {names or 'no site'}")
        chosen = known if streams is None else set(streams)
        if absent := chosen - known:
            raise ValueError(f"there is no stream {min(absent)} in {self.url}")
        step, shards = max(1, _PIECE_BYTES // (4 * stored[key])), [s for s in self._opened if s.stream in chosen]
        for shard, index, kept in self._kept_of(shards, [] if by is None else [by]):
            values, counts = [record.get(by) for record in kept], np.diff(index.row_offsets)
            if shard.moments.get(key) != stored[key]:
                raise ShardError(f"{shard.url} lacks the moments of {key[0]}.{layer} that other shards of the run have")
            if any(isinstance(each, list | dict) for each in values) or len({*totals, *values}) > _MAX_GROUPS:
                raise ValueError(f"{by} is not of at most {_MAX_GROUPS:,} texts or numbers, whose sums are in memory")
            if len({isinstance(each, bool) for each in (*totals, *values) if each is not None}) > 1:
                raise ValueError(f"{by} is true or false in some records and a text or a number in others")
            for begin in range(0, len(kept), step):
                here = slice(begin, min(begin + step, len(kept)))
                both = (shard.tensor(f"{key[0]}.{layer}.{kind}", here.start, here.stop) for kind in ("sum", "squares"))
                for value, count, *sums in zip(values[here], counts[here], *both, strict=True):
                    total = totals.setdefault(value, [0, np.zeros((2, stored[key]))])
                    total[0] += int(count)
                    total[1] += sums
        means = {value: (count, *(total / count)) for value, (count, total) in totals.items()}
        return {value: Moments(n, mean, np.maximum(square - mean**2, 0)) for value, (n, mean, square) in means.items()}

    def difference_of_means(self, layer: int, by: str, a: Hashable, b: Hashable, site: str | None = None) -> np.ndarray:
        """The mean where the kept field `by` is `a`, minus that where it is `b`: fp64 [width]. Raises as `moments`."""
        groups = self.moments(layer, site, by=by)
        if absent := [value for value in (a, b) if value not in groups]:
            raise ValueError(f"{by} is {absent[0]!r} in no sample of {self.url}")
        return groups[a].mean - groups[b].mean

    def features_name(self, layer: int, name: str | None) -> str:
        """The name of stored features of a layer; None selects the only ones. Raises ValueError and ShardError."""
        outputs = {key: each for key, each in self.outputs.items() if each.get("kind") == "features"}
        name, widths = next(iter(outputs)) if name is None and len(outputs) == 1 else str(name), self.widths
        if name not in outputs:
            raise ValueError(f"name is {name!r}; {self.url} stores the features {', '.join(outputs) or 'of no SAE'}")
        site, d_sae = outputs[name].get("site"), outputs[name].get("d_sae")
        is_known = type(d_sae) is int and 0 < d_sae <= 1 << 24 and re.fullmatch("[a-z_]{1,40}", str(site))
        if not is_known or self.dtypes.get(f"{name}_ids") != "int32" or widths[f"{name}_ids"] != widths.get(name):
            raise ShardError(f"{self.url} cannot be read: its {name} and {name}_ids are not features of an SAE")
        self._check(layer, f"{name}_ids")
        return name

    def _kept_of(self, shards: Sequence[Shard], fields: Sequence[str]) -> Iterator[tuple[Shard, Index, list[dict]]]:
        """Yields each shard, its index and the kept fields of its samples. Raises ValueError for an unknown field."""
        known = {}
        for shard in shards:
            index = self.index(shard)
            kept = index.kept or [{}] * len(index.sample_idx)
            known |= dict.fromkeys(name for record in kept for name in record)
            yield shard, index, kept
        if wrong := [name for name in fields if name not in known]:
            kept = ", ".join(list(known)[:20]) or "none: `keep` of a spec names them"
            raise ValueError(f"there is no field {wrong[0]!r} in {self.url}; it keeps {kept}")


def _found(state: dict) -> np.ndarray:
    return np.array([tuple(each) for each in state.get("best", [])], FOUND)


def _typed(values: list) -> np.ndarray:
    kinds = set(map(type, values))
    dtype = bool if kinds == {bool} else np.int64 if kinds == {int} else float if kinds <= {int, float} else object
    try:
        return np.fromiter(values, dtype, len(values))
    except OverflowError:  # a number beyond 64 bits
        return np.fromiter(values, object, len(values))

"""A run, or a part of a run: its manifest, its shards in order, and every way to read across them."""

import json
import re
import time
import warnings
from bisect import bisect_right
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from ..format.convert import check_kind, finish
from ..format.errors import ShardError, printable
from ..format.files import PARALLEL, Folder
from ..format.forks import cached_property
from .formats import open_shard
from .questions import Questions
from .shard import Shard
from .status import Line, Status, dropped_streams, state_of, table_html

_SHARD = re.compile(r"(?:tpu_(\d{1,9})/)?shard_(\d{4,9})\.(safetensors|safetensors\.zst|pkl\.gz)")
_STREAM_FOLDER = re.compile(r".*/tpu_(\d{1,9})")
_MAX_MANIFEST_BYTES = 1 << 26
_SHOWN = 3  # layers in the repr of a sample
_SHOWN_CHARS = 60  # of a value of the manifest


@dataclass(frozen=True)
class Sample:
    """The stored data of one sample; `Run.sample` reads it.

    >>> sample = run.sample(0, 5)
    >>> list(sample.activations), sample.index
    (['resid_post.4', 'resid_post.12'], 5)
    """

    stream: int
    index: int
    activations: dict[str, np.ndarray]  # "resid_post.12" -> [rows, d_model]
    token_ids: np.ndarray | None  # int32; a pkl.gz has none
    positions: np.ndarray | None  # int32 [rows]: the position of each row's token; None for pools of tokens
    kept: dict
    line: int | None = None  # zero-based; line and chunk only of a run with over_long chunk or pack
    chunk: int | None = None
    token_lines: np.ndarray | None = None  # int64: the line of each token; only of a run with over_long pack
    span_idx: np.ndarray | None = None  # int32 [rows]: the span of each row; only of a run with one row for each span
    mask: np.ndarray | None = None  # uint8: 1 for each token that `mask` of the run marks; only of such a run

    def __repr__(self) -> str:
        facts = [] if self.token_ids is None else [f"{len(self.token_ids):,} tokens"]
        facts += [f"{name} {list(values.shape)}" for name, values in list(self.activations.items())[:_SHOWN]]
        if len(self.activations) > _SHOWN:
            facts.append(f"and {len(self.activations) - _SHOWN:,} more layers")
        return f"<Sample {self.index} of stream {self.stream}: {', '.join(facts)}>"


class Run(Questions):
    """The shards that a run has when it is opened; `gleaner_reader.open` opens one.

    layer(12)                 the rows of a layer, in the order of storage
    batches(12)               the rows of a layer or of several, shuffled for training
    sample("007", 41)         everything that is stored of one sample
    index(shard)              the samples of a shard, and the rows and tokens of each
    status(), wait()          how much of the run is stored now; the run, once it is complete
    rows([5]), table("n")     the text around rows; kept fields, row by row
    top(12, direction)        the rows with the highest scores, also by a column of a stored projection
    feature(12, 345)          what is stored of a feature of a sparse autoencoder; features() of many at once
    moments(12, by="label")   means and variances from stored moments; difference_of_means() of two values
    sites, layers             what is stored, with widths, dtypes, d_model and dtype
    num_samples, num_rows     counts over all shards, also num_tokens
    streams, shards           the shards by stream and number, and all of them in order
    problems, is_complete     why the run is not complete; empty if it is
    manifest, model, files    manifest.json and model.json, or None; all files of the folder by their path in it

    >>> run.is_complete, list(run.streams)
    (True, [0, 7])
    """

    def __init__(self, folder: Folder):
        self._folder, files = folder, folder.files()
        by_stream: dict[int, dict[int, Shard]] = {}
        for name, file in files.items():
            if match := _SHARD.fullmatch(name):
                stream, number = int(match[1] or _stream_of(folder.url)), int(match[2])
                if number in by_stream.setdefault(stream, {}):
                    raise ShardError(f"{file.url} and {by_stream[stream][number].url} are both shard {number}")
                by_stream[stream][number] = open_shard(file)
                by_stream[stream][number].stream = stream
        self.streams = {
            stream: [by_stream[stream][number] for number in sorted(by_stream[stream])] for stream in sorted(by_stream)
        }
        super().__init__(folder.url, [shard for shards in self.streams.values() for shard in shards])
        # The last shard may be of another attempt than metadata.json, so its own header counts.
        self._stream_of = {shard: stream for stream, shards in self.streams.items() for shard in shards[:-1]}
        self._accepted: dict[int, set[Shard]] = {}  # by stream, the shards whose headers metadata.json repeats
        self._numbers = {stream: sorted(by_stream[stream]) for stream in self.streams}
        if not self.shards and "manifest.json" not in files:
            raise FileNotFoundError(
                f"Failed to open {self.url}: there are no shards, such as tpu_0/shard_0001.safetensors; "
                f"{_contents(list(files))}. Pass the folder activations/RUN of a run"
            )
        self.manifest = _read_object(files.get("manifest.json"), "manifest")
        self.files = files

    def __repr__(self) -> str:
        """Reads no shard. Leaves out the values that the manifest lacks."""
        return printable(f"<Run {self.url}: {', '.join(self._facts())}>")

    def _repr_html_(self) -> str:
        return table_html({"run": self.url, "has": ", ".join(self._facts()), "state": state_of(self.problems)})

    def status(self) -> Status:
        """How much of the run is stored now. The shards of this object stay those of the time when it was opened.

        >>> run.status().bar()
        '[####################] 2 of 2 streams, 6 shards, 240 samples, 0.00 GB'
        """
        return Run(self._folder)._status()

    def _status(self) -> Status:
        """The status of a run that was just opened. Reads the header of the last shard of each stream."""
        last = [shards[-1] for shards in self.streams.values()]
        return Status(
            run=self.url,
            streams=max(dropped_streams(self.url), len(self.streams)),
            complete_streams=sum(shard.is_final for shard in last),
            shards=len(self.shards),
            samples=sum(shard.last_sample + 1 for shard in last),
            size_bytes=sum(shard.size_bytes for shard in self.shards),
            problems=tuple(self.problems),
        )

    def wait(self, *, every_s: float = 10.0, timeout_s: float | None = None, progress: bool = True) -> "Run":
        """Waits until the run is complete, and returns it with all its shards.

        Args:
            every_s: seconds between two looks at the folder.
            timeout_s: seconds after which it gives up; None to wait for ever.
            progress: whether to show a bar.

        Raises:
            TimeoutError: the run is not complete after `timeout_s`.
            ValueError: the folder is that of one stream, which does not show when its run is complete.

        >>> run = run.wait(timeout_s=3600)
        """
        if _STREAM_FOLDER.fullmatch(self.url.replace("\\", "/")):
            raise ValueError(f"{self.url} is the folder of one stream; open the folder of its run, and wait for that")
        if self.is_complete:
            return self
        began = time.monotonic()
        with Line(progress) as line:
            while True:
                run = Run(self._folder)
                line.show(run._status().bar())
                if run.is_complete:
                    return run
                left_s = float("inf") if timeout_s is None else began + timeout_s - time.monotonic()
                if left_s <= 0:
                    raise TimeoutError(
                        f"{run.url} is not complete after {timeout_s:g} s: {'; '.join(run.problems)}; "
                        "`gleaner status` says what it waits for"
                    )
                time.sleep(min(every_s, left_s))

    def _facts(self) -> list[str]:
        result = (self.manifest or {}).get("result")
        spec = (self.manifest or {}).get("spec")
        facts = [f"{len(self.shards):,} shards of {len(self.streams):,} streams"]
        if isinstance(result, dict):
            facts += [f"{result[name]:,} {name}" for name in ("samples", "rows") if type(result.get(name)) is int]
        if isinstance(spec, dict):
            facts += [
                f"{name} {spec[name]:.{_SHOWN_CHARS}}"
                for name in ("model", "layers", "dtype")
                if isinstance(spec.get(name), str)
            ]
            if isinstance(spec.get("sites"), list):
                facts.append(f"sites {', '.join(map(str, spec['sites'])):.{_SHOWN_CHARS}}")
        return facts

    @cached_property
    def model(self) -> dict | None:
        """model.json: the name, the revision and the digests of the model's files; None without the file."""
        return _read_object(self.files.get("model.json"), "model.json")

    @cached_property
    def problems(self) -> list[str]:
        """The reasons why the run is incomplete; empty for a complete run."""
        problems = []
        if self.manifest is None:
            problems.append("it has no manifest.json")
        elif not isinstance(result := self.manifest.get("result"), dict):
            problems.append("its manifest has no result: the run has not completed")
        else:
            stated = result.get("shards")
            if stated != len(self.shards):
                problems.append(f"{len(self.shards)} of its {stated} shards are here")
        self._read_headers([shards[-1] for shards in self.streams.values()])
        for stream, numbers in self._numbers.items():
            # A name can state any number up to 999,999,999, so absent numbers are counted, not listed.
            held = [number for number in numbers if number > 0]
            if absent := numbers[-1] - len(held):
                first = next(due for due, number in enumerate(held, 1) if number != due)
                more = f", and {absent - 1} more" if absent > 1 else ""
                problems.append(f"shard {first} of stream {stream} is missing{more}")
            if not self.streams[stream][-1].is_final:
                problems.append(f"stream {stream} ends with shard {numbers[-1]}, which is not its last")
        return problems

    @property
    def is_complete(self) -> bool:
        """Whether every shard of the run is here, and the run has completed."""
        return not self.problems

    def sample(
        self,
        stream: int | str,
        index: int,
        *,
        layers: Sequence[int] | None = None,
        site: str | None = None,
        as_: str = "numpy",
        dtype: str | None = None,
    ) -> Sample:
        """Reads one sample.

        Args:
            stream: its number, or its name such as "007".
            index: counts from 0 in the stream, over stored and rejected samples.
            layers: the layers to read; None for all.
            site: the site to read; None for all.
            as_: as `layer` takes it.
            dtype: as `layer` takes it.

        Raises:
            LookupError: the sample was rejected, or is not in these shards.
            ValueError: the run has no such layer or site.

        >>> sample = run.sample("007", 41, layers=[12])
        >>> sample.activations["resid_post.12"].shape == (len(sample.token_ids), run.d_model)
        True
        """
        number = int(stream)
        if site is not None:
            self.first.site(site)
        if absent := [layer for layer in layers or () if layer not in self.layers]:
            raise ValueError(f"layer is {absent[0]!r}; {self.url} has layers {', '.join(map(str, self.layers))}")
        shard = self._shard_with(number, index)
        held = self.index(shard)
        place = held.find(index)
        if place is None:
            raise LookupError(
                f"sample {index} of stream {number} was rejected; rejects.jsonl beside its shards says why"
            )
        begin, end = (int(offset) for offset in held.row_offsets[place : place + 2])
        wanted = [
            (name, layer)
            for name, layer in shard.names
            if (layers is None or layer in layers) and (site is None or name == site)
        ]
        check_kind(as_, dtype)
        arrays = [finish(rows, as_, dtype) for rows in shard.rows_of_each(wanted, begin, end)]

        def of_tokens(values: np.ndarray | None) -> np.ndarray | None:
            return None if values is None else values[slice(*held.sample_offsets[place : place + 2])]

        return Sample(
            stream=number,
            index=index,
            activations={f"{name}.{layer}": array for (name, layer), array in zip(wanted, arrays, strict=True)},
            token_ids=of_tokens(held.token_ids),
            positions=None if held.positions is None else held.positions[begin:end],
            kept=held.kept[place] if held.kept else {},
            line=None if held.lines is None else int(held.lines[place]),
            chunk=None if held.chunks is None else int(held.chunks[place]),
            token_lines=of_tokens(held.token_lines),
            span_idx=None if held.span_idx is None else held.span_idx[begin:end],
            mask=of_tokens(held.token_mask),
        )

    def summary_name(self, stream: int) -> str:
        """The name of metadata.json of a stream; empty without the file."""
        return next((name for name in (f"tpu_{stream}/metadata.json", "metadata.json") if name in self.files), "")

    def _read_headers(self, shards: Sequence[Shard]) -> None:
        """Reads metadata.json of the streams, and the headers that it does not repeat."""
        due = list({self._stream_of[shard] for shard in shards if shard in self._stream_of} - self._accepted.keys())
        with ThreadPoolExecutor(PARALLEL, "metadata") as pool:
            self._accepted |= dict(zip(due, pool.map(self._accept, due), strict=True))
        super()._read_headers([s for s in shards if s not in self._accepted.get(self._stream_of.get(s, -1), ())])

    def _accept(self, stream: int) -> set[Shard]:
        try:
            summary = _read_object(self.files.get(self.summary_name(stream)), "summary of a stream") or {"shards": []}
            by_name = {entry["filename"]: entry for entry in summary["shards"]}
        except (ShardError, KeyError, TypeError):  # `verify` reports it
            return set()
        return {shard for shard in self.streams[stream][:-1] if shard.accept(by_name.get(shard.name, {}))}

    def _shard_with(self, stream: int, index: int) -> Shard:
        if stream not in self.streams:
            raise LookupError(f"there is no stream {stream} in {self.url}; it has {', '.join(map(str, self.streams))}")
        shards = self.streams[stream]
        self._read_headers(shards)
        place = bisect_right([shard.first_sample for shard in shards], index) - 1
        if place < 0 or index > shards[place].last_sample:
            raise LookupError(
                f"sample {index} of stream {stream} is not here: the shards hold samples "
                f"{shards[0].first_sample} to {shards[-1].last_sample}" + ("" if self.is_complete else ", with gaps")
            )
        return shards[place]


def open_run(folder: Folder) -> Run:
    """Opens a run. Warns when the run is not complete. Raises FileNotFoundError and ShardError."""
    run = Run(folder)
    if run.problems:
        warnings.warn(printable(f"{run.url} is not complete: {'; '.join(run.problems)}"), stacklevel=3)
    return run


def _stream_of(url: str) -> str:
    """The number in a folder `tpu_N`; 0 for any other folder that holds shards directly."""
    match = _STREAM_FOLDER.fullmatch(url.replace("\\", "/"))
    return match[1] if match else "0"


def _contents(names: list[str]) -> str:
    """Describes a folder without shards by its first five entries."""
    folders = sorted({name.partition("/")[0] + ("/" if "/" in name else "") for name in names})
    return (
        f"it has {printable(', '.join(folders[:5]))}{' and more' if len(folders) > 5 else ''}"
        if folders
        else "it is empty"
    )


def _read_object(file, what: str) -> dict | None:
    if file is None:
        return None
    if file.size > _MAX_MANIFEST_BYTES:
        raise ShardError(f"{file.url} is not a {what}: it has {file.size} bytes")
    try:
        value = json.loads(bytes(file.read(0, file.size)))
    except (ValueError, RecursionError) as error:
        raise ShardError(f"{file.url} is not a {what}: {str(error)[:200]}") from error
    if not isinstance(value, dict):
        raise ShardError(f"{file.url} is not a {what}: it is not a JSON object")
    return value

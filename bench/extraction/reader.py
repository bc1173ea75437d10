"""Shuffled batches by gleaner_reader and three common ways, from a disk and from a bucket of 20 ms and 100 MB/s.

1,000 shards of 512 rows have one layer. The same rows are in tar files, with a member for each row, and in Arrow files.
Every way mixes at least 64 MiB of rows. The rates are those of the first 31 batches, with the start.
"""

import io
import json
import os
import resource
import statistics
import tarfile
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from urllib.parse import quote

import datasets
import pyarrow as pa
import torch
import webdataset
from safetensors.torch import load, save
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

import gleaner_reader
from gleaner_reader.run.formats import read_facts
from gleaner_worker.storage.upload_content import BytesContent

from .sink import BUCKET, Network, running_sink
from .timing import Figure, Report
from .workplace import Workplace

CLAIM = "shuffled batches of 4,096 rows of one layer, 896 values in bf16, from 1,000 shards in 10 streams"
_STREAMS, _ROWS, _WIDTH, _BATCH_ROWS, _MORE_BATCHES = 10, 512, 896, 4096, 30
_MIXED_BYTES = 1 << 26
_MIXED_ROWS = _MIXED_BYTES // (2 * _WIDTH)

Where = Callable[[int, str], str]  # the path or the address of a file, by its number and kind


def run(place: Workplace) -> Report:
    report, folder = Report(CLAIM), Path(place.path("reader"))
    shards = 40 if place.is_quick else 1000
    entries = [_write(folder, number, number >= shards - _STREAMS) for number in range(shards)]
    for stream in range(_STREAMS):
        path = folder / f"run/tpu_{stream}/metadata.json"
        path.write_text(json.dumps({"shards": entries[stream::_STREAMS]}))
    (folder / "run/manifest.json").write_text(json.dumps({"result": {"shards": shards}}))
    on_disk = _sides(str(folder / "run"), lambda number, kind: str(folder / _name(number, kind)), shards, 0)
    _measure(report, "disk", on_disk, place.rounds(3))
    with running_sink(network=Network(latency_s=0.02, answers_bytes_per_s=100e6)) as bucket:

        def put(path: Path) -> None:
            bucket.create(str(path.relative_to(folder)), BytesContent(path.read_bytes()), {}, "text/plain")

        with ThreadPoolExecutor(32) as pool:
            list(pool.map(put, (path for path in folder.rglob("*") if path.is_file())))
        base = f"{os.environ['STORAGE_EMULATOR_HOST']}/download/storage/v1/b/{BUCKET}/o/"
        in_bucket = _sides(
            f"gs://{BUCKET}/run",
            lambda number, kind: f"{base}{quote(_name(number, kind), safe='')}?alt=media",
            shards,
            4,
        )
        _measure(report, "bucket", in_bucket, 1)
    return report


def _measure(report: Report, where: str, sides: dict[str, Callable[[], Iterable]], rounds: int) -> None:
    firsts, rates, costs = ({name: [] for name in sides} for _ in range(3))
    for _ in range(rounds):
        for name, make in sides.items():
            began, cpu_s = time.perf_counter(), _cpu_seconds()
            batches = iter(make())
            vectors = len(next(batches))
            firsts[name].append(time.perf_counter() - began)
            vectors += sum(map(len, islice(batches, _MORE_BATCHES)))
            rates[name].append(vectors / (time.perf_counter() - began))
            del batches  # ends the workers of a loader, whose processor time counts then
            costs[name].append((_cpu_seconds() - cpu_s) / vectors)
    ours, *others = sides
    for name in others:
        ratios = [other / own for other, own in zip(costs[name], costs[ours], strict=True)]
        middle = statistics.median(ratios)
        what = f"{where}: vectors for each second of processor time, ours against {name}"
        report.figures.append(Figure(what, middle, None, min(ratios), max(ratios)))
    for name in sides:
        speed = f"{max(rates[name]):,.0f} vectors/s, {1 / min(costs[name]):,.0f} for each second of processor time"
        report.notes.append(f"{where}, {name}: the first batch after {min(firsts[name]):.2f} s, {speed}")


def _sides(run: str, where: Where, shards: int, workers: int) -> dict[str, Callable[[], Iterable]]:
    files = {kind: [where(number, kind) for number in range(shards)] for kind in ("safetensors", "tar", "arrow")}
    by_hand = _Shards(files["safetensors"])
    return {
        "gleaner_reader": lambda: gleaner_reader.open(run).batches(0, batch_rows=_BATCH_ROWS, as_="torch"),
        f"DataLoader, {workers} workers": lambda: DataLoader(by_hand, batch_size=None, num_workers=workers),
        "WebDataset": partial(_web_dataset, files["tar"]),
        "datasets": partial(_datasets, files["arrow"]),
    }


class _Shards(IterableDataset):
    """The shards in random order, as a program reads them by hand: 64 MiB of rows are mixed and returned."""

    def __init__(self, files: list[str]):
        self._files = files

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        number, count = (info.id, info.num_workers) if info else (0, 1)
        files = self._files[number::count]
        for chosen in torch.randperm(len(files)).split(max(1, _MIXED_ROWS // count // _ROWS)):
            rows = torch.cat([_load(files[place]) for place in chosen.tolist()])
            for places in torch.randperm(len(rows)).split(_BATCH_ROWS):
                yield rows[places]


def _load(file: str) -> torch.Tensor:
    with urllib.request.urlopen(file) if file.startswith("http") else open(file, "rb") as opened:
        return load(opened.read())["resid_post.0"]


def _web_dataset(files: list[str]) -> Iterable:
    rows = webdataset.WebDataset(files, shardshuffle=len(files)).shuffle(_MIXED_ROWS, initial=_MIXED_ROWS)
    vectors = rows.map(lambda row: torch.frombuffer(bytearray(row["row"]), dtype=torch.bfloat16))
    return vectors.batched(_BATCH_ROWS, collation_fn=torch.stack)


def _datasets(files: list[str]) -> Iterator[torch.Tensor]:
    rows = datasets.load_dataset("arrow", data_files=files, split="train", streaming=True)
    for batch in rows.shuffle(seed=0, buffer_size=_MIXED_ROWS).with_format("numpy").iter(_BATCH_ROWS):
        yield torch.from_numpy(batch["row"]).view(torch.bfloat16)


def _name(number: int, kind: str) -> str:
    return (
        f"run/tpu_{number % _STREAMS}/{'shard' if kind == 'safetensors' else kind}_{number // _STREAMS + 1:04}.{kind}"
    )


def _write(folder: Path, number: int, is_final: bool) -> dict:
    """Writes a shard in each form. Returns its entry of metadata.json."""
    path = folder / _name(number, "safetensors")
    path.parent.mkdir(parents=True, exist_ok=True)
    values = torch.randn((_ROWS, _WIDTH), generator=torch.Generator().manual_seed(number)).to(torch.bfloat16)
    bits = values.view(torch.uint16).numpy()
    with tarfile.open(folder / _name(number, "tar"), "w") as tar:
        for row, each in enumerate(bits):
            member = tarfile.TarInfo(f"{number:04}{row:06}.row")
            member.size = each.nbytes
            tar.addfile(member, io.BytesIO(each.tobytes()))
    batch = pa.record_batch([pa.FixedSizeListArray.from_arrays(pa.array(bits.reshape(-1)), _WIDTH)], names=["row"])
    with pa.ipc.new_stream(str(folder / _name(number, "arrow")), batch.schema) as writer:
        writer.write_batch(batch)
    shard = save({"resid_post.0": values}, {"final": str(is_final).lower()})
    path.write_bytes(shard)
    facts = read_facts(lambda begin, end: shard[begin:end], len(shard), "safetensors")
    return {"filename": path.name, "size_bytes": len(shard), "first_sample": 0, "last_sample": 0} | facts


def _cpu_seconds() -> float:
    """Of this process and of the processes that have ended."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in spent)

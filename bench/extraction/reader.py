"""Shuffled batches of eight shards by gleaner_reader, and by torch's DataLoader over the same safetensors files.

Needs numpy, safetensors and torch alone, so it runs without the other packages of the benches.
"""

import os
import resource
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

import gleaner_reader

from .timing import Report, speed_up, take_turns

if TYPE_CHECKING:
    from .workplace import Workplace

CLAIM = "shuffled batches of 4,096 rows of one layer, 896 values in bf16, from 8 shards, as vectors a second"
_SHARDS, _LAYERS, _WIDTH, _BATCH_ROWS = 8, 3, 896, 4096
_BUFFER_BYTES = 1 << 29  # the default of the reader
_TENSOR = "resid_post.1"


class _Shards(IterableDataset):
    """The shards in random order, as a program reads them by hand: 512 MiB of rows are mixed and returned."""

    def __init__(self, paths: list[str]):
        self._paths = paths

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        paths = self._paths[info.id :: info.num_workers] if info else self._paths
        held, size = [], 0
        for place in torch.randperm(len(paths)).tolist():
            with safe_open(paths[place], "pt") as file:
                held.append(file.get_tensor(_TENSOR))
            size += held[-1].nbytes
            if size + held[-1].nbytes > _BUFFER_BYTES // (info.num_workers if info else 1):
                yield from _mixed(held)
                held, size = [], 0
        if held:
            yield from _mixed(held)


def _mixed(parts: list[torch.Tensor]) -> Iterator[torch.Tensor]:
    rows = torch.cat(parts)
    for chosen in torch.randperm(len(rows)).split(_BATCH_ROWS):
        yield rows[chosen]


def run(place: "Workplace") -> Report:
    rows = 512 if place.is_quick else 65_536
    epochs = 2 if place.is_quick else 4
    folder = place.path("reader")
    paths = _store(folder, rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the folder has no manifest
        stored = gleaner_reader.open(folder)
    loaders = [DataLoader(_Shards(paths), batch_size=None, num_workers=workers) for workers in (0, 2)]
    shuffled = partial(stored.batches, 1, batch_rows=_BATCH_ROWS, epochs=epochs, drop_last=False)
    all_layers = partial(stored.batches, list(range(_LAYERS)), batch_rows=_BATCH_ROWS, epochs=epochs, drop_last=False)
    sides: dict[str, Callable[[], Iterable]] = {
        "DataLoader": lambda: (batch for _ in range(epochs) for batch in loaders[0]),
        "DataLoader, 2 workers": lambda: (batch for _ in range(epochs) for batch in loaders[1]),
        "numpy": shuffled,
        "torch": partial(shuffled, as_="torch"),
        "torch, float32": partial(shuffled, as_="torch", dtype="float32"),
        f"torch, {_LAYERS} layers in a batch": partial(all_layers, as_="torch"),
    }
    cpu: dict[str, list[float]] = {name: [] for name in sides}

    def measured(name: str) -> int:
        begin = _cpu_seconds()
        vectors = sum(batch.shape[:-1].numel() if torch.is_tensor(batch) else len(batch) for batch in sides[name]())
        cpu[name].append(_cpu_seconds() - begin)
        return vectors

    counts = {name: measured(name) for name in sides}
    if any(count not in (epochs * _SHARDS * rows, epochs * _SHARDS * rows * _LAYERS) for count in counts.values()):
        raise RuntimeError(f"Failed to measure: the sides read different numbers of rows: {counts}")
    seconds = take_turns({name: partial(measured, name) for name in sides}, place.rounds(3), warm_up=False)
    report = Report(CLAIM)
    for name in ("numpy", "torch"):
        for base in ("DataLoader", "DataLoader, 2 workers"):
            report.figures.append(speed_up(f"{name} against {base}", seconds[base], seconds[name]))
    for name, count in counts.items():
        best, least = count / min(seconds[name]), count / min(cpu[name])
        report.notes.append(f"{name}: {best:,.0f} vectors/s, {least:,.0f} for each second of processor time")
    return report


def _store(folder: str, rows: int) -> list[str]:
    """Writes the shards of a stream. Returns their paths."""
    os.makedirs(os.path.join(folder, "tpu_0"))
    values = torch.randn((rows, _WIDTH), generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    paths = []
    for number in range(_SHARDS):
        paths.append(os.path.join(folder, "tpu_0", f"shard_{number + 1:04}.safetensors"))
        tensors = {f"resid_post.{layer}": values.roll(number * _LAYERS + layer, 0) for layer in range(_LAYERS)}
        save_file(tensors, paths[-1], {"final": str(number + 1 == _SHARDS).lower()})
    return paths


def _cpu_seconds() -> float:
    """Of this process and of the workers that have ended."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in spent)

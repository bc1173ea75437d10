"""Exports for the trainSAE of dictionary_learning, which takes any iterator of [batch, d_model] tensors as `data`."""

import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ..format.convert import Rows, as_stored, check_kind, finish
from ..format.errors import ShardError
from ..format.files import LocalFile
from ..format.safetensors_header import read_safetensors_header
from ..shuffle.shuffle import order_of
from .parts import part_name

if TYPE_CHECKING:
    import torch


class FolderBuffer:
    """A buffer over a folder that `gleaner run export --to dictionary_learning` wrote.

    The first epoch has the order of the folder, which is shuffled. Each further epoch orders parts, and rows of a part.
    """

    def __init__(self, folder: str, out_batch_size: int, device: str, dtype: str | None, epochs: int | None, seed: int):
        check_kind("torch", dtype)
        with open(os.path.join(folder, "export.json"), encoding="utf-8") as file:
            export = json.load(file)
        if export.get("seed") is None or not isinstance(export.get("parts"), int):
            raise ValueError(
                f"{folder} is not an export for dictionary_learning; write one with "
                "`gleaner run export RUN --to dictionary_learning`"
            )
        self._parts = [os.path.join(folder, part_name(number + 1)) for number in range(export["parts"])]
        self._dtype, self._epochs, self._seed = dtype, epochs, seed
        self._batch_rows, self._device = out_batch_size, device
        # dictionary_learning's trainers save it with the SAE.
        self.config = {
            "d_submodule": export["d_model"],
            "io": "out",
            "out_batch_size": out_batch_size,
            "device": device,
            "run": export["run"],
            "submodule": f"{export['site']}.{export['layer']}",
        }
        self._batches = self._iterate()

    def __repr__(self) -> str:
        return f"<FolderBuffer of {self.config['submodule']}: {len(self._parts):,} parts>"

    def __iter__(self) -> "FolderBuffer":
        return self

    def __next__(self) -> "torch.Tensor":
        return next(self._batches)

    def _iterate(self) -> Iterator:
        epoch, waiting = 0, np.empty((0, 0), np.float32)
        while self._epochs is None or epoch < self._epochs:
            numbers = range(len(self._parts)) if epoch == 0 else order_of(len(self._parts), self._seed, epoch).tolist()
            for number in numbers:
                rows = _activations(self._parts[number])
                order = np.arange(len(rows)) if epoch == 0 else order_of(len(rows), self._seed, epoch, number + 1)
                for begin in range(0, len(rows), self._batch_rows):
                    taken = rows[order[begin : begin + self._batch_rows]]
                    waiting = np.concatenate([waiting, taken]) if len(waiting) else taken
                    if len(waiting) >= self._batch_rows:
                        batch: Any = finish(Rows(waiting[: self._batch_rows], None), "torch", self._dtype)
                        yield batch.to(self._device)
                        waiting = waiting[self._batch_rows :]
            epoch += 1


def open_dictionary_learning(
    folder: str,
    *,
    out_batch_size: int = 8192,
    device: str = "cpu",
    dtype: str | None = "float32",
    epochs: int | None = None,
    seed: int = 0,
) -> FolderBuffer:
    """Batches for `trainSAE(data=…)`, from a folder that `to_shuffled_safetensors` wrote: tensors [batch, d_model].

    Args:
        folder: of the export; the run is not needed.
        out_batch_size: rows in a batch. The last rows of all, which fill no batch, are left out.
        device: of the tensors, as torch names it.
        dtype: "float32", "float16" or "bfloat16"; None for the stored type.
        epochs: passes over the rows; None to repeat them without end.
        seed: decides the order after the first pass, which has the order of the folder.

    Raises:
        ValueError: the folder is another one, or a batch has no rows.
        MissingPackage: torch is not installed.

    >>> next(open_dictionary_learning("shuffled", out_batch_size=64)).shape  # doctest: +SKIP
    torch.Size([64, 8])
    """
    if out_batch_size < 1:
        raise ValueError(f"out_batch_size is {out_batch_size}; set it to at least 1")
    return FolderBuffer(folder, out_batch_size, device, dtype, epochs, seed)


def _activations(path: str) -> np.ndarray:
    """The rows of a part [rows, d_model], mapped into memory: bf16 as uint16."""
    file = LocalFile(path, os.path.getsize(path))
    info = read_safetensors_header(file.read, file.size, path).tensors.get("activations")
    if info is None or len(info.shape) != 2 or info.dtype not in ("F32", "F16", "BF16"):
        raise ShardError(f"{path} cannot be read: it has no activations [rows, d_model]")
    data = np.memmap(path, np.uint8, "r", info.begin, (info.end - info.begin,))
    return as_stored(data, info.dtype).reshape(info.shape)

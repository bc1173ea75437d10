"""A model ready to run: its parameters on the devices, and the programs that compute what a spec asks for."""

import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import cast

import jax
import numpy as np

from ..batching import batch_shapes
from ..objects import Bucket
from ..spec import Spec
from . import device
from .capture import STORED, Capture
from .config import DecoderConfig
from .device_output import InFlightBatch, device_failure
from .hub import Hub
from .identity import ModelFiles
from .mesh import Layout, choose_layout, memory_of, place
from .model_lock import find_run_model
from .model_source import find_model, read_config
from .program import Program, compile_batch
from .row_selection import SelectedTokens, check_tokens, make_inputs, mode_of, row_counts, stored_width
from .warm_up import Programs, Shape, WarmUp
from .weights import load_params

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Model:
    """Loaded once for a run; every method may be called from any thread."""

    files: ModelFiles  # name, revision, hashes
    spec: Spec
    config: DecoderConfig
    params: dict
    layout: Layout
    capture: Capture
    _programs: Programs  # of Program, by a batch's (height, width)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    # Weak references: a batch that no caller waits for holds no memory.
    _in_flight: deque["weakref.ref[InFlightBatch]"] = field(default_factory=deque)

    @property
    def name(self) -> str:
        return self.files.name

    @property
    def fingerprint(self) -> str:
        return cast(str, self.files.fingerprint)  # of files that have weights

    @property
    def facts(self) -> dict:
        """The facts of the model for a manifest."""
        return {
            "name": self.files.name,
            "revision": self.files.revision,
            "fingerprint": self.files.fingerprint,
            "weights_sha256": self.files.weights_sha256,
            "tokenizer_sha256": self.files.tokenizer_sha256,
            "files": self.files.files,
        }

    @property
    def programs(self) -> int:
        """The programs that this process made ready so far; no program is added once all shapes are warm."""
        return device.programs()

    @property
    def compiles(self) -> int:
        """The programs that were not in the cache of earlier processes."""
        return device.compiles()

    @property
    def max_length(self) -> int:
        """The most tokens of a sample."""
        return self.spec.max_length(self.config.max_positions)

    @property
    def layers(self) -> tuple[int, ...]:
        return self.capture.layers

    @property
    def sites(self) -> tuple[str, ...]:
        return self.capture.sites

    @property
    def devices(self) -> int:
        """The batches that are computed at once, each by a device (or by the devices that share the weights)."""
        return self.layout.data

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the stored rows."""
        return STORED[self.capture.dtype]

    @property
    def row_bytes(self) -> int:
        return self.capture.row_bytes

    @property
    def stats_columns(self) -> tuple[str, ...]:
        return self.capture.stats_columns

    def empty(self, rows: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Memory for a shard's rows, {site: [L, rows, D]}, and for int8 their scales, {site: fp32 [L, rows]}."""
        shape = (len(self.layers), rows, self.config.d_model)
        scaled = self.sites if self.capture.dtype == "int8" else ()
        return (
            {site: np.empty(shape, self.dtype) for site in self.sites},
            {site: np.empty(shape[:2], np.float32) for site in scaled},
        )

    def warm_up(self, shapes: Iterable[Shape] | None = None) -> WarmUp:
        """Begins to compile these batch shapes, by default every possible shape; returns at once.

        Batches of any shape can start before the end of the warm-up, and shapes can be added.
        """
        return WarmUp(self._programs, batch_shapes(self.max_length) if shapes is None else shapes)

    def is_ready(self, height: int, width: int) -> bool:
        """Whether `start` finds the program of this shape compiled."""
        return self._programs.is_ready((height, width))

    def start(self, batches: Sequence[Sequence[SelectedTokens]], height: int, width: int) -> InFlightBatch:
        """Sends a batch to each device, at most `devices` of them, and returns before they are computed.

        A batch has up to `height` samples of up to `width` tokens. When the devices are full, the oldest batches move
        to the host first. Raises Failure("model") when batches of this shape can never fit.
        """
        program: Program = self._programs.get((height, width))
        mode = self.capture.mode
        rows = stored_width(self.spec, width)
        idle = [()] * (self.devices - len(batches))
        parts = [make_inputs(samples, height, width, mode, rows) for samples in [*batches, *idle]]
        inputs = tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        counts = [row_counts(part[2], len(samples), mode) for part, samples in zip(parts, batches, strict=False)]
        name = f"{sum(map(len, counts))} samples, {len(batches)} x {height} x {width} tokens, of {self.name}"
        with self._lock:
            while len(self._in_flight) >= program.in_flight:
                if oldest := self._in_flight.popleft()():
                    oldest.land()
            try:
                output = program.run(self.params, *jax.device_put(inputs, self.layout.sharding("data")))
            except jax.errors.JaxRuntimeError as error:
                raise device_failure(name, error) from error
            batch = InFlightBatch(output, counts, self.capture, name)
            self._in_flight.append(weakref.ref(batch))
            return batch


def find_files(
    spec: Spec, home: str, bucket: Bucket | None, run: str | None = None, hub: Hub | None = None
) -> ModelFiles:
    """Finds the model that `spec` names, or the one that the other workers of `run` use, and copies it to `home`.

    Opens the devices first: a host whose chips cannot be opened copies no model. Raises Failure.
    """
    device.set_up_jax(home)
    jax.local_devices()
    if run and bucket:
        return find_run_model(spec, run, home, bucket, hub)
    return find_model(spec.model, home, bucket, revision=spec.revision, hub=hub)


def load_model(
    spec: Spec,
    files: ModelFiles,
    tell: Callable[[str], None] = lambda message: None,
    previous: Model | None = None,
    device_bytes: int | None = None,
) -> Model:
    """Loads the model of find_files for all devices of this machine.

    tell: receives a line for each step. previous: the model of the last stream, which no other code uses any more; its
    weights are used again where they are the same, and freed otherwise. device_bytes: the memory of one device, where
    it differs from what the device reports. Raises Failure("model") where the model, its size, or the chosen layers or
    tokens cannot be used.
    """
    devices = jax.local_devices()
    config, layers = read_config(spec, files.folder)
    max_length = spec.max_length(config.max_positions)
    check_tokens(spec, max_length)
    what = Capture(config, layers, spec.sites, mode_of(spec), spec.dtype)
    limit = device_bytes or memory_of(devices)
    lay_out = partial(choose_layout, what=what, shapes=batch_shapes(max_length), limit=limit, devices=devices)
    if previous and _has_weights(previous, files, spec, layers) and lay_out(previous.params) == previous.layout:
        params, layout = previous.params, previous.layout
    else:
        if previous:  # before the next weights come: memory may not hold both
            for weight in jax.tree.leaves(previous.params):
                weight.delete()
        tell(f"Reading the weights of {spec.model}")
        weights = load_params(files.folder, config, layers[-1] + 1, spec.compute_dtype, spec.model)
        layout = lay_out(weights)
        tell(f"Moving {spec.model} to {len(devices)} {devices[0].device_kind}, each copy on {layout.model}")
        params = place(weights, config, layout)
    where = f"{spec.model} (max_seq_length {spec.max_seq_length})"

    def compile_shape(shape: Shape) -> Program:
        started = time.monotonic()
        program = compile_batch(what, layout, params, shape, stored_width(spec, shape[1]), limit, where)
        log.info("Compiled batches of %d x %d tokens in %.1f s", *shape, time.monotonic() - started)
        return program

    return Model(files, spec, config, params, layout, what, Programs(compile_shape))


def _has_weights(model: Model, files: ModelFiles, spec: Spec, layers: tuple[int, ...]) -> bool:
    """Whether `model` holds the weights of `spec`; it may hold deeper layers too."""
    same = (model.fingerprint, model.spec.compute_dtype) == (files.fingerprint, spec.compute_dtype)
    return same and model.layers[-1] >= layers[-1]

"""A model ready to run: its parameters on the devices, and the program that computes what a spec asks for."""

import hashlib
import json
import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import jax
import numpy as np

from ..architecture.config import DecoderConfig
from ..architecture.sites import ENDS, MOMENTS, STORED, Capture
from ..code_identity import locked_digest, worker_bundle
from ..failures import Failure
from ..spec.spec import Spec
from ..storage.objects import Bucket
from .array_pool import ArrayPool
from .device import set_up_jax
from .files.hub import Hub
from .files.identity import ModelFiles
from .files.model_lock import find_run_model
from .files.model_source import find_spec_files, read_rules
from .program.device_output import InFlightStep, device_failure
from .program.generation import Decoding
from .program.program import Program, StepShape, compile_rows
from .program.row_selection import SelectedTokens, make_inputs, row_counts, row_limits
from .program.rows import RowLimits
from .program.step_plan import StepPlan, plan_step
from .program.tuning import Tuning
from .weights.mesh import Layout, layouts, memory_of, weight_bytes
from .weights.place import place, place_reductions
from .weights.reduction_weights import read_capture
from .weights.weights import Weights, open_weights, with_stored_head

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
    shape: StepShape  # of every step, for one device
    tuning: Tuning
    _program: Program
    _decoding: Decoding | None = None  # of a run that generates tokens
    _lock: threading.Lock = field(default_factory=threading.Lock)
    # Weak references: a step that no caller waits for holds no memory.
    _in_flight: deque["weakref.ref[InFlightStep]"] = field(default_factory=deque)
    shard_arrays: ArrayPool = field(default_factory=ArrayPool)

    @property
    def name(self) -> str:
        return self.files.name

    @property
    def fingerprint(self) -> str:
        return cast(str, self.files.fingerprint)  # of files that have weights

    @property
    def max_length(self) -> int:
        """The most tokens of a sample."""
        return self.spec.max_length(self.config.max_positions)

    @property
    def layers(self) -> tuple[int, ...]:
        return self.capture.layers

    @property
    def sites(self) -> tuple[str, ...]:
        """What the run stores: sites, and what its reductions store."""
        return self.capture.outputs

    @property
    def rows_per_step(self) -> int:
        """The rows that the devices compute at once."""
        return self.layout.data * self.shape.rows

    @property
    def row_limits(self) -> RowLimits:
        return row_limits(self.spec, self.max_length)

    @property
    def program_version(self) -> str:
        """Identifies the program, its compiler, the worker's code and the mesh: a shard has vectors of one version."""
        mesh = f"{self.layout.mesh.devices.flat[0].device_kind} {self.layout.data}x{self.layout.model}"
        facts = f"{self._program.version} {locked_digest()} {worker_bundle()} {mesh}"
        return hashlib.sha256(facts.encode()).hexdigest()[:16]

    @property
    def described_outputs(self) -> dict[str, str]:
        """The metadata of a shard about its reductions; empty without any."""
        of_files = {each.entry.name: each.facts for each in self.files.reduction_files}
        facts = {name: facts | of_files.get(name, {}) for name, facts in self.capture.facts.items()}
        return {"outputs": json.dumps(facts, separators=(",", ":"))} if facts else {}

    @property
    def row_bytes(self) -> int:
        return self.capture.row_bytes

    def empty(self, rows: int, samples: int) -> tuple[dict[str, np.ndarray], ...]:
        """Memory for a shard's rows, {site: [L, rows, D]}, for int8 their scales, {site: fp32 [L, rows]}, and for
        moments {"SITE.sum", "SITE.squares": fp32 [L, samples, D]}.

        The values are arbitrary, and may be those of an earlier shard.
        """
        capture, empty, fp32 = self.capture, self.shard_arrays.empty, np.dtype(np.float32)
        stored = {
            name: empty((len(capture.layers_of(name)), rows, capture.width(name)), STORED[capture.dtype_of(name)])
            for name in self.sites
        }
        scale = {name: empty(each.shape[:2], fp32) for name, each in stored.items() if each.dtype == np.int8}
        moments = {
            f"{site}.{kind}": empty((len(layers), samples, capture.width(site)), fp32)
            for site, layers in capture.moments
            for kind in MOMENTS
        }
        return stored, scale, moments

    def start(self, rows: Sequence[Sequence[SelectedTokens]]) -> InFlightStep:
        """Sends at most `rows_per_step` rows to the devices, and returns before they are computed.

        A row has samples within `row_limits`. When the devices are full, the oldest steps move to the host first.
        Raises Failure("infrastructure") when the devices fail.
        """
        mode, height = self.capture.mode, self.rows_per_step
        inputs = make_inputs(rows, height, self.shape.row_tokens, mode, self.shape.width)
        counts = [row_counts(samples, mode) for samples in rows]
        name = f"a step of {sum(map(len, counts))} samples in {len(rows)} rows of {self.name}"
        with self._lock:
            while len(self._in_flight) >= self._program.in_flight:
                if oldest := self._in_flight.popleft()():
                    oldest.wait()
            try:
                output = self._program.run(self.params, *jax.device_put(inputs, self.layout.sharding("data")))
            except jax.errors.JaxRuntimeError as error:
                raise device_failure(name, error) from error
            step = InFlightStep(output, counts, self.capture, name)
            self._in_flight.append(weakref.ref(step))
            return step

    def generate(self, prompts: Sequence[np.ndarray], check: Callable[[], None]) -> list[np.ndarray]:
        """The new tokens of each prompt, int32. check: called before each part of the work; it may raise.

        Raises Failure("infrastructure") when the devices fail.
        """
        assert self._decoding is not None

        def call(start: Callable[[], Any]) -> Any:
            check()
            with self._lock:  # programs of several devices start in one order on all of them
                return start()

        try:
            found = dict(self._decoding.run(self.params, prompts, call))
        except jax.errors.JaxRuntimeError as error:
            raise device_failure(f"the answers to {len(prompts)} prompts of {self.name}", error) from error
        return [found[number] for number in range(len(prompts))]


def find_files(
    spec: Spec, home: str, bucket: Bucket | None, run: str | None = None, hub: Hub | None = None
) -> ModelFiles:
    """Finds the model that `spec` names, or the model that the other workers of `run` use; `home` has the copied files.

    Opens the devices first: a host whose chips cannot be opened copies no model. Raises Failure.
    """
    set_up_jax(home)
    jax.local_devices()
    if run and bucket:
        return find_run_model(spec, run, home, bucket, hub)
    return find_spec_files(spec, home, bucket, hub=hub)


def load_model(
    spec: Spec,
    files: ModelFiles,
    report: Callable[[str], None] = lambda message: None,
    previous: Model | None = None,
    device_bytes: int | None = None,
    phase: Callable[[str], None] = lambda name: None,
    skipped: int = 0,
) -> Model:
    """Loads the model of find_files for all devices of this machine.

    report: receives a line about each action. previous: the model of the last stream, which no other code uses any
    more; equal weights are used again, and other weights are freed. device_bytes: the memory of one device, in place
    of the device's own report. phase: receives the phase of this worker. skipped: layouts that ran out of memory, the
    fewest devices per copy first. Raises Failure("model") where the model, its
    size, or the chosen layers or tokens cannot be used.
    """
    devices = jax.local_devices()
    capture, reductions = read_capture(spec, files)
    if capture.has_logits:
        capture = replace(capture, config=with_stored_head(capture.config, files.weights, spec.model))
    config = capture.config
    plan = plan_step(spec, capture, devices[0], read_rules(spec, config, files.folder))
    limit = device_bytes or memory_of(devices)
    weights = plan.weights
    if previous and not _has_weights(previous, files, spec, plan.capture):
        _delete(previous.params)
        previous = None
    elif previous:  # `previous` may hold deeper layers
        _delete(previous.params.pop("reductions", {}))
        weights = weights | previous.params

    def open_stored() -> Weights:
        depth, end = plan.capture.loaded
        return open_weights(files.weights, config, depth, spec.compute_dtype, spec.model, end)

    stored = None if previous else open_stored()  # damaged files fail before the compilation
    where = f"{spec.model} (max_seq_length {spec.max_seq_length})"
    phase("compiling")
    report(f"Compiling up to {plan.shape.rows} x {plan.shape.row_tokens} tokens per device")
    plan, layout, program, decoding = choose_program(plan, weights, limit, devices, where, skipped)
    phase("loading")
    onto = f"{len(devices)} {devices[0].device_kind}, each copy on {layout.model}"
    if previous and previous.layout == layout:
        params = previous.params
    else:
        if previous:  # its weights are of other depths or places than the program that was compiled with them
            _delete(previous.params)
            return load_model(spec, files, report, None, device_bytes, phase, skipped)
        report(f"Reading the weights of {spec.model} onto {onto}")
        params = place(stored or open_stored(), layout, plan.tuning.bf16_as_bits)
    if reductions:
        report(f"Reading the weights of {', '.join(each.name for each in capture.reductions)} onto {onto}")
        params |= {"reductions": place_reductions(reductions, layout, config, spec.compute_dtype)}
    return Model(files, spec, config, params, layout, plan.capture, plan.shape, plan.tuning, program, decoding)


def choose_program(
    plan: StepPlan, params: dict, limit: int | None, devices: list, where: str, skipped: int = 0
) -> tuple[StepPlan, Layout, Program, Decoding | None]:
    """Compiles for the fewest devices per copy of the weights that hold them beside a step.

    A step has fewer rows where a device would hold no second one: it computes nothing while its only step is copied.
    params: arrays or their shapes. skipped: as load_model takes it; the last layout is never skipped. Raises
    Failure("model") when no layout fits one row, with the sizes of the last layout.
    """

    def compiled(plan: StepPlan, layout: Layout) -> tuple[StepPlan, Layout, Program, Decoding | None]:
        decoding, room = None, limit
        weights = weight_bytes(params, plan.capture.config, layout.model)
        while True:
            try:
                if plan.rules:
                    decoding = Decoding(plan.capture.config, layout, params, plan.tuning, plan.rules, limit, where)
                    room = None if limit is None else limit - decoding.bytes
                program = compile_rows(plan.capture, layout, params, plan.shape, plan.tuning, room, where)
            except Failure as failure:
                if plan.shape.rows == 1 or (room is not None and weights > room):
                    raise
                log.info("%s; taking half of the rows", failure.reason)
            else:
                if program.in_flight > 1 or plan.shape.rows == 1:
                    return plan, layout, program, decoding
                log.info("A device holds one step of %d rows; taking half of them", plan.shape.rows)
            plan = plan.halved()

    *others, last = layouts(params, plan.capture.config, limit, devices)
    for layout in others[skipped:]:
        try:
            return compiled(plan, layout)
        except Failure as failure:
            log.info("%s; splitting the weights further", failure.reason)
    return compiled(plan, last)


def _delete(params: dict) -> None:
    """Frees the devices' memory before the next weights arrive, because it may be too small for both."""
    for weight in jax.tree.leaves(params):
        weight.delete()


def _has_weights(model: Model, files: ModelFiles, spec: Spec, capture: Capture) -> bool:
    """Whether `model` holds the weights of `capture`; it may hold more."""
    same = model.files.weights_sha256 == files.weights_sha256 and model.config == capture.config
    same = same and model.spec.compute_dtype == spec.compute_dtype
    (depth, end), (held_depth, held_end) = capture.loaded, model.capture.loaded
    return same and held_depth >= depth and ENDS.index(held_end) >= ENDS.index(end)

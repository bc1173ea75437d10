"""Greedy decoding: the tokens with which a model continues prompts.

A batch has one prompt in each row. The decoder computes prompts as in an extraction, and the keys and values that
their attention reads are the past of the next token. Then each step computes one token a row. Devices that share a copy
of the weights hold the past of their own heads.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from ...architecture.config import DecoderConfig
from ...architecture.sites import Capture
from ...failures import Failure
from ..files.generation_rules import GenerationRules
from ..weights.mesh import Layout, parameter_specs
from .attention import Past
from .block import READ
from .decoder import logits_of, run_blocks
from .program import COMPILER_OPTIONS, is_out_of_memory, placed_parameters, precision_of
from .rows import Rows
from .split import Split
from .tuning import Tuning

_STEPS = 32  # tokens between two looks of the host
_LEAST_PROMPT = 128  # tokens; prompts are padded to a power of two
_SHARE_OF_MEMORY = 16  # the past of a batch takes at most one part of so many
_UNKNOWN_MEMORY = 4 << 30


class State(NamedTuple):
    """The state of a batch of R rows after a step."""

    past: Past
    token: Any  # int32 [R]: the last chosen token, which the past lacks
    used: Any  # bool [R, V]: the tokens of prompt and answer; [R, 0] without a penalty of repetitions


@dataclass(frozen=True)
class _Programs:
    begin: jax.stages.Compiled  # (params, token ids [R, P], lengths [R]) -> State
    advance: jax.stages.Compiled  # (params, State, lengths [R], first) -> State, int32 [_STEPS, R]
    rows: int  # R of one device

    @property
    def bytes(self) -> int:
        """The memory of one device beside the weights."""
        found = [program.memory_analysis() for program in (self.begin, self.advance)]
        return max((m.temp_size_in_bytes + m.output_size_in_bytes for m in found if m is not None), default=0)


class Decoding:
    """The decoding of one run on the devices of `layout`; methods may be called from one thread at a time.

    params: arrays or their shapes. limit: bytes of one device, when known.
    """

    def __init__(
        self,
        config: DecoderConfig,
        layout: Layout,
        params: dict,
        tuning: Tuning,
        rules: GenerationRules,
        limit: int | None,
        where: str,
    ):
        self._config, self._layout, self._tuning, self._rules = config, layout, tuning, rules
        self._split, self._where = Split(layout.model), where
        self._dtype = params["embed"].dtype
        self._params = placed_parameters(params, config, layout, tuning)
        self._specs = parameter_specs(params, config, layout.model)
        self._kv_heads = max(1, config.num_kv_heads // layout.model)  # of one device
        self._memory = (limit or _UNKNOWN_MEMORY) // _SHARE_OF_MEMORY
        self._programs: dict[int, _Programs] = {}
        self.bytes = self._of(prompt_size(rules.prompt_length)).bytes  # of the longest prompts

    def tokens_per_s(self, hbm_bytes_per_s: float) -> float:
        """The new tokens a second of all devices after the longest prompts: a step reads weights and past once."""
        programs = self._of(prompt_size(self._rules.prompt_length))
        memory = programs.advance.memory_analysis()
        assert memory is not None  # the TPU compiler always reports it
        return programs.rows * self._layout.data * hbm_bytes_per_s / memory.argument_size_in_bytes

    def run(
        self, params: dict, prompts: Sequence[np.ndarray], call: Callable[[Callable], Any]
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Yields the number of each prompt and its new tokens, int32, batch by batch.

        call: calls a function that starts a program; it may raise to end the decoding.
        """
        order = sorted(range(len(prompts)), key=lambda number: (len(prompts[number]), number))
        while order:
            size = prompt_size(len(prompts[order[0]]))
            programs = self._of(size)
            height = programs.rows * self._layout.data
            batch = [number for number in order[:height] if len(prompts[number]) <= size]
            order = order[len(batch) :]
            yield from zip(batch, self._batch(params, programs, size, [prompts[n] for n in batch], call), strict=True)

    def _batch(
        self, params: dict, programs: _Programs, size: int, prompts: list[np.ndarray], call: Callable[[Callable], Any]
    ) -> list[np.ndarray]:
        height = programs.rows * self._layout.data
        # Padding repeats a token of the row, as in an extraction; further rows repeat the last prompt.
        padded = prompts + prompts[-1:] * (height - len(prompts))
        ids = np.stack([np.pad(prompt, (0, size - len(prompt)), mode="edge") for prompt in padded])
        by_row = self._layout.sharding("data")
        ids, lengths = jax.device_put((ids, np.array([len(prompt) for prompt in padded], np.int32)), by_row)
        state = call(lambda: programs.begin(params, ids, lengths))
        tokens = np.asarray(state.token)[:, None]
        while tokens.shape[1] < self._rules.new_tokens and not self._ended(tokens[: len(prompts)]).all():
            first = jax.device_put(np.int32(tokens.shape[1] - 1), self._layout.sharding())
            state, more = call(lambda state=state, first=first: programs.advance(params, state, lengths, first))
            tokens = np.concatenate([tokens, np.asarray(more).T], axis=1)
        return [self._answer(row) for row in tokens[: len(prompts)]]

    def _ended(self, tokens: np.ndarray) -> np.ndarray:
        """bool [R]: the rows with a token that ends an answer."""
        return np.isin(tokens, self._rules.end_ids).any(axis=1)

    def _answer(self, tokens: np.ndarray) -> np.ndarray:
        """The tokens up to the first one that ends the answer."""
        ends = np.flatnonzero(np.isin(tokens, self._rules.end_ids))
        return tokens[: min(self._rules.new_tokens, ends[0] + 1 if len(ends) else len(tokens))].astype(np.int32)

    def _of(self, size: int) -> _Programs:
        """The programs for prompts of up to `size` tokens."""
        if size not in self._programs:
            try:
                self._programs[size] = self._compile(size)
            except jax.errors.JaxRuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                raise Failure(
                    "model",
                    f"Failed to fit the decoding of {self._where} into a device; lower max_seq_length, or take an "
                    "accelerator with more memory",
                ) from error
        return self._programs[size]

    def _compile(self, size: int) -> _Programs:
        config, layout = self._config, self._layout
        capacity = size + -(-(self._rules.new_tokens - 1) // _STEPS) * _STEPS
        row_bytes = 2 * config.num_layers * self._kv_heads * capacity * config.head_dim * self._dtype.itemsize
        rows = 1 << (max(1, min(self._tuning.decoded_rows, self._memory // row_bytes)).bit_length() - 1)
        height = rows * layout.data
        by_row, once = PartitionSpec("data"), PartitionSpec()
        heads = PartitionSpec(None, "data", "model")
        state = State(Past(heads, heads, by_row), by_row, by_row)

        def over_devices(function, inputs, outputs, **options):
            shared = jax.shard_map(
                function, mesh=layout.mesh, in_specs=(self._specs, *inputs), out_specs=outputs, check_vma=False
            )
            return jax.jit(shared, compiler_options=COMPILER_OPTIONS, **options)

        def shaped(*shape: int) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct(shape, jnp.int32, sharding=layout.sharding(*["data"][: len(shape)]))

        begin = over_devices(partial(self._begin, capacity=capacity), (by_row, by_row), state)
        advance = over_devices(
            partial(self._advance, size=size),
            (state, by_row, once),
            (state, PartitionSpec(None, "data")),
            donate_argnums=1,
        )
        with jax.default_matmul_precision(precision_of(self._dtype)):
            begun = begin.lower(self._params, shaped(height, size), shaped(height)).compile()
            shapes = jax.tree.map(
                lambda array, sharding: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding),
                jax.eval_shape(begin, self._params, shaped(height, size), shaped(height)),
                begun.output_shardings,
            )
            advanced = advance.lower(self._params, shapes, shaped(height), shaped()).compile()
        return _Programs(begun, advanced, rows)

    def _blocks(self, params: dict, rows: Rows, past: Past | None) -> tuple[jax.Array, jax.Array, jax.Array]:
        """The keys and values [L, R, K, T, H] of this device's heads, and the final norm [R, T, D]."""
        capture = Capture(self._config, (), ("final_norm",), "all", "fp32")
        pieces = run_blocks(
            params, rows, capture, lambda found, *_: found, self._tuning, self._split, past=past, reads=True
        )
        (_, blocks), (_, end) = pieces
        return *blocks[READ], end["final_norm"][0]

    def _begin(self, params: dict, ids: jax.Array, lengths: jax.Array, capacity: int) -> State:
        config, (rows, size) = self._config, ids.shape
        group = max(1, min(rows, self._tuning.step_tokens // size))
        empty = jnp.zeros((config.num_layers, rows, self._kv_heads, capacity, config.head_dim), self._dtype)
        at = jnp.arange(capacity)
        positions = jnp.where(at < lengths[:, None], at, -1)

        def prefill(past: tuple, batch: tuple) -> tuple:
            first, ids, lengths = batch
            places = jnp.broadcast_to(jnp.arange(size), ids.shape)
            k, v, end = self._blocks(params, Rows(ids, (places < lengths[:, None]).astype(jnp.int32), places), None)
            put = partial(jax.lax.dynamic_update_slice, start_indices=(0, first, 0, 0, 0))
            past = put(past[0], k), put(past[1], v)
            return past, jnp.take_along_axis(end, lengths[:, None, None] - 1, axis=1)[:, 0]

        firsts = jnp.arange(0, rows, group)
        (k, v), last = jax.lax.scan(
            prefill, (empty, empty), (firsts, ids.reshape(-1, group, size), lengths.reshape(-1, group))
        )
        used = jnp.zeros((rows, config.vocab_size if self._rules.penalty != 1 else 0), bool)
        if self._rules.penalty != 1:
            used = used.at[jnp.arange(rows)[:, None], ids].set(True)
        return self._choose(params, Past(k, v, positions), last.reshape(rows, -1), used)

    def _advance(self, params: dict, state: State, lengths: jax.Array, first: jax.Array, size: int) -> tuple:
        def step(state: State, number: jax.Array) -> tuple[State, jax.Array]:
            position = (lengths + number)[:, None]
            rows = Rows(state.token[:, None], jnp.ones_like(position), position)
            *read, end = self._blocks(params, rows, state.past)
            place = size + number
            k, v = (
                jax.lax.dynamic_update_slice(held, new, (0, 0, 0, place, 0))
                for held, new in zip(state.past[:2], read, strict=True)
            )
            positions = jax.lax.dynamic_update_slice(state.past.positions, position, (0, place))
            state = self._choose(params, Past(k, v, positions), end[:, 0], state.used)
            return state, state.token

        return jax.lax.scan(step, state, first + jnp.arange(_STEPS))

    def _choose(self, params: dict, past: Past, last: jax.Array, used: jax.Array) -> State:
        """The state with the likeliest next token of each row; last: the final norm [R, D] of its last token."""
        logits, penalty = logits_of(last, params, self._config, self._split), self._rules.penalty
        if penalty != 1:
            logits = jnp.where(used, jnp.where(logits < 0, logits * penalty, logits / penalty), logits)
        token = jnp.argmax(logits, axis=-1).astype(jnp.int32)
        if penalty != 1:
            used = used.at[jnp.arange(len(token)), token].set(True)
        return State(past, token, used)


def prompt_size(length: int) -> int:
    """The tokens of a row that holds a prompt of `length` tokens."""
    return max(_LEAST_PROMPT, 1 << (length - 1).bit_length())

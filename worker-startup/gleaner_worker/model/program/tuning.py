"""The settings of a program that depend on the chip, chosen once from the devices of the mesh."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...architecture.config import DecoderConfig


@dataclass(frozen=True)
class Tuning:
    """The settings of one kind of chip. Hashable: static under jit. All chips share every other part of a program."""

    kernels: bool  # those of JAX for TPUs, which multiply in bf16, for attention and experts
    gathers: bool  # the kernel that gathers groups of features, without which the compiler gathers
    query_block: int  # tokens of a block of queries, and of keys, in attention without the kernel
    step_tokens: int  # of one device in a step; a row of more tokens makes a longer step
    decoded_rows: int = 64  # of one device in a batch of generated tokens, at most
    # What `npm run bench:tpu -- --search` tries, because XLA fuses products with their neighbours for better or worse.
    # A barrier computes a value alone: what enters attention or the MLP, or the neurons of the MLP.
    attention_barrier: bool = False
    mlp_barrier: bool = False
    neurons_barrier: bool = False
    heads_apart: bool = False  # the heads are an axis of the stacks of wq, wk and wv
    tokens_minor: bool = True  # the minor axis of what the attention kernel takes; otherwise the head's
    bf16_as_bits: bool = False  # see cpu.py
    interpret: bool = False  # runs the kernels without a TPU, for tests

    @property
    def tried(self) -> dict[str, int | bool]:
        """The settings that a search tries, as metadata.json of a stream records them."""
        return {name: getattr(self, name) for name in TRIED}


CPU = Tuning(False, False, query_block=128, step_tokens=2048, decoded_rows=8, bf16_as_bits=True)
TRIED = ("neurons_barrier", "tokens_minor", "mlp_barrier", "heads_apart", "attention_barrier", "step_tokens")
TPU = Tuning(True, True, query_block=256, step_tokens=2048)
# The fastest settings that bench/tpu/search.py found for some models, by the kind of device. It writes the table, and
# names the compiler in it.
TABLE = [json.loads(line) for line in Path(__file__).with_name("tuning.jsonl").read_text().splitlines()]


def tuning_of(device: Any, compute_dtype: str, config: DecoderConfig) -> Tuning:
    """The settings for a mesh of such devices: those of the model in the table that is nearest by width.

    The kernels multiply in bf16, so fp32 runs do without. compute_dtype: bf16 or fp32.
    """
    if device.platform == "cpu":
        return CPU
    kind = device.device_kind.removesuffix("p")  # v5p has two names
    found = [entry for entry in TABLE if (entry["kind"], entry["mixture"]) == (kind, bool(config.experts))]

    def distance(entry: dict) -> tuple[int, int]:
        return abs(entry["d_model"] - config.d_model), abs(entry["d_ff"] - config.d_ff)

    settings = min(found, key=distance)["settings"] if found else {}
    return replace(TPU, kernels=device.platform == "tpu" and compute_dtype == "bf16", **settings)

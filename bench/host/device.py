"""Devices that compute nothing: a model whose every step has the arrays of a real step at once."""

import os

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from gleaner_worker.architecture.config import parse_config
from gleaner_worker.architecture.sites import STORED, Capture
from gleaner_worker.model.files.identity import CONFIG, ONE_FILE, TOKENIZER, ModelFiles
from gleaner_worker.model.model import Model
from gleaner_worker.model.program.program import Program, StepShape
from gleaner_worker.model.program.row_selection import row_limits
from gleaner_worker.model.weights.mesh import Layout
from gleaner_worker.spec.spec import Spec, capture_of, resolve_layers

STEPS_IN_FLIGHT = 3  # as many as program.py allows
_TOKENS = 30_000  # more than the merges of the words of a stream


def make_tokenizer(folder: str, words: list[str]) -> None:
    """A byte-level BPE to which each of `words`, with a blank before it, is one token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=_TOKENS, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([f" {word}" for word in words for _ in range(2)], trainer)
    tokenizer.save(os.path.join(folder, TOKENIZER))


def zero_time_model(spec: Spec, raw_config: dict, folder: str) -> Model:
    """A model without weights for all devices of JAX, with a row of tokens on each device in a step.

    The arrays of a step are made once. A TPU sends new arrays to the host by DMA, which takes no processor time.
    """
    config = parse_config(raw_config, spec.model)
    capture = capture_of(spec, config, resolve_layers(spec, config.num_layers))
    row = row_limits(spec, spec.max_length(config.max_positions))
    layout = Layout(Mesh(np.array(jax.devices()).reshape(-1, 1), ("data", "model")))
    output = _output(capture, layout, row.vectors)
    program = Program(lambda *_: output, STEPS_IN_FLIGHT, "zero time")  # type: ignore[arg-type]
    names = (CONFIG, TOKENIZER, ONE_FILE)
    files = ModelFiles(spec.model, None, dict.fromkeys(names, "0" * 64), {}, folder)
    return Model(files, spec, config, {}, layout, capture, StepShape(1, row.tokens, row.vectors), program)


def _output(capture: Capture, layout: Layout, width: int) -> dict:
    """The output of compute_step for a row on each device, of ones."""
    sharding = NamedSharding(layout.mesh, PartitionSpec(None, "data"))

    def ones(shape: tuple[int, ...], dtype: np.dtype) -> list[jax.Array]:
        return [jax.device_put(np.ones(shape, dtype), sharding)]

    output: dict[str, dict[str, list[jax.Array]]] = {"rows": {}, "stats": {}}
    for site in capture.outputs:
        dtype, shape = capture.dtype_of(site), (len(capture.layers_of(site)), layout.data, width)
        output["rows"][site] = ones((*shape, capture.width(site)), STORED[dtype])
        output["stats"][site] = ones((*shape, len(capture.stats_columns(site)) - 1), np.dtype(np.float32))
        if dtype == "int8":
            output.setdefault("scale", {})[site] = ones(shape, np.dtype(np.float32))
    return output

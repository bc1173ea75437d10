"""The start of every bench: a folder, and a model of the Qwen2.5-0.5B shape with random weights."""

import os
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from tokenizers import Tokenizer

from gleaner_worker.model.tiny import CONFIG, make_tiny_model
from gleaner_worker.spec.read_spec import parse_spec
from tpu.models import shape

_SHAPE = shape(896, 4864, 24, 14, 2) | {"vocab_size": 151_936}
HUB_NAME = "Qwen/Qwen2.5-0.5B"  # the libraries' name of a model of that shape


@dataclass(frozen=True)
class Workplace:
    """The folder, model, token rows and spec of a bench. The model is made at its first use."""

    folder: str
    is_quick: bool  # a tiny model and little input, to test a bench instead of a speed
    most_rounds: int | None = None

    @cached_property
    def config(self) -> dict:
        return CONFIG | ({"num_hidden_layers": 4} if self.is_quick else _SHAPE)

    @cached_property
    def model(self) -> str:
        """A Hugging Face folder with bf16 weights; made once for all benches of a run."""
        folder = os.path.join(self.folder, f"model-{self.config['hidden_size']}")
        if not os.path.exists(folder):
            make_tiny_model(f"{folder}.unfinished", config=self.config)
            os.rename(f"{folder}.unfinished", folder)
        return folder

    def put_in_hub_cache(self) -> None:
        """Makes our model available as HUB_NAME in HF_HOME, for libraries that load models by hub names."""
        revision = "0" * 40
        folder = os.path.join(os.environ["HF_HOME"], "hub", f"models--{HUB_NAME.replace('/', '--')}")
        os.makedirs(os.path.join(folder, "refs"))
        os.makedirs(os.path.join(folder, "snapshots"))
        with open(os.path.join(folder, "refs", "main"), "w", encoding="ascii") as file:
            file.write(revision)
        os.symlink(self.model, os.path.join(folder, "snapshots", revision))

    @property
    def layers(self) -> int:
        return self.config["num_hidden_layers"]

    def rounds(self, full: int) -> int:
        return 2 if self.is_quick else min(full, self.most_rounds or full)

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def token_rows(self, rows: int, width: int, seed: int = 0) -> np.ndarray:
        """Random token ids of the tokenizer, int32 [rows, width]."""
        known = Tokenizer.from_file(os.path.join(self.model, "tokenizer.json")).get_vocab_size()
        return np.random.default_rng(seed).integers(1, known, (rows, width), dtype=np.int32)

    def spec(self, **changes):
        raw = {
            "model": self.model,
            "layers": "all",
            "dtype": "bf16",
            "format": "safetensors",
            "shard_size_gb": 1.0,
            "max_seq_length": 2048,
            "over_long": "truncate",
        }
        # As the control plane fills it in.
        computed = {"compute_dtype": "fp32" if changes.get("dtype") == "fp32" else "bf16"}
        return parse_spec(raw | computed | changes)

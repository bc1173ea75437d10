"""Windows and rotary embeddings of random configs, beside those of transformers. No model runs: thousands are cheap."""

import importlib
import json
import random

import numpy as np
import other_values
import pytest
import random_configs
import torch
from transformers import AutoConfig

from gleaner_worker.architecture.config import UNLIMITED, parse_config
from gleaner_worker.architecture.rope import inverse_frequencies
from gleaner_worker.failures import Failure

CONFIGS, TOKENS = 100, 150
UNIFORM = ("mistral", "mixtral", "phi3", "qwen3_moe")  # a window of the file is that of every layer


def theirs(folder):
    """The config of the text model, the types of its layers, and its rotary embedding after a sample of TOKENS."""
    config = AutoConfig.from_pretrained(folder).get_text_config()
    module = importlib.import_module(type(config).__module__.replace("configuration_", "modeling_"))
    types = getattr(config, "layer_types", None)
    if config.model_type in UNIFORM:
        types = [random_configs.SLIDING if config.sliding_window else random_configs.FULL] * config.num_hidden_layers
    types = types or [random_configs.FULL] * config.num_hidden_layers
    rope = next((getattr(module, name) for name in dir(module) if name.endswith("RotaryEmbedding")), None)
    rope = rope and rope(config)
    for kind in dict.fromkeys(types) if rope else ():
        rope(torch.zeros(1, 1), torch.arange(TOKENS)[None], *([kind] if isinstance(rope.rope_type, dict) else []))
    return config, types, rope


def differences(ours, types, window, rope):
    wanted = tuple(window if kind == random_configs.SLIDING else UNLIMITED for kind in types)
    found = [] if ours.windows == wanted else [f"windows {ours.windows}, not {wanted}"]
    for layer, kind in enumerate(types if rope else ()):
        own = ours.ropes[ours.layer_ropes[layer]]
        prefix = f"{kind}_" if isinstance(rope.rope_type, dict) else ""
        frequencies = inverse_frequencies(
            own, ours.rotary_dim, own.kind == "longrope" and own.original_positions < TOKENS
        )
        expected = getattr(rope, f"{prefix}inv_freq").numpy()
        is_same = np.allclose(frequencies, expected, rtol=3e-7, atol=0)
        if own.kind != "none" and not (
            is_same and np.isclose(own.attention_factor, getattr(rope, f"{prefix}attention_scaling"))
        ):
            found.append(f"layer {layer} has {own}")
    return found


@pytest.mark.parametrize("name", random_configs.VARIANTS)
def test_random_configs_have_the_windows_and_ropes_of_transformers(name, tmp_path):
    compared = 0
    for seed in range(CONFIGS):
        rng = random.Random(f"{seed} {name}")
        raw = json.loads(json.dumps(random_configs.VARIANTS[name](rng, random_configs.shape(rng))[0]))
        text = raw.get("text_config", raw)
        changed = other_values.change(text, rng) if rng.random() < 0.7 else {}
        (tmp_path / "config.json").write_text(json.dumps(raw))
        try:
            ours = parse_config(raw, name)
        except Failure:
            continue
        try:
            config, types, rope = theirs(str(tmp_path))
        except Exception:  # transformers has no error of its own for configs
            continue
        if ours.max_positions >= TOKENS:
            compared += 1
            window = getattr(config, "sliding_window", None)
            assert differences(ours, types, window, rope) == [], f"{changed} {raw}"
    assert compared > CONFIGS / 3

"""Makes golden/: a tiny random Qwen2 and what transformers computes with it. Run by a person, never by the tests.

    uv venv /tmp/golden && uv pip install --python /tmp/golden/bin/python -r test/worker/golden-requirements.txt
    /tmp/golden/bin/python test/worker/make_golden.py

Activations are taken with hooks on the decoder layers: transformers' own hidden_states[-1] is after the final norm.
"""

import json
import os

import numpy as np
import torch
from transformers import Qwen2Config, Qwen2Model

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden")
LENGTH = 120  # several windows long: a short prompt cannot see a wrong window
CONFIG = {
    "model_type": "qwen2",
    "hidden_size": 32,
    "intermediate_size": 56,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "max_position_embeddings": 512,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
}
WINDOWED = CONFIG | {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 2}


def main() -> None:
    torch.manual_seed(0)
    model = build(CONFIG)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            # The default norms of one and biases of zero would hide a decoder that forgets them.
            tensor.copy_(
                torch.randn_like(tensor) * (0.2 if "norm" in name or "bias" in name else 1.2 / tensor.shape[-1] ** 0.5)
            )
            if "norm" in name:
                tensor.add_(1.0)
            if "embed" in name:
                # Small values: a wrong epsilon shows.
                tensor.mul_(0.05)
    token_ids = torch.randint(0, CONFIG["vocab_size"], (1, LENGTH))
    windowed = build(WINDOWED)
    windowed.load_state_dict(model.state_dict())
    os.makedirs(FOLDER, exist_ok=True)
    from safetensors.torch import save_file

    save_file(
        {f"model.{name}": tensor.contiguous() for name, tensor in model.state_dict().items()},
        os.path.join(FOLDER, "model.safetensors"),
    )
    for name, config in (("config.json", CONFIG), ("config-windowed.json", WINDOWED)):
        with open(os.path.join(FOLDER, name), "w", encoding="utf-8") as file:
            json.dump(config, file, indent=2)
            file.write("\n")
    np.savez_compressed(
        os.path.join(FOLDER, "expected.npz"),
        token_ids=token_ids.numpy().astype(np.int32),
        full=blocks(model, token_ids),
        windowed=blocks(windowed, token_ids),
    )


def build(config: dict) -> Qwen2Model:
    config = {key: value for key, value in config.items() if key != "model_type"}
    return Qwen2Model._from_config(Qwen2Config(**config), attn_implementation="eager", dtype=torch.float32).eval()


def blocks(model: Qwen2Model, token_ids: torch.Tensor) -> np.ndarray:
    """[layers, T, D]: what each decoder layer returns."""
    outputs = []
    hooks = [
        layer.register_forward_hook(
            lambda _m, _i, out: outputs.append((out[0] if isinstance(out, tuple) else out)[0].numpy())
        )
        for layer in model.layers
    ]
    with torch.no_grad():
        model(token_ids)
    for hook in hooks:
        hook.remove()
    return np.stack(outputs)


if __name__ == "__main__":
    main()

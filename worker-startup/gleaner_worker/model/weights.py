"""Hugging Face safetensors -> the decoder's stacked parameters, by one table, with every mismatch in one error."""

import json
import os
import re

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

from ..failures import Failure
from .config import EMBEDDING, IGNORED, Qwen2Config, layer_table

DTYPES = {"bf16": np.dtype(ml_dtypes.bfloat16), "fp32": np.dtype(np.float32)}

_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)")
_OLD_BUFFER = "self_attn.rotary_emb.inv_freq"


def load_params(folder: str, config: Qwen2Config, num_layers: int, dtype: str, where: str) -> dict:
    """Reads the embedding and the first `num_layers` blocks of the model in `folder` into numpy arrays.

    Returns {"embed": [V, D], "blocks": {name: [num_layers, ...]}}. Raises Failure("model") with every tensor that is
    missing, unknown or of another shape than config.json says; `where` is the model as the spec names it.
    """
    target = DTYPES[dtype]
    table = layer_table(config)
    shapes = {EMBEDDING: (config.vocab_size, config.d_model)}
    shapes |= {
        f"model.layers.{i}.{name}": shape for i in range(config.num_layers) for name, (_, shape) in table.items()
    }
    embed = np.empty(shapes[EMBEDDING], target)
    blocks = {parameter: np.empty((num_layers, *shape), target) for parameter, shape in table.values()}
    problems, seen = [], set()
    for path in weight_files(folder, where):
        try:
            with safe_open(path, framework="numpy") as file:
                for name in file.keys():
                    layer = _LAYER.fullmatch(name)
                    if name in IGNORED or (layer and layer[2] == _OLD_BUFFER):
                        continue
                    found = tuple(file.get_slice(name).get_shape())
                    if name not in shapes:
                        problems.append(f"{name} is not part of this architecture")
                    elif name in seen:
                        problems.append(f"{name} is there twice")
                    elif found != shapes[name]:
                        problems.append(f"{name} is {list(found)}, config.json says {list(shapes[name])}")
                    elif not layer:
                        embed[...] = file.get_tensor(name)
                    elif int(layer[1]) < num_layers:
                        blocks[table[layer[2]][0]][int(layer[1])] = file.get_tensor(name)
                    seen.add(name)
        except (OSError, SafetensorError) as error:
            raise Failure("model", f"Failed to read {os.path.basename(path)} of {where}: {error}") from error
    problems += [f"{name} is missing" for name in shapes if name not in seen]
    if problems:
        shown = "; ".join(problems[:20]) + (f"; and {len(problems) - 20} more" if len(problems) > 20 else "")
        raise Failure("model", f"Failed to load the weights of {where}: {shown}")
    return {"embed": embed, "blocks": blocks}


def weight_files(folder: str, where: str) -> list[str]:
    """The safetensors files of a model folder: one, or those that its index lists."""
    index = os.path.join(folder, "model.safetensors.index.json")
    if os.path.exists(index):
        with open(index, encoding="utf-8") as file:
            names = sorted(set(json.load(file)["weight_map"].values()))
    else:
        names = ["model.safetensors"]
    absent = [name for name in names if not os.path.exists(os.path.join(folder, os.path.basename(name)))]
    if absent:
        raise Failure(
            "model", f"Failed to load {where}: it has no {', '.join(absent)} (pickled weights are never read)"
        )
    return [os.path.join(folder, os.path.basename(name)) for name in names]

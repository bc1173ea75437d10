"""Autoencoders that are published as numpy or torch files, as folders of SAELens. No code of a file runs.

`params.npz` of Gemma Scope 1 and `layerN.sae.pt` of Qwen-Scope. Names, shapes and settings are those that sae-lens
6.54.12 has for them (loading/pretrained_sae_loaders.py).
"""

import json
import os
import re
import zipfile
from math import prod

import numpy as np

from ..format.convert import STORED, Rows
from ..format.limits import is_inflated
from ..format.safe_pickle import load_torch
from .parts import write_safetensors

_TENSORS = {"W_enc": ("d_in", "d_sae"), "W_dec": ("d_sae", "d_in"), "b_enc": ("d_sae",), "b_dec": ("d_in",)}
_LAYOUTS = {
    "params.npz": ("Gemma Scope 1", _TENSORS | {"threshold": ("d_sae",)}, {"architecture": "jumprelu"}),
    ".sae.pt": ("Qwen-Scope", _TENSORS, {"architecture": "topk", "rescale_acts_by_decoder_norm": False}),
}
_LAYER, _K, _KIND = re.compile(r"\blayer_?(\d{1,4})\b"), re.compile(r"L0_(\d{1,5})"), re.compile(r"-(res|mlp|att)\b")
_HOOKS = {"res": "blocks.{}.hook_resid_post", "mlp": "blocks.{}.hook_mlp_out", "att": "blocks.{}.attn.hook_z"}
_CONFIG = {"dtype": "float32", "device": "cpu", "apply_b_dec_to_input": False, "normalize_activations": "none"}
_STORAGES = {"FloatStorage": "fp32", "HalfStorage": "fp16", "BFloat16Storage": "bf16"}


def convert_sae(source: str, folder: str, hook_name: str | None = None, k: int | None = None) -> list[str]:
    """Writes `cfg.json` and `sae_weights.safetensors`, in fp32, and returns the folders.

    source: a file, or a folder whose subfolders the new `folder` then has. hook_name, k (of Qwen-Scope): None to take
    them from the path, such as `…-res/layer_12/…`, `…-L0_50/layer12.sae.pt`. Raises FileExistsError, FileNotFoundError,
    and ValueError for a damaged file or a path that does not name the hook and k.
    """
    if os.path.exists(folder):
        raise FileExistsError(f"{folder} exists; choose another folder")
    walked = (os.path.join(root, name) for root, _, names in os.walk(source) for name in sorted(names))
    paths = [path for path in (walked if os.path.isdir(source) else [source]) if path.endswith((*_LAYOUTS,))]
    if not paths:
        raise FileNotFoundError(f"{source} has no params.npz and no layerN.sae.pt")
    targets = []
    for path in paths:
        end = next(end for end in _LAYOUTS if path.endswith(end))
        try:
            tensors, config = _converted(path, end, hook_name, k)
        except OSError:
            raise
        except Exception as error:  # zipfile and numpy raise many
            raise ValueError(f"{path} cannot be read: {str(error)[:300]}") from error
        targets.append(os.path.normpath(os.path.join(folder, os.path.relpath(path, source).removesuffix(end))))
        os.makedirs(targets[-1])
        write_safetensors(os.path.join(targets[-1], "sae_weights.safetensors"), tensors)
        with open(os.path.join(targets[-1], "cfg.json"), "w", encoding="utf-8") as file:
            json.dump(config, file, indent=2)
    return targets


def _converted(path: str, end: str, hook_name: str | None, k: int | None) -> tuple[dict[str, np.ndarray], dict]:
    """The tensors and cfg.json."""
    title, layout, config = _LAYOUTS[end]
    with zipfile.ZipFile(path) as archive:
        if is_inflated(sum(each.file_size for each in archive.infolist()), os.path.getsize(path)):
            raise ValueError("it would need far more memory than its size")
        found = _read_torch(archive) if path.endswith(".pt") else dict(np.load(path, allow_pickle=False))
    tensors = {re.sub("^w_", "W_", name): np.asarray(values) for name, values in found.items()}
    if not np.allclose(tensors.pop("scaling_factor", np.ones(1)), 1):
        raise ValueError("it has a finetuning_scaling_factor other than 1, which is not supported")
    if set(tensors) != set(layout):
        raise ValueError(f"it has {', '.join(sorted(tensors)):.200}; {title} has {', '.join(sorted(layout))}")
    sizes = dict(zip(("d_in", "d_sae"), tensors["W_enc"].shape, strict=True))
    for name, values in tensors.items():
        shape = [sizes[axis] for axis in layout[name]]
        if list(values.shape) != shape or values.dtype.kind != "f" or not np.isfinite(values).all():
            raise ValueError(f"its {name} {list(values.shape)} is not {shape} of finite floats")
    where, is_topk = os.path.abspath(path), config["architecture"] == "topk"
    if re.search(r"[/\\]embedding[/\\]", where):
        raise ValueError("it is of embeddings, which are scaled in another way")
    kinds, layers, in_path = ["res"] if is_topk else _KIND.findall(where), _LAYER.findall(where), _K.search(where)
    if hook_name is None and not (layers and kinds):
        raise ValueError("its path names no layer and kind, such as gemma-scope-2b-pt-res/layer_12: pass --hook-name")
    hook_name = hook_name or _HOOKS[kinds[-1]].format(int(layers[-1]))
    k = k or int(in_path[1] if in_path else 0)
    if is_topk and not 0 < k <= sizes["d_sae"]:
        raise ValueError(f"its k is {k}, and its path names none up to {sizes['d_sae']}, such as …-L0_50: pass --k")
    config = config | sizes | ({"k": k} if is_topk else {}) | _CONFIG
    config |= {"reshape_activations": "hook_z" if hook_name.endswith("hook_z") else "none"}
    config |= {"metadata": {"hook_name": hook_name, "sae_lens_version": "6.54.12", "prepend_bos": True}}
    return {name: np.ascontiguousarray(values, np.float32) for name, values in tensors.items()}, config


def _read_torch(archive: zipfile.ZipFile) -> dict[str, np.ndarray]:
    """The tensors of a file of `torch.save`, transposed: a pickle that names storages, and a file for each storage."""
    (pickle,) = [name for name in archive.namelist() if name.endswith("/data.pkl")]
    tensors = {}
    for name, (storage, key, offset, shape, strides) in load_torch(archive.open(pickle)).items():
        kind = STORED[_STORAGES[storage]]
        if name not in _TENSORS or strides != (*shape[1:], 1):
            raise ValueError(f"its {name} is not contiguous, or none of {', '.join(_TENSORS)}")
        data = archive.read(f"{pickle.removesuffix('data.pkl')}data/{key}")
        values = np.frombuffer(data, kind, prod(shape), offset * kind.itemsize).reshape(shape)
        tensors[name] = Rows(values, None).to_float32().T
    return tensors

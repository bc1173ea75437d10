"""Autoencoders that are published as numpy or torch files, as folders of SAELens. No code of a file runs.

`params.npz` of Gemma Scope 1 and `layerN.sae.pt` of Qwen-Scope. Names, shapes and settings are those that sae-lens
6.54.12 has for them (loading/pretrained_sae_loaders.py).
"""

import io
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

_GEMMA, _QWEN = {"W_enc", "W_dec", "b_enc", "b_dec", "threshold"}, {"W_enc", "W_dec", "b_enc", "b_dec"}
_MAX_PICKLE_BYTES = 1 << 20
_LAYER, _K = re.compile(r"\blayer_?(\d{1,4})\b"), re.compile(r"L0_(\d{1,5})")
_HOOKS = {"res": "blocks.{}.hook_resid_post", "mlp": "blocks.{}.hook_mlp_out", "att": "blocks.{}.attn.hook_z"}
_STORAGES = {"FloatStorage": "fp32", "HalfStorage": "fp16", "BFloat16Storage": "bf16"}


def convert_sae(source: str, folder: str, hook_name: str | None = None, k: int | None = None) -> list[str]:
    """Writes `cfg.json` and `sae_weights.safetensors`, in fp32, and returns the folders.

    Args:
        source: a params.npz or layerN.sae.pt, or a folder of them, whose subfolders the result then has.
        folder: the result, which must not exist.
        hook_name: of TransformerLens; None to take it from the path: `…-res/layer_12/…`, `layer12.sae.pt`.
        k: of an autoencoder of Qwen-Scope; None to take it from the path: `…-L0_50/…`.

    Raises:
        FileExistsError, FileNotFoundError: the folder exists, or the source has no such file.
        ValueError: a file is damaged or of another layout, or its path does not name the hook and k.
    """
    if os.path.exists(folder):
        raise FileExistsError(f"{folder} exists; choose another folder")
    found = {source: folder}
    if os.path.isdir(source):
        paths = (os.path.join(root, name) for root, _, names in os.walk(source) for name in sorted(names))
        files = [path for path in paths if os.path.basename(path) == "params.npz" or path.endswith(".sae.pt")]
        ends = {
            path: os.path.relpath(path, source).removesuffix(".sae.pt").removesuffix("params.npz") for path in files
        }
        found = {path: os.path.normpath(os.path.join(folder, end)) for path, end in ends.items()}
    if not found:
        raise FileNotFoundError(f"{source} has no params.npz and no layerN.sae.pt")
    for path, target in found.items():
        try:
            with zipfile.ZipFile(path) as archive:
                tensors = _read_npz(archive) if path.endswith(".npz") else _read_torch(archive)
            config = _config(tensors, os.path.abspath(path), hook_name, k)
        except OSError:
            raise
        except Exception as error:  # zipfile and numpy raise many
            raise ValueError(f"{path} cannot be read: {str(error)[:300]}") from error
        os.makedirs(target)
        write_safetensors(os.path.join(target, "sae_weights.safetensors"), tensors)
        with open(os.path.join(target, "cfg.json"), "w", encoding="utf-8") as file:
            json.dump(config, file, indent=2)
    return list(found.values())


def _read(archive: zipfile.ZipFile, name: str, most: int | None = None) -> bytes:
    info = archive.getinfo(name)
    if is_inflated(info.file_size, info.compress_size) or (most is not None and info.file_size > most):
        raise ValueError(f"its {name:.50} would have {info.file_size} bytes")
    return archive.read(info)


def _read_npz(archive: zipfile.ZipFile) -> dict[str, np.ndarray]:
    tensors = {}
    for name in archive.namelist():
        file = io.BytesIO(_read(archive, name))
        version = np.lib.format.read_magic(file)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, is_fortran, dtype = read(file)
        if dtype not in (np.float16, np.float32, np.float64) or not dtype.isnative:
            raise ValueError(f"its {name:.50} is {dtype!s:.50}, not of floats")
        values = np.frombuffer(file.read(), dtype).reshape(shape, order="F" if is_fortran else "C")
        name = name.removesuffix(".npy")
        tensors["W_" + name[2:] if name.startswith("w_") else name] = np.ascontiguousarray(values, np.float32)
    if "scaling_factor" in tensors and not np.allclose(tensors.pop("scaling_factor"), 1):
        raise ValueError("it has a finetuning_scaling_factor other than 1, which is not supported")
    if set(tensors) != _GEMMA:
        raise ValueError(f"it has {', '.join(sorted(tensors)):.200}; Gemma Scope 1 has {', '.join(sorted(_GEMMA))}")
    return tensors


def _read_torch(archive: zipfile.ZipFile) -> dict[str, np.ndarray]:
    """The tensors of a file of `torch.save`: a pickle that names storages, and a file for each storage."""
    (pickle,) = [name for name in archive.namelist() if name.endswith("/data.pkl")]
    tensors, stored = {}, load_torch(io.BytesIO(_read(archive, pickle, _MAX_PICKLE_BYTES)))
    if set(stored) != _QWEN:
        raise ValueError(
            f"it has {', '.join(sorted(map(str, stored))):.200}; Qwen-Scope has {', '.join(sorted(_QWEN))}"
        )
    for name, (storage, key, offset, shape, strides) in stored.items():
        kind = STORED[_STORAGES[storage]]
        if strides != tuple(prod(shape[place + 1 :]) for place in range(len(shape))):
            raise ValueError(f"its {name} is not contiguous")
        values = np.frombuffer(_read(archive, f"{pickle[: -len('data.pkl')]}data/{key}"), kind)
        values = Rows(values[offset : offset + prod(shape)].reshape(shape), None).to_float32()
        tensors[name] = np.ascontiguousarray(values.T)
    return tensors


def _config(tensors: dict[str, np.ndarray], path: str, hook_name: str | None, k: int | None) -> dict:
    d_in, d_sae = tensors["W_enc"].shape
    shapes = {"W_enc": (d_in, d_sae), "W_dec": (d_sae, d_in), "b_dec": (d_in,)}
    for name, values in tensors.items():
        if values.shape != shapes.get(name, (d_sae,)) or not np.isfinite(values).all():
            raise ValueError(f"its {name} has the shape {values.shape} or is not finite; W_enc is [{d_in}, {d_sae}]")
    is_topk, layers, in_path = "threshold" not in tensors, _LAYER.findall(path), _K.search(path)
    kind = "res" if is_topk else next((kind for kind in _HOOKS if re.search(rf"-{kind}\b", path)), None)
    if re.search(r"[/\\]embedding[/\\]", path):
        raise ValueError("it is of embeddings, which are scaled in another way")
    if hook_name is None and layers and kind:
        hook_name = _HOOKS[kind].format(int(layers[-1]))
    k = k or (int(in_path[1]) if in_path else None)
    if hook_name is None:
        raise ValueError("its path names no layer and kind, such as gemma-scope-2b-pt-res/layer_12: pass --hook-name")
    config: dict = {"architecture": "topk" if is_topk else "jumprelu", "d_in": d_in, "d_sae": d_sae, "dtype": "float32"}
    config |= {"device": "cpu", "apply_b_dec_to_input": False, "normalize_activations": "none"}
    config |= {"reshape_activations": "hook_z" if hook_name.endswith("hook_z") else "none"}
    config |= {"metadata": {"hook_name": hook_name, "sae_lens_version": "6.54.12", "prepend_bos": True}}
    if is_topk and not (k and 0 < k <= d_sae):
        raise ValueError(f"its k is {k}, and its path names none up to {d_sae}, such as …-L0_50: pass --k")
    return config | ({"k": k, "rescale_acts_by_decoder_norm": False} if is_topk else {})

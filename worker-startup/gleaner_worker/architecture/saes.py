"""Published sparse autoencoders: their configs, and the tensors of each layout of files.

Architectures, names and defaults are those of SAELens 6.54.12 (sae_lens/saes and loading/pretrained_sae_loaders.py).
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from ..failures import Failure
from .reductions import NORMS
from .sites import SITES

# The tensors of an encoder beside W_enc; a decoder's bias is subtracted from the input of some.
_VECTORS = {"standard": ("b_enc",), "gated": ("b_gate", "b_mag", "r_mag"), "jumprelu": ("b_enc", "threshold")}
# The encoder of each architecture, a key of _VECTORS. SAELens saves batchtopk as jumprelu, with one threshold.
_ENCODERS = dict.fromkeys(("standard", "topk", "transcoder", "skip_transcoder"), "standard") | {"gated": "gated"}
_ENCODERS |= dict.fromkeys(("jumprelu", "batchtopk", "matryoshka_batchtopk"), "jumprelu")
_ENCODERS |= dict.fromkeys(("jumprelu_transcoder", "jumprelu_skip_transcoder"), "jumprelu")
_HOOK, _HF_HOOK = re.compile(r"blocks\.(\d{1,4})\.([a-z_.0-9]+)"), re.compile(r"model\.layers\.(\d{1,4})\.([a-z_.]+)")
# For Gemma, SAELens calls the input of the MLP hook_mlp_in, which TransformerLens has before the norm.
_HOOKS = {f"hook_{site}": site for site in SITES if site != "mlp_in"}
_HOOKS |= {"attn.hook_z": "attn_z", "mlp.hook_post": "mlp_neurons"}
_HF_HOOKS = {
    "output": "resid_post",
    "input": "resid_pre",
    "self_attn.o_proj.input": "attn_z",
    "pre_feedforward_layernorm.output": "mlp_in",
    "post_feedforward_layernorm.output": "mlp_out",
}


@dataclass(frozen=True)
class Sae:
    """One sparse autoencoder as its config describes it; None where the config does not say."""

    layout: str
    architecture: str
    site: str | None = None
    layer: int | None = None
    norm: str = "none"  # one of NORMS
    subtracts_b_dec: bool = False
    rescales: bool = False  # features by the length of their row of the decoder
    d_in: int | None = None
    d_sae: int | None = None
    k: int | None = None
    scale: float = 1.0  # of W_enc
    threshold: float | None = None  # of all features

    @property
    def encoder(self) -> str:
        """A key of _VECTORS."""
        return _ENCODERS[self.architecture]

    @property
    def names(self) -> dict[str, str]:
        """The names of the tensors that the encoder needs in their file, by SAELens's names."""
        needed = {"threshold": self.threshold is None, "b_dec": self.subtracts_b_dec, "W_dec": self.rescales}
        names = ("W_enc", *_VECTORS[self.encoder], "b_dec", "W_dec")
        return {name: LAYOUTS[self.layout].names[name] for name in names if needed.get(name, True)}

    @property
    def is_transposed(self) -> bool:
        return LAYOUTS[self.layout].is_transposed

    def shape_of(self, name: str, d_in: int, d_sae: int) -> tuple[int, ...]:
        """The shape of a tensor of the files."""
        shape = {"W_enc": (d_in, d_sae), "W_dec": (d_sae, d_in), "b_dec": (d_in,)}.get(name, (d_sae,))
        return shape[::-1] if self.is_transposed else shape


@dataclass(frozen=True)
class Layout:
    """How the files of a publisher hold an autoencoder, below its folder."""

    config: str
    weights: str
    names: dict[str, str]  # of tensors, by SAELens's names
    parse: Callable[[dict, str], Sae]  # (config, the path of the folder)
    is_transposed: bool = False
    may_lack_config: bool = False


def _of_saelens(raw: dict, path: str) -> Sae:
    old = {"hook_point": "hook_name", "hook_point_head_index": "hook_head_index", "activation_fn_str": "activation_fn"}
    config = {old.get(key, key): value for key, value in raw.items()}
    config |= {key: value for key, value in _object(config, "metadata").items() if value is not None}
    architecture, of_activation = config.get("architecture", "standard"), _object(config, "activation_fn_kwargs")
    is_old = not re.match(r"[6-9]|\d\d", str(config.get("sae_lens_version")))
    if architecture == "topk" or (is_old and config.get("activation_fn") == "topk" and "k" in of_activation):
        architecture, config["k"] = "topk", of_activation.get("k") or config.get("k", 100)
    if config.get("activation_fn", "relu") not in ("relu", "topk"):
        raise ValueError(f"its activation_fn is {config['activation_fn']!r:.50}, and only relu and topk are supported")
    norm = config.get("normalize_activations") or "none"
    if norm is True or norm == "expected_average_only_in":
        raise ValueError(
            "normalize_activations is expected_average_only_in, with a factor that the folder lacks: fold it into the "
            "weights with fold_activation_norm_scaling_factor of SAELens, and save the result"
        )
    for key in ("hook_head_index", "finetuning_scaling_factor"):
        if config.get(key) is not None and config[key] is not False:
            raise ValueError(f"{key} {config[key]!r:.50} is not supported")
    is_transcoder, is_topk = str(architecture).endswith("transcoder"), architecture == "topk"
    sizes: dict = {key: _number(config, key) for key in ("d_in", "d_sae", *(("k",) if is_topk else ()))}
    return Sae(
        "saelens",
        _known(architecture, _ENCODERS, "architecture"),
        *_site_of(config.get("hf_hook_name"), config.get("hook_name")),
        _known(norm, NORMS, "normalize_activations"),
        subtracts_b_dec=not is_transcoder and bool(config.get("apply_b_dec_to_input", True)),
        rescales=is_topk and config.get("rescale_acts_by_decoder_norm") is True,
        **sizes,
    )


def _of_gemma_scope_2(raw: dict, path: str) -> Sae:
    if raw.get("architecture", "jump_relu") != "jump_relu":
        raise ValueError(f"its architecture is {raw['architecture']!r:.50}, and Gemma Scope 2 has jump_relu")
    if re.search(r"(^|/)clt", path):
        raise ValueError("cross-layer transcoders are not supported")
    layer, hook = re.search(r"layer_(\d{1,4})", path), raw.get("hf_hook_point_in")
    inferred = {"transcoder": "mlp_in", "resid_post": "resid_post", "attn_out": "attn_z", "mlp_out": "mlp_out"}
    site = next((site for word, site in inferred.items() if word in path), None)
    found = _site_of(hook, None) if hook is not None else (site, layer and int(layer[1]))
    return Sae("gemma-scope-2", "jumprelu_transcoder" if found[0] == "mlp_in" else "jumprelu", *found)


def _of_llama_scope(raw: dict, path: str) -> Sae:
    d_in, norms = _number(raw, "d_model"), _object(raw, "dataset_average_activation_norm")
    norm, threshold = norms.get("in"), raw.get("jump_relu_threshold")
    if d_in is None or not _is_positive(norm) or not _is_positive(threshold):
        raise ValueError("it has no d_model, jump_relu_threshold and dataset_average_activation_norm.in above 0")
    scale, d_sae = d_in**0.5 / norm, _number(raw, "d_sae")
    found = _site_of(None, raw.get("hook_point_in"))
    return Sae("llama-scope", "jumprelu", *found, d_in=d_in, d_sae=d_sae, scale=scale, threshold=threshold * scale)


_NAMES = ("W_enc", "W_dec", "b_enc", "b_dec", "threshold", "b_gate", "b_mag", "r_mag")
_LLAMA = {"W_enc": "encoder.weight", "b_enc": "encoder.bias", "W_dec": "decoder.weight", "b_dec": "decoder.bias"}
LAYOUTS = {
    "saelens": Layout("cfg.json", "sae_weights.safetensors", {name: name for name in _NAMES}, _of_saelens),
    "llama-scope": Layout(
        "hyperparams.json", "checkpoints/final.safetensors", _LLAMA, _of_llama_scope, is_transposed=True
    ),
    "gemma-scope-2": Layout(
        "config.json",
        "params.safetensors",
        {name: name.lower() for name in _NAMES},
        _of_gemma_scope_2,
        may_lack_config=True,
    ),
}


def layout_of(has: Callable[[str], bool]) -> str | None:
    """The layout of a folder that has these files below it; None for another folder."""
    return next(
        (name for name, of in LAYOUTS.items() if has(of.weights) and (of.may_lack_config or has(of.config))), None
    )


def parse_sae(layout: str, raw: dict, path: str, where: str) -> Sae:
    """The autoencoder of a config. path: of its folder. Raises Failure("model") for one that is not supported."""
    try:
        return LAYOUTS[layout].parse(raw, path)
    except ValueError as error:
        raise Failure("model", f"Failed to use {where}: {error}; name other `weights` of `features`") from error


def _known(value: object, known: Collection[str], key: str) -> str:
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"its {key} is {value!r:.50}, and supported are {', '.join(known)}")
    return str(value)


def _site_of(hf_hook: object, hook: object) -> tuple[str | None, int | None]:
    """The site and the layer of a hook; None for a name that says none of them, and then `site` of the spec counts.
    The name of transformers' module decides first."""
    of_module, of_lens = (
        pattern.fullmatch(name) if isinstance(name, str) else None
        for pattern, name in ((_HF_HOOK, hf_hook), (_HOOK, hook))
    )
    if of_module and of_module[2] in _HF_HOOKS:
        return _HF_HOOKS[of_module[2]], int(of_module[1])
    return (_HOOKS.get(of_lens[2]), int(of_lens[1])) if of_lens else (None, None)


def _object(raw: dict, key: str) -> dict:
    value = raw.get(key)
    return value if isinstance(value, dict) else {}


def _number(raw: dict, key: str) -> int | None:
    value = raw.get(key)
    if value is not None and (type(value) is not int or not 0 < value <= 1 << 30):
        raise ValueError(f"{key} is {value!r:.50}")
    return value


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 1e-30 < value < 1e30

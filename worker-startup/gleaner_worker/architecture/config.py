"""The computation of a model, from its config.json: everything that the decoder needs, as one value."""

from dataclasses import dataclass

from gleaner_reader.format.limits import MAX_TENSORS

from ..failures import Failure
from .config_keys import refuse_keys
from .config_parser import Fields, shown
from .families import DEFAULTS, FAMILIES, FULL, NEUTRAL, SLIDING, Family, sizes
from .rope import Rope, parse_ropes, rope_layers

UNLIMITED = 2**30  # a window longer than any sequence: full attention
# The names of transformers, with the function of each; those of one function differ in rounding alone.
ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_pytorch_tanh": "gelu_pytorch_tanh",
    "gelu_python_tanh": "gelu_pytorch_tanh",
    "gelu_new": "gelu_pytorch_tanh",
    "gelu_fast": "gelu_pytorch_tanh",
    "relu": "relu",
}
_MAX_LAYERS, _MAX_POSITIONS = 4096, 2**31 - 1


@dataclass(frozen=True)
class Experts:
    """The MLP of a mixture: the sum of a token's chosen experts, weighted by the router. Every expert has a gate."""

    count: int
    per_token: int
    d_ff: int
    weights_add_up: bool  # the softmax is over the chosen experts alone
    layers: tuple[bool, ...]  # whether the layer is a mixture
    biases: bool  # of the router and of the experts
    clamp: tuple[float, float] | None  # gpt-oss: swiglu_alpha and swiglu_limit, in place of the activation
    is_mxfp4: bool  # the files hold packed 4-bit floats


@dataclass(frozen=True)
class DecoderConfig:
    """The computation of one model. Hashable, so that it can be static under jit."""

    family: str
    num_layers: int
    d_model: int
    d_ff: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_positions: int  # including positions that scaled rotary embeddings add
    norm_eps: float
    windows: tuple[int, ...]  # per layer: the number of positions that a token sees, itself included
    ropes: tuple[Rope, ...]
    layer_ropes: tuple[int, ...]  # per layer: the index in `ropes`
    learned_positions: bool  # each position has a row that is added to the embeddings
    rotary_dim: int  # the first dimensions of a head, which the rotary embedding turns; an odd number turns one more
    attention_scale: float  # of the dot products, before the soft cap and the softmax
    scale_by_layer: bool  # layer i divides its dot products by i + 1
    attention_softcap: float | None
    embed_scale: float | None  # rounded to the weights' dtype, as transformers does
    residual_scale: float  # of what attention and MLP add to the stream
    sinks: bool  # each head has a score that takes a part of the softmax and adds nothing
    is_parallel: bool  # the MLP reads the stream before attention
    gated: bool  # the MLP has a gate
    activation: str  # a value of ACTIVATIONS
    experts: Experts | None  # of a mixture
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    layer_norm: bool  # norms subtract the mean and have biases
    clip_qkv: float | None  # the largest magnitude of queries, keys and values
    qk_norm: str | None  # before the rotary embedding: see Family
    norm_offset: float  # added to a norm's weights
    norm_rounds_last: bool  # norms apply their weights in fp32 and then round; otherwise they round before the weights
    pre_norms: bool  # norms before attention and MLP
    post_norms: bool  # norms after attention and MLP
    multimodal: bool  # the weight files hold other towers too
    is_tied: bool  # the unembedding has the weights of the embeddings
    logits_scale: float  # of the logits, before their soft cap
    logits_softcap: float | None


def parse_config(raw: dict, where: str) -> DecoderConfig:
    """Reads Hugging Face's config.json; raises Failure("model") naming everything that this decoder does not support.

    Missing keys have the defaults of transformers. `where` is the model's name in the spec.
    """
    top = Fields(raw)
    name = raw.get("model_type")
    if not isinstance(name, str) or name not in FAMILIES:
        top.refuse("model_type", f"the supported families are {', '.join(FAMILIES)}")
        raise _failure(where, top)
    family = FAMILIES[name]
    decoder = top.table(family.inner) if family.inner else top
    if family.inner:
        if not top.has(family.inner):
            top.problems.append(f"{family.inner} is missing")
        # The whole model decides about its head, and ties it unless it says otherwise.
        decoder.raw = decoder.raw | {"tie_word_embeddings": raw.get("tie_word_embeddings", True)}
    config = _decoder_config(name, family, decoder)
    _refuse_unsupported_keys(top, family, name)
    if family.inner:
        _refuse_unsupported_keys(decoder, family, f"{name}_text")
    if top.problems:
        raise _failure(where, top)
    return config


def _failure(where: str, fields: Fields) -> Failure:
    problems = list(dict.fromkeys(fields.problems))
    more = f"; and {len(problems) - 20} more" if len(problems) > 20 else ""
    return Failure(
        "model",
        f"Failed to use the config.json of {where}: {'; '.join(problems[:20])}{more}; correct it, or use another model",
    )


def _decoder_config(name: str, family: Family, decoder: Fields) -> DecoderConfig:
    defaults = DEFAULTS | sizes(name) | family.defaults | _under_own_names(decoder, family)
    fields = Fields(defaults, decoder.prefix, decoder.problems, family.renamed)
    layers = fields.size("num_hidden_layers", _MAX_LAYERS)
    d_model, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    kv_heads = fields.size("num_key_value_heads") if fields.has("num_key_value_heads") else heads
    head_dim = fields.size("head_dim") if fields.has("head_dim") else max(1, d_model // heads)
    max_positions = fields.size("max_position_embeddings", _MAX_POSITIONS)
    types, windows = _windows(fields, family, layers)
    ropes, layer_ropes, rotary = parse_ropes(fields, family, types, max_positions, head_dim)
    fits = heads % kv_heads == 0 and (fields.has("head_dim") or d_model % heads == 0)
    if not fields.problems and not (fits and rotary + rotary % 2 <= head_dim):
        fields.problems.append(
            f"{heads} heads, {kv_heads} key/value heads, hidden size {d_model} and head size {head_dim} do not fit"
        )
    biases = "attention_bias" in family.reads and "qkv" not in family.biases and fields.flag("attention_bias")
    softcap = "attn_logit_softcapping" in family.reads and fields.has("attn_logit_softcapping")
    has_scalar = "query_pre_attn_scalar" in family.defaults
    scale = (fields.number("query_pre_attn_scalar", 1e-6, 1e6) if has_scalar else head_dim) ** -0.5
    if "attention_multiplier" in family.reads:
        scale = fields.number("attention_multiplier", -1e6, 1e6)
    elif "scale_attn_weights" in family.reads and not fields.flag("scale_attn_weights"):
        scale = 1.0
    multiplier = fields.number("embedding_multiplier", -1e6, 1e6) if "embedding_multiplier" in family.reads else None
    has_d_ff = fields.has("intermediate_size") or family.ropes != ()  # GPT-2 has a default
    return DecoderConfig(
        family=name,
        num_layers=layers,
        d_model=d_model,
        d_ff=fields.size("intermediate_size") if has_d_ff else 4 * d_model,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=fields.size("vocab_size"),
        max_positions=_scaled_positions(ropes, family, max_positions),
        norm_eps=fields.number("rms_norm_eps", 0, 1),
        windows=windows,
        ropes=ropes,
        layer_ropes=layer_ropes,
        learned_positions=not family.ropes,
        rotary_dim=rotary,
        attention_scale=scale,
        scale_by_layer="scale_attn_by_inverse_layer_idx" in family.reads
        and fields.flag("scale_attn_by_inverse_layer_idx"),
        attention_softcap=fields.number("attn_logit_softcapping", 1e-3, 1e6) if softcap else None,
        embed_scale=d_model**0.5 if family.gemma else multiplier,
        residual_scale=fields.number("residual_multiplier", -1e6, 1e6),
        sinks=family.sinks,
        is_parallel="use_parallel_residual" in family.reads and fields.flag("use_parallel_residual"),
        gated=family.gated,
        activation=_activation(fields, family),
        experts=_experts(fields, family, layers, d_model) if family.experts else None,
        qkv_bias="qkv" in family.biases or biases,
        o_bias="o" in family.biases or biases,
        mlp_bias="mlp" in family.biases or ("mlp_bias" in family.reads and fields.flag("mlp_bias")),
        layer_norm=family.layer_norm,
        clip_qkv=fields.number("clip_qkv", 1e-6, 1e6)
        if "clip_qkv" in family.reads and fields.has("clip_qkv")
        else None,
        qk_norm=family.qk_norm,
        norm_offset=1.0 if family.gemma else 0.0,
        norm_rounds_last=family.norm_rounds_last,
        pre_norms=family.pre_norms,
        post_norms=family.post_norms,
        multimodal=family.inner is not None,
        is_tied=fields.flag("tie_word_embeddings"),
        logits_scale=1 / fields.number("logits_scaling", 1e-6, 1e6) if "logits_scaling" in family.defaults else 1.0,
        logits_softcap=fields.number("final_logit_softcapping", 1e-3, 1e6)
        if "final_logit_softcapping" in family.reads and fields.has("final_logit_softcapping")
        else None,
    )


def _activation(fields: Fields, family: Family) -> str:
    name = fields.choice("hidden_act", tuple(ACTIVATIONS))
    return ACTIVATIONS["gelu_pytorch_tanh" if family.gelu_is_tanh and name == "gelu" else name]


def _under_own_names(decoder: Fields, family: Family) -> dict:
    """The file, in which a key that has two names has the name of the family, and null ropes are missing."""
    raw = decoder.raw
    for key in sorted(family.aliases & raw.keys()):
        own = family.renamed[key]
        if own in raw and raw[own] != raw[key]:
            decoder.refuse(key, f"but {own} is {shown(raw[own])}")
        raw = raw | {own: raw[key]}
    return {key: value for key, value in raw.items() if key != "rope_parameters" or value is not None}


def _experts(fields: Fields, family: Family, layers: int, d_model: int) -> Experts:
    count, per_token = fields.size("num_experts"), fields.size("num_experts_per_tok")
    if per_token > count:
        fields.refuse("num_experts_per_tok", f"but the model has {count} experts")
    if 3 * layers * count > MAX_TENSORS:  # each expert may have its own gate, up and down
        fields.refuse("num_experts", f"and {layers} layers of them have more than {MAX_TENSORS} tensors")
    d_ff = fields.size("moe_intermediate_size")
    clamp = None
    if "swiglu_limit" in family.defaults:
        clamp = fields.number("swiglu_alpha", 1e-3, 1e3), fields.number("swiglu_limit", 1e-3, 1e6)
    quantization = fields.table("quantization_config") if "quantization_config" in family.reads else Fields({})
    if quantization.raw:
        quantization.choice("quant_method", ("mxfp4",))
        if d_model % 32 or d_ff % 32:
            fields.refuse("quantization_config", "which needs sizes that 32 divides")
    return Experts(
        count,
        per_token,
        d_ff,
        family.experts == "always" or fields.flag("norm_topk_prob"),
        _mixture_layers(fields, family, layers),
        biases=clamp is not None,
        clamp=clamp,
        is_mxfp4=bool(quantization.raw),
    )


def _mixture_layers(fields: Fields, family: Family, layers: int) -> tuple[bool, ...]:
    if "decoder_sparse_step" not in family.reads:
        return (True,) * layers
    step, dense = fields.size("decoder_sparse_step"), fields.get("mlp_only_layers") or []
    if not isinstance(dense, list) or not all(type(layer) is int for layer in dense):
        fields.refuse("mlp_only_layers", "it must list layers")
        dense = []
    return tuple((layer + 1) % step == 0 and layer not in dense for layer in range(layers))


def _scaled_positions(ropes: tuple[Rope, ...], family: Family, max_positions: int) -> int:
    """The positions after scaling. Files with yarn or linear scaling (Qwen) state the positions before scaling; llama3,
    longrope, Gemma 3 and OLMo 3 files state the positions after scaling."""
    if family.local_rope:
        return max_positions
    scaled = [int(rope.factor * rope.original_positions) for rope in ropes if rope.kind in ("yarn", "linear")]
    return max([max_positions, *scaled])


def _windows(fields: Fields, family: Family, layers: int) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The attention type of each layer, and its window in positions."""
    has_windows = fields.flag("use_sliding_window") if "use_sliding_window" in family.defaults else True
    if family.windows == "without rope" and fields.has("layer_types"):
        has_windows = True  # the key decides about the layers alone
    window = fields.size("sliding_window", UNLIMITED) if has_windows and fields.has("sliding_window") else None
    types = _derived_types(fields, family, layers, window is not None)
    if fields.has("layer_types"):
        kinds = fields.get("layer_types")
        if not isinstance(kinds, list) or len(kinds) != layers or not all(kind in (FULL, SLIDING) for kind in kinds):
            fields.refuse("layer_types", f"it must list {FULL} or {SLIDING} for each of {layers} layers")
        elif family.windows in ("nowhere", "everywhere") and tuple(kinds) != types:
            fields.refuse("layer_types", f"every layer of this family has {types[0]}")
        else:
            types = tuple(kinds)
    if SLIDING in types and window is None:
        fields.problems.append(f"{fields.prefix}sliding_window is null, but some layers are {SLIDING}")
    return types, tuple(window if kind == SLIDING and window else UNLIMITED for kind in types)


def _derived_types(fields: Fields, family: Family, layers: int, window: bool) -> tuple[str, ...]:
    if family.windows == "above max_window_layers":
        first = fields.number("max_window_layers", 0, 1e9) if window else layers
        slides = [layer >= first for layer in range(layers)]
    elif family.windows == "every other layer":
        slides = [layer % 2 == 0 for layer in range(layers)]
    elif family.windows == "all but every sliding_window_pattern-th":
        pattern = fields.size("sliding_window_pattern")
        slides = [(layer + 1) % pattern != 0 for layer in range(layers)]
    elif family.windows == "all but every 4th":
        slides = [(layer + 1) % 4 != 0 for layer in range(layers)]
    elif family.windows == "without rope":
        slides = [window and not has_rope for has_rope in rope_layers(fields, family, layers)]
    else:
        slides = [window and family.windows == "everywhere"] * layers
    return tuple(SLIDING if slide else FULL for slide in slides)


def _refuse_unsupported_keys(fields: Fields, family: Family, name: str) -> None:
    refuse_keys(fields, name)
    for key, neutral in NEUTRAL.items():
        if key not in family.reads and fields.raw.get(key) not in neutral:
            fields.refuse(key, "which this decoder does not support for this family")
    defaults = DEFAULTS | family.defaults
    for key, own in renamed_keys(family).items():
        default = defaults.get(own)
        if own not in fields.raw and fields.raw.get(key, default) != default:
            instead = f"models of this family use {own}" if own else "which models of this family do not use"
            fields.problems.append(f"{fields.prefix}{key} is {shown(fields.raw[key])}, {instead}")


def renamed_keys(family: Family) -> dict[str, str]:
    """{key of other families: key of this family}, empty for no such key. transformers reads the second alone, so a
    file with the first alone would be misread."""
    names = family.renamed if "hidden_act" in family.renamed else {"hidden_activation": "hidden_act"} | family.renamed
    return {key: own for key, own in names.items() if key not in family.aliases}

"""Random configs of every family, in the forms that its files have had."""

import random

KINDS = ("default", "linear", "dynamic", "llama3", "yarn", "longrope")
ACTIVATIONS = ("silu", "swish", "gelu", "gelu_python", "gelu_pytorch_tanh", "gelu_new", "gelu_fast", "relu")
FULL, SLIDING, KV = "full_attention", "sliding_attention", "num_key_value_heads"


def shape(rng: random.Random) -> dict:
    kv_heads = rng.choice([1, 2, 4])
    heads = kv_heads * rng.choice([1, 2, 3])
    return {
        "hidden_size": heads * 2 * rng.randint(4, 12),
        "intermediate_size": rng.randint(20, 120),
        "num_hidden_layers": rng.randint(2, 5),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": rng.randint(64, 300),
        "max_position_embeddings": 1024,
        "rms_norm_eps": rng.choice([1e-5, 1e-6]),
    }


def some(rng, *values):
    """One of the values, or that of a function."""
    value = rng.choice(values)
    return value() if callable(value) else value


def a_rope(rng, own, *kinds):
    """A rope of one of these kinds, in an old or a new file, for the config `own`."""
    kind, theta = rng.choice(kinds or KINDS), rng.choice([100.0, 1e4, 5e5])
    rope = parameters(rng, own, kind)
    beside = {}
    if "original_max_position_embeddings" in rope and rng.random() < 0.2:
        beside["original_max_position_embeddings"] = rope.pop("original_max_position_embeddings")
    if rng.random() < 0.5:
        return beside | {"rope_parameters": {"rope_type": kind} | some(rng, {}, {"rope_theta": theta}) | rope}
    scaling = {"rope_scaling": {rng.choice(["type", "rope_type"]): kind} | rope} if rope else {}
    return beside | {"rope_theta": theta} | scaling


def parameters(rng, own, kind, part=1.0):
    """Those of one kind of rope. part: of each head that is turned."""
    pairs = int((own.get("head_dim") or own["hidden_size"] // own["num_attention_heads"]) * part) // 2
    original = {"original_max_position_embeddings": rng.choice([32, 64, 300])}
    attention = some(rng, {}, {"attention_factor": 1.3})
    if kind == "linear":
        return {"factor": rng.choice([2.0, 8.0])}
    if kind == "dynamic":
        return {"factor": 3.0}
    if kind == "llama3":
        factors = {"low_freq_factor": 1.0, "high_freq_factor": rng.choice([2.0, 4.0])}
        return factors | {"factor": rng.choice([8.0, 32.0])} | some(rng, {}, original)
    if kind == "yarn":
        more = [{}, {"truncate": False}, {"beta_fast": 16.0, "beta_slow": 2.0}, {"beta_fast": 0, "beta_slow": None}]
        more += [{"mscale": 0.7}, {"mscale": 0.7, "mscale_all_dim": 0.5}, {"mscale": 1.0, "mscale_all_dim": 0}]
        return {"factor": rng.choice([4.0, 32.0])} | some(rng, {}, original) | some(rng, *more) | attention
    if kind == "longrope":
        factors = {key: [rng.uniform(1, 4) for _ in range(pairs)] for key in ("short_factor", "long_factor")}
        return factors | some(rng, {}, original) | some(rng, {}, {"factor": 4.0}) | attention
    return {}


def ropes_by_type(rng, own):
    """Ropes of layers with full attention and of layers with a window, in an old or a new file."""
    both = {layer: rng.choice(KINDS) for layer in (FULL, SLIDING)}
    if rng.random() < 0.4:
        old = {"rope_theta": rng.choice([100.0, 1e6])} | some(rng, {}, {"rope_local_base_freq": 500.0})
        rope = {"rope_type": both[FULL]} | parameters(rng, own, both[FULL])
        return old | some(rng, {}, {"rope_scaling": rope})
    new = {layer: {"rope_type": kind} | parameters(rng, own, kind) for layer, kind in both.items()}
    for rope in new.values():
        rope.pop("truncate", None)
        rope |= some(rng, {}, {"rope_theta": rng.choice([100.0, 1e6])})
    return {"rope_parameters": new | some(rng, {}, {}, {SLIDING: None}, {FULL: None})}


def common(rng, shape, model_type, *left_out, activation="hidden_act"):
    """The keys of most families. left_out: keys that a file of this family may lack."""
    own = shape | {"model_type": model_type, activation: rng.choice(ACTIVATIONS), "pad_token_id": None}
    own |= {"tie_word_embeddings": rng.random() < 0.5, rng.choice(["dtype", "torch_dtype"]): "bfloat16"}
    own |= some(rng, {}, {"head_dim": 2 * rng.randint(2, 12)})
    absent = [key for key in left_out if rng.random() < 0.25]
    # transformers reads a null of most other keys as a value.
    nulls = {KV: None} if KV in absent and rng.random() < 0.5 else {}
    return {key: value for key, value in own.items() if key not in absent} | nulls


def biases(rng, *names):
    return {name: rng.random() < 0.5 for name in names}


def window(rng):
    return some(rng, None, lambda: rng.randint(2, 40))


def types(rng, shape):
    layers = range(shape["num_hidden_layers"])
    return some(rng, {}, lambda: {"layer_types": [rng.choice((FULL, SLIDING)) for _ in layers]})


def _qwen(rng, shape, model_type):
    own = common(rng, shape, model_type) | {"use_sliding_window": rng.random() < 0.7, "sliding_window": window(rng)}
    has_window = own["use_sliding_window"] and own["sliding_window"]
    return own | {"max_window_layers": rng.randint(0, 3)} | (types(rng, shape) if has_window else {})


def qwen2(rng, shape):
    own = _qwen(rng, shape, "qwen2")
    return own | a_rope(rng, own), {}


def qwen3(rng, shape):
    own = _qwen(rng, shape, "qwen3") | biases(rng, "attention_bias")
    own.setdefault("head_dim", 10)
    return own | some(rng, {}, {"use_qk_norm": True}) | a_rope(rng, own), {}


def llama(rng, shape):
    own = common(rng, shape, "llama", KV, "rms_norm_eps") | biases(rng, "attention_bias", "mlp_bias")
    return own | a_rope(rng, own), some(rng, {}, {"shards": 2})


def mistral(rng, shape):
    own = common(rng, shape, "mistral") | {"sliding_window": window(rng)}
    return own | a_rope(rng, own), {}


def _gemma(rng, shape, model_type):
    own = common(rng, shape, model_type, "rms_norm_eps", activation="hidden_activation")
    own["head_dim"] = 2 * rng.randint(4, 12)
    own |= {"query_pre_attn_scalar": rng.randint(own["head_dim"], 2 * own["head_dim"])} | types(rng, shape)
    return own | biases(rng, "attention_bias") | {"sliding_window": rng.randint(2, 40)}


def gemma(rng, shape):
    own = common(rng, shape, "gemma", "hidden_act") | biases(rng, "attention_bias")
    own.setdefault("head_dim", 8)
    return own | a_rope(rng, own), {}


def gemma2(rng, shape):
    own = _gemma(rng, shape, "gemma2")
    caps = {"attn_logit_softcapping": rng.choice([1.0, 50.0, None]), "final_logit_softcapping": rng.choice([5.0, None])}
    return own | some(rng, {}, caps) | a_rope(rng, own), {}


def gemma3(rng, shape):
    shape["num_hidden_layers"] = rng.randint(2, 7)
    own = _gemma(rng, shape, "gemma3_text") | some(rng, {}, {"sliding_window_pattern": rng.randint(1, 6)})
    return own | some(rng, {}, {"final_logit_softcapping": 5.0}) | ropes_by_type(rng, own), {}


def gemma3_multimodal(rng, shape):
    vision = {"model_type": "siglip_vision_model", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    vision |= {"num_attention_heads": 2, "image_size": 16, "patch_size": 8}
    text, _ = gemma3(rng, shape)
    raw = {"model_type": "gemma3", "text_config": text, "vision_config": vision, "mm_tokens_per_image": 4}
    raw |= some(rng, {}, {"tie_word_embeddings": rng.random() < 0.5})
    return raw | {"image_token_index": text["vocab_size"] - 1}, {}


def olmo2(rng, shape):
    own = common(rng, shape, "olmo2", KV, "rms_norm_eps") | biases(rng, "attention_bias")
    return own | a_rope(rng, own), {}


def olmo3(rng, shape):
    own = common(rng, shape, "olmo3", KV, "rms_norm_eps") | biases(rng, "attention_bias") | types(rng, shape)
    return own | ropes_by_type(rng, own) | {"sliding_window": rng.randint(2, 40)}, {}


def phi3(rng, shape):
    own = common(rng, shape, "phi3", KV, "rms_norm_eps") | {"sliding_window": window(rng)}
    own.pop("head_dim", None)
    own["hidden_size"] = shape["num_attention_heads"] * 4 * rng.randint(2, 6)
    factor = rng.choice([1.0, 0.5, 0.75])
    own |= some(rng, {}, {"original_max_position_embeddings": rng.choice([64, 300])})
    if rng.random() < 0.7 and own["hidden_size"] // own["num_attention_heads"] * factor % 2 == 0:
        rope = {"type": rng.choice(["longrope", "yarn"])} | parameters(rng, own, "longrope", factor)
        own |= {rng.choice(["rope_scaling", "rope_parameters"]): rope}
    return own | {"partial_rotary_factor": factor, "rope_theta": 1e4}, {}


def granite(rng, shape):
    # A softmax of large scores multiplies the errors of both sides.
    multipliers = {
        "attention": rng.uniform(0.02, 0.5),
        "embedding": rng.uniform(0.1, 12),
        "residual": rng.uniform(0.1, 1),
    }
    own = common(rng, shape, "granite", KV, "rms_norm_eps") | biases(rng, "attention_bias", "mlp_bias")
    own |= {f"{name}_multiplier": value for name, value in multipliers.items()}
    return own | some(rng, {}, {"logits_scaling": rng.choice([0.5, 8.0])}) | a_rope(rng, own), {}


def smollm3(rng, shape):
    own = common(rng, shape, "smollm3", "rms_norm_eps") | biases(
        rng, "attention_bias", "mlp_bias", "use_sliding_window"
    )
    own |= {"sliding_window": window(rng), "no_rope_layer_interval": rng.randint(1, 4)}
    listed = [rng.randint(0, 1) for _ in range(shape["num_hidden_layers"] + 1)]
    own |= some(rng, {}, {"no_rope_layers": listed}) | (types(rng, shape) if own["sliding_window"] else {})
    return own | a_rope(rng, own), {}


def gpt2(rng, shape):
    heads = shape["num_attention_heads"]
    own = {"n_embd": heads * rng.randint(3, 20), "n_head": heads, "n_layer": shape["num_hidden_layers"]}
    own |= {"n_positions": 1024, "n_inner": rng.choice([None, 50]), "layer_norm_epsilon": rng.choice([1e-5, 1e-3])}
    flags = biases(rng, "scale_attn_weights", "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn")
    own |= {"activation_function": rng.choice(ACTIVATIONS), "vocab_size": shape["vocab_size"]}
    return {"model_type": "gpt2", "tie_word_embeddings": rng.random() < 0.5} | own | flags, {}


def gpt_neox(rng, shape):
    own = common(rng, shape, "gpt_neox") | biases(rng, "attention_bias", "use_parallel_residual")
    for key in ("head_dim", "num_key_value_heads", "rms_norm_eps"):
        own.pop(key, None)
    size, part = rng.randint(4, 20), rng.choice([0.25, 0.5, 0.4, 1.0])
    size += next(more for more in range(9) if int((size + more) * part) % 2 == 0)  # a rotation has pairs
    own |= {"hidden_size": own["num_attention_heads"] * size, "layer_norm_eps": rng.choice([1e-5, 1e-3])}
    kind = rng.choice(KINDS) if int(size * part) > 2 else "default"
    rope = {"rope_type": kind} | parameters(rng, own, kind, part)
    if rng.random() < 0.3:
        return own | {"rope_parameters": rope | {"partial_rotary_factor": part}}, {}
    parts = {"rotary_pct": part, "rotary_emb_base": rng.choice([100, 1e4])}
    return own | parts | ({} if kind == "default" else {"rope_scaling": rope}), {}


def mixture(rng, shape, model_type):
    experts = rng.randint(2, 9)
    own = common(rng, shape, model_type, "rms_norm_eps") | {"num_experts_per_tok": rng.randint(1, experts)}
    return own | {rng.choice(["num_experts", "num_local_experts"]): experts}


def mixtral(rng, shape):
    own = mixture(rng, shape, "mixtral") | {"sliding_window": window(rng)}
    own.setdefault("head_dim", 8)  # without it, transformers fails for some ropes
    return own | a_rope(rng, own), {}


def olmoe(rng, shape):
    own = mixture(rng, shape, "olmoe") | biases(rng, "attention_bias", "norm_topk_prob")
    own.pop("head_dim", None)
    return own | some(rng, {}, {"clip_qkv": rng.choice([0.3, 2.0, None])}) | a_rope(rng, own), {}


def qwen3_moe(rng, shape):
    own = mixture(rng, shape, "qwen3_moe") | biases(rng, "attention_bias", "norm_topk_prob", "use_sliding_window")
    dense = {"decoder_sparse_step": rng.randint(1, 3), "mlp_only_layers": [rng.randint(0, 2)]}
    own |= some(rng, {}, {}, dense) | {"moe_intermediate_size": rng.randint(4, 60), "sliding_window": window(rng)}
    return own | some(rng, {}, {"use_qk_norm": True}) | a_rope(rng, own), {}


def gpt_oss(rng, shape):
    own = mixture(rng, shape, "gpt_oss") | biases(rng, "attention_bias") | types(rng, shape)
    own |= {"sliding_window": rng.randint(2, 40), "head_dim": 2 * rng.randint(2, 12)}
    own |= some(rng, {}, {"swiglu_alpha": 1.2, "swiglu_limit": 0.8}, {"swiglu_limit": 2.0})
    if rng.random() < 0.3:
        own |= {"hidden_size": 32 * rng.randint(1, 2), "intermediate_size": 32}
        own["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    return own | some(rng, {}, {"rope_parameters": None}, lambda: a_rope(rng, own)), {}


VARIANTS = {
    "gemma": gemma,
    "gemma2": gemma2,
    "gemma3": gemma3,
    "gemma3, multimodal": gemma3_multimodal,
    "gpt2": gpt2,
    "gpt_neox": gpt_neox,
    "gpt_oss": gpt_oss,
    "granite": granite,
    "llama": llama,
    "mistral": mistral,
    "mixtral": mixtral,
    "olmo2": olmo2,
    "olmo3": olmo3,
    "olmoe": olmoe,
    "phi3": phi3,
    "qwen2": qwen2,
    "qwen3": qwen3,
    "qwen3_moe": qwen3_moe,
    "smollm3": smollm3,
}

"""config.json files from any source: parsed, or refused with all problems in one error."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

import golden_models as golden
from build import fails
from environment import WORKER
from gleaner_worker.architecture.config import parse_config
from gleaner_worker.architecture.config_keys import unknown_keys
from gleaner_worker.architecture.config_rules import rules
from gleaner_worker.architecture.families import FAMILIES
from gleaner_worker.architecture.rope import Rope, inverse_frequencies
from gleaner_worker.failures import Failure

QWEN2, LLAMA, MISTRAL = golden.raw_config("qwen2"), golden.raw_config("llama3.1"), golden.raw_config("mistral")
GEMMA2, GEMMA3 = golden.raw_config("gemma2"), golden.raw_config("gemma3-text")
IMAGES = golden.raw_config("gemma3-multimodal")
TEXT_DECIDES = {"model_type": "gemma3", "text_config": IMAGES["text_config"] | {"tie_word_embeddings": False}}
PHI3, GRANITE, SMOLLM3, OLMO3 = (golden.raw_config(name) for name in ("phi3", "granite", "smollm3", "olmo3"))
GPT2, NEOX, MIXTRAL = (golden.raw_config(name) for name in ("gpt2", "gpt-neox", "mixtral"))
QWEN3_MOE, GPT_OSS = golden.raw_config("qwen3-moe"), golden.raw_config("gpt-oss")
del GPT2["n_inner"]
GEMMA, OLMOE = golden.raw_config("gemma"), golden.raw_config("olmoe")
SCALED, LONG = LLAMA["rope_scaling"], PHI3["rope_scaling"]
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}

REFUSED = [
    # Features that the decoder lacks.
    (QWEN2, {"model_type": "bert"}, "model_type is 'bert', the supported families are gemma, gemma2, .*qwen3"),
    (QWEN2, {"model_type": None}, "model_type is None, the supported families are"),
    (QWEN2, {"model_type": ["qwen2"]}, r"model_type is \['qwen2'\]"),
    (QWEN2, {"hidden_act": "mish"}, "hidden_act is 'mish', supported is 'silu' or .*'gelu_pytorch_tanh'"),
    (QWEN2, {"rope_scaling": {"rope_type": "proportional"}}, "rope_scaling.rope_type is 'proportional', supported is"),
    (
        QWEN2,
        {"rope_scaling": {"rope_type": "longrope"}},
        "scaling.short_factor is None, it must list a positive number",
    ),
    (QWEN2, {"rope_parameters": {"rope_type": 3}}, "rope_parameters.rope_type is 3"),
    (QWEN2, {"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
    (QWEN2, {"rope_parameters": {"partial_rotary_factor": 0.25}}, "rope_parameters.partial_rotary_factor is 0.25"),
    (QWEN2, {"num_experts": 60}, "num_experts is 60, which this decoder does not support for this family"),
    (QWEN2, {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping is 50.0, which this decoder does not support"),
    (QWEN2, {"quantization_config": {"quant_method": "awq"}}, "quantization_config is {'quant_method': 'awq'}"),
    (QWEN2, {"mlp_bias": True}, "mlp_bias is True"),
    (QWEN2, {"per_layer_config": {"0": {"head_dim": 8}}}, "per_layer_config is {'0'"),
    (OLMO3, {"rope_scaling": {"full_attention": {}}}, "rope_scaling.full_attention is {}, it is of all layers"),
    (LLAMA, {"sliding_window": 4096}, "sliding_window is 4096, which this decoder does not support for this family"),
    (LLAMA, {"num_local_experts": 8}, "num_local_experts is 8"),
    (MISTRAL, {"attention_bias": True}, "attention_bias is True"),
    (MISTRAL, {"layer_types": ["full_attention"] * 3}, "every layer of this family has sliding_attention"),
    (LLAMA, {"layer_types": ["sliding_attention"] * 3}, "every layer of this family has full_attention"),
    (GEMMA2, {"use_bidirectional_attention": True}, "use_bidirectional_attention is True"),
    (QWEN2, {"is_causal": False}, "is_causal is False"),
    (GEMMA2, {"hidden_activation": "tanh"}, "hidden_activation is 'tanh'"),
    (QWEN2, {"hidden_act": None, "hidden_activation": "gelu"}, "hidden_act is None"),
    (GEMMA3, {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping is 50.0"),
    (GEMMA3, {"layer_types": ["chunked_attention"] * 7}, "layer_types is .* for each of 7 layers"),
    (GEMMA3, {"layer_types": ["full_attention"] * 6}, "layer_types is .* for each of 7 layers"),
    (OLMO3, {"rope_scaling": {"type": "linear", "factor": 8.0}}, "rope_scaling.type is 'linear', which transformers"),
    (GEMMA3, {"rope_parameters": {"rope_type": "default"}}, "rope_parameters.rope_type is 'default', supported are"),
    (
        QWEN2,
        {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e6}}},
        "rope_parameters.full_attention is .* one embedding for all layers",
    ),
    (GEMMA2, {"sliding_window": None}, "sliding_window is null, but some layers are sliding_attention"),
    ({"model_type": "gemma3"}, {}, "text_config is missing"),
    ({"model_type": "gemma3", "text_config": 3}, {}, "text_config is 3, it must be an object"),
    (
        PHI3,
        {"rope_scaling": {"type": "linear", "factor": 2.0}},
        "rope_type is 'linear', supported is default, longrope",
    ),
    (PHI3, {"rope_scaling": LONG | {"long_factor": [1.0, 2.0]}}, "scaling.long_factor is .* for each of 3 pairs"),
    (PHI3, {"rope_scaling": LONG | {"long_factor": [1.0, "x", 2.0]}}, "scaling.long_factor is .*positive number"),
    (PHI3, {"partial_rotary_factor": 1.5}, "partial_rotary_factor is 1.5, it must be a number from 0 to 1"),
    (SMOLLM3, {"no_rope_layers": [1, 0]}, "no_rope_layers is .* for each of 3 layers"),
    (SMOLLM3, {"no_rope_layers": None, "no_rope_layer_interval": 0}, "no_rope_layer_interval is 0"),
    (GRANITE, {"residual_multiplier": "x"}, "residual_multiplier is 'x'"),
    (OLMO3, {"rope_scaling": OLMO3["rope_scaling"] | {"truncate": False}}, "rope_scaling.truncate is False"),
    (OLMO3, {"clip_qkv": 8.0}, "clip_qkv is 8.0"),
    (GPT2, {"add_cross_attention": True}, "add_cross_attention is True"),
    (GPT2, {"head_dim": 8}, "head_dim is 8, which models of this family do not use"),
    (GPT2, {"n_layer": None}, "n_layer is missing"),
    (GPT2, {"hidden_size": 32}, "hidden_size is 32, but n_embd is 20"),
    (GPT2, {"intermediate_size": 50}, "intermediate_size is 50, models of this family use n_inner"),
    (GPT2, {"layer_norm_epsilon": "x"}, "layer_norm_epsilon is 'x', it must be a number"),
    (NEOX, {"num_key_value_heads": 2}, "num_key_value_heads is 2, which models of this family do not use"),
    (NEOX, {"rotary_pct": 2}, "rotary_pct is 2, it must be a number from 0 to 1"),
    (QWEN2, {"use_qk_norm": True}, "use_qk_norm is True"),
    (LLAMA, {"quantization": {"bits": 4}}, "quantization is {'bits': 4}"),
    (OLMOE, {"clip_qkv": 0}, "clip_qkv is 0, it must be a number"),
    (LLAMA, {"use_parallel_residual": True}, "use_parallel_residual is True"),
    (MIXTRAL, {"num_experts": 9}, "num_experts is 9, but num_local_experts is 3"),
    (MIXTRAL, {"num_experts_per_tok": 4}, "num_experts_per_tok is 4, but the model has 3 experts"),
    (MIXTRAL, {"moe_intermediate_size": 8}, "moe_intermediate_size is 8, which this decoder"),
    (MIXTRAL, {"quantization_config": {"quant_method": "mxfp4"}}, "quantization_config is"),
    (QWEN3_MOE, {"mlp_only_layers": ["1"]}, "mlp_only_layers is .*, it must list layers"),
    (QWEN3_MOE, {"decoder_sparse_step": 0}, "decoder_sparse_step is 0"),
    (QWEN3_MOE, {"norm_topk_prob": 1}, "norm_topk_prob is 1, it must be true or false"),
    (GPT_OSS, {"quantization_config": {"quant_method": "awq"}}, "quant_method is 'awq', supported is 'mxfp4'"),
    (GPT_OSS, {"intermediate_size": 40}, "quantization_config is .*, which needs sizes that 32 divides"),
    (GPT_OSS, {"swiglu_limit": -1}, "swiglu_limit is -1"),
    # Keys that transformers obeys.
    (LLAMA, {"transformers_weights": "other.safetensors"}, "transformers_weights is 'other.safetensors', which trans"),
    (GPT2, {"is_encoder_decoder": True}, "is_encoder_decoder is True, which transformers obeys"),
    (IMAGES, {"text_config": IMAGES["text_config"] | {"fusion_config": {"a": 1}}}, "text_config.fusion_config is"),
    # Values of the wrong kind.
    (QWEN2, {"vocab_size": None}, "vocab_size is missing"),
    (QWEN2, {"hidden_size": "896"}, "hidden_size is '896', it must be a whole number from 1"),
    (QWEN2, {"hidden_size": 16.0}, "hidden_size is 16.0, it must be a whole number"),
    (QWEN2, {"num_hidden_layers": True}, "num_hidden_layers is True"),
    (QWEN2, {"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000, it must be a whole number from 1 to 4096"),
    (QWEN2, {"num_attention_heads": 0}, "num_attention_heads is 0"),
    (QWEN2, {"intermediate_size": -5}, "intermediate_size is -5"),
    (QWEN2, {"vocab_size": 10**5000}, "vocab_size is an integer of more than 20 digits"),
    (QWEN2, {"head_dim": []}, r"head_dim is \[\]"),
    (QWEN2, {"head_dim": 7}, "4 heads, 2 key/value heads, hidden size 16 and head size 7 do not fit"),
    (QWEN2, {"num_key_value_heads": 3}, "4 heads, 3 key/value heads"),
    (QWEN2, {"hidden_size": 18}, "4 heads, 2 key/value heads, hidden size 18 and head size 4 do not fit"),
    (QWEN2, {"rms_norm_eps": "small"}, "rms_norm_eps is 'small', it must be a number from 0 to 1"),
    (QWEN2, {"rms_norm_eps": float("nan")}, "rms_norm_eps is nan"),
    (QWEN2, {"rope_theta": float("inf")}, "rope_theta is inf"),
    (QWEN2, {"rope_theta": 0}, "rope_theta is 0"),
    (QWEN2, {"rope_theta": 10**400}, "rope_theta is an integer of more than 20 digits"),
    (QWEN2, {"rope_scaling": [1]}, r"rope_scaling is \[1\], it must be an object"),
    (QWEN2, {"use_sliding_window": "yes"}, "use_sliding_window is 'yes', it must be true or false"),
    (QWEN2, {"use_sliding_window": True, "sliding_window": 0}, "sliding_window is 0"),
    (QWEN2, {"use_sliding_window": True, "max_window_layers": "2"}, "max_window_layers is '2'"),
    (LLAMA, {"rope_scaling": SCALED | {"factor": "8"}}, "rope_scaling.factor is '8', it must be a number"),
    (LLAMA, {"rope_scaling": {"rope_type": "llama3"}}, "rope_scaling.factor is missing; .*low_freq_factor is missing"),
    (LLAMA, {"rope_scaling": SCALED | {"high_freq_factor": 1.0}}, "low_freq_factor is 1.0, it must be smaller than"),
    (LLAMA, {"rope_scaling": SCALED | {"original_max_position_embeddings": 0.5}}, "max_position_embeddings is 0.5"),
    (GEMMA2, {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar is 0"),
    (GEMMA2, {"attn_logit_softcapping": -1}, "attn_logit_softcapping is -1"),
    (GEMMA3, {"layer_types": None, "sliding_window_pattern": 0}, "sliding_window_pattern is 0"),
    (GEMMA3, {"rope_parameters": {"full_attention": "default"}}, "rope_parameters.full_attention is 'default'"),
    # All problems at once.
    (QWEN2, {"vocab_size": None, "hidden_size": "x"}, "hidden_size is 'x'.*; vocab_size is missing"),
]


@pytest.mark.parametrize(("raw", "change", "reason"), REFUSED)
def test_an_unsupported_config_is_refused_with_every_problem(raw, change, reason):
    with fails("model", f"Failed to use the config.json of my-model: .*{reason}") as failure:
        parse_config(raw | change, "my-model")
    assert len(failure.value.reason) < 3000


ACCEPTED = [
    (QWEN2, {"num_key_value_heads": 4}, "num_kv_heads", 4),
    (LLAMA, {"num_key_value_heads": None}, "num_kv_heads", 6),
    (LLAMA, {"rms_norm_eps": None, "model_type": "llama"}, "norm_eps", 1e-6),
    (MISTRAL, {"sliding_window": None}, "windows", (2**30,) * 3),
    (MISTRAL, {"layer_types": ["sliding_attention"] * 3}, "windows", (24,) * 3),
    (QWEN2, {"sliding_window": "nothing reads this"}, "windows", (2**30,) * 3),
    (GEMMA, {"hidden_act": "gelu"}, "activation", "gelu_pytorch_tanh"),
    (GEMMA, {"hidden_act": "gelu_python"}, "activation", "gelu"),
    (QWEN3_MOE, {"use_qk_norm": True}, "qk_norm", "head"),
    (GEMMA2, {"hidden_act": "relu"}, "activation", "gelu"),
    (QWEN2, {"hidden_act": "gelu"}, "activation", "gelu"),
    (QWEN2, {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "ropes", (Rope("default", 1e6),)),
    (QWEN2, {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "max_positions", 512),
    (PHI3, {"original_max_position_embeddings": None}, "max_positions", 512),
    (
        OLMO3,
        {"rope_scaling": None, "rope_theta": 3e4, "rope_local_base_freq": 500.0},
        "ropes",
        (Rope("default", 5e5), Rope("default", 3e4)),
    ),
    # The family's own yarn, of factor 32.
    (GPT_OSS, {"rope_scaling": None, "rope_parameters": None}, "max_positions", 131072),
    (GPT2, {"n_inner": 50}, "d_ff", 50),
    (GPT2, {"n_inner": None}, "d_ff", 80),
    (GPT2, {"hidden_size": 20}, "d_model", 20),
    (GPT2, {"scale_attn_weights": False}, "attention_scale", 1.0),
    (NEOX, {"rotary_pct": 0}, "rotary_dim", 0),
    (SMOLLM3, {"no_rope_layers": None, "no_rope_layer_interval": 2}, "layer_ropes", (0, 1, 0)),
    (GEMMA2, {"attn_logit_softcapping": None}, "attention_softcap", None),
    (GEMMA2, {"query_pre_attn_scalar": 4}, "attention_scale", 0.5),
    (QWEN2, {"max_position_embeddings": 131072}, "max_positions", 131072),
    (QWEN2, {"max_position_embeddings": 32768, "rope_scaling": YARN}, "max_positions", 131072),
    (QWEN2, {"max_position_embeddings": 200_000, "rope_scaling": YARN}, "max_positions", 200_000),
    (QWEN2, {"rope_scaling": {"type": "yarn", "factor": 2.5}}, "max_positions", 1280),
    (LLAMA, {"rope_scaling": {"type": "linear", "factor": 4.0}}, "max_positions", 2048),
    (LLAMA, {"rope_parameters": {"rope_type": "linear", "factor": 4.0}, "rope_scaling": None}, "max_positions", 2048),
    (LLAMA, {"rope_scaling": SCALED}, "max_positions", 512),
    (GEMMA3, {"rope_scaling": {"rope_type": "linear", "factor": 8.0}}, "max_positions", 512),
    (TEXT_DECIDES, {}, "is_tied", True),
    (IMAGES, {"tie_word_embeddings": False}, "is_tied", False),
    (IMAGES, {"text_config": IMAGES["text_config"] | {"final_logit_softcapping": 5.0}}, "logits_softcap", None),
    (LLAMA, {"rope_scaling": YARN | {"mscale": 0.7, "mscale_all_dim": 0}}, "max_positions", 131072),
    (QWEN2, {"tie_word_embeddings": False, "architectures": 3, "torch_dtype": None}, "num_layers", 3),
]


@pytest.mark.parametrize(("raw", "change", "key", "value"), ACCEPTED)
def test_optional_config_keys_are_read_defaulted_or_ignored(raw, change, key, value):
    changed = {name: item for name, item in (raw | change).items() if name != "rms_norm_eps" or item is not None}
    assert getattr(parse_config(changed, "m"), key) == value


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(data=st.data())
def test_any_config_is_parsed_or_refused_with_a_failure(data):
    raw = data.draw(st.sampled_from([golden.raw_config(name) for name in golden.NAMES]))
    keys = sorted(raw) + ["layer_types", "rope_scaling", "rope_parameters", "head_dim", "sliding_window_pattern"]
    keys += ["mlp_only_layers", "quantization_config", "num_local_experts", "hidden_size"]
    raw = raw | data.draw(st.dictionaries(st.sampled_from(keys), json_values, min_size=1, max_size=3))
    scaling = st.fixed_dictionaries(
        {"rope_type": st.sampled_from(["yarn", "llama3", "linear", "longrope"])},
        optional={
            key: json_values | st.floats(0.01, 100)
            for key in (
                "factor",
                "original_max_position_embeddings",
                "beta_fast",
                "mscale",
                "attention_factor",
                "truncate",
                "short_factor",
                "partial_rotary_factor",
            )
        },
    )
    if data.draw(st.booleans()):
        raw["rope_scaling"] = data.draw(scaling)
    try:
        config = parse_config(raw, "m")
    except Failure as failure:
        assert failure.kind == "model"
        assert "Failed to use the config.json of m" in failure.reason
    else:
        hash(config)
        for rope in config.ropes:
            assert inverse_frequencies(rope, config.rotary_dim).shape == (-(-config.rotary_dim // 2),)


def test_an_unknown_family_is_refused_with_the_known_families():
    with pytest.raises(Failure) as failure:
        parse_config({"model_type": "bert"}, "m")
    assert all(name in failure.value.reason for name in FAMILIES)
    assert json.dumps(list(FAMILIES)) == json.dumps(sorted(FAMILIES))


def test_keys_that_neither_gleaner_nor_transformers_knows_are_listed():
    assert unknown_keys({"model_type": "bert", "x": 1}) == unknown_keys({}) == []
    assert unknown_keys(LLAMA | {"torch_dtype": "bfloat16", "use_cache": False, "eos_token_id": 7}) == []
    assert unknown_keys(LLAMA | {"rms_norm_epsilon": 1e-6, "_own": 1}) == ["_own", "rms_norm_epsilon"]
    inner = {"text_config": IMAGES["text_config"] | {"hidden_sise": 3, "y" * 200: 1}}
    assert unknown_keys(IMAGES | inner) == ["text_config.hidden_sise", f"text_config.{'y' * 65}..."]
    assert len(unknown_keys(LLAMA | {f"key_{n}": n for n in range(1000)})) == 100


def test_commands_and_functions_have_the_same_rules():
    with open(os.path.join(WORKER, "..", "shared", "contracts", "spec", "model-rules.json"), encoding="utf-8") as file:
        assert json.load(file) == json.loads(json.dumps(rules()))

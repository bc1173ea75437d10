"""A config.json with model_type alone means the same here and in transformers."""

import pytest
from transformers import AutoConfig

from gleaner_worker.architecture.config import ACTIVATIONS, parse_config
from gleaner_worker.architecture.families import FAMILIES


def first(config, *names):
    return next(value for name in names if (value := getattr(config, name, None)) is not None)


@pytest.mark.parametrize("name", FAMILIES)
def test_each_missing_key_has_the_default_of_transformers(name):
    raw = {"model_type": name} | ({"text_config": {}} if FAMILIES[name].inner else {})
    ours, theirs = parse_config(raw, name), AutoConfig.for_model(name)
    text = theirs.get_text_config()
    heads = text.num_attention_heads
    assert (ours.num_layers, ours.d_model, ours.num_heads) == (text.num_hidden_layers, text.hidden_size, heads)
    assert (ours.vocab_size, ours.is_tied) == (text.vocab_size, theirs.tie_word_embeddings)
    assert ours.num_kv_heads == (getattr(text, "num_key_value_heads", None) or heads)
    assert ours.head_dim == (getattr(text, "head_dim", None) or text.hidden_size // heads)
    assert ours.d_ff == first(text, "intermediate_size", "n_inner") if hasattr(text, "intermediate_size") else 3072
    assert ours.norm_eps == first(text, "rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon")
    activation = first(text, "hidden_act", "hidden_activation", "activation_function")
    assert ours.activation == ACTIVATIONS[activation]
    scaling = getattr(text, "rope_parameters", None) or {}
    positions = text.max_position_embeddings
    assert ours.max_positions == max(
        positions, int(scaling.get("factor", 1) * scaling.get("original_max_position_embeddings", 1))
    )
    ropes = [
        scaling.get(kind, scaling) for kind in dict.fromkeys(getattr(text, "layer_types", None) or ["full_attention"])
    ]
    assert {rope.theta for rope in ours.ropes if rope.kind != "none"} == {rope["rope_theta"] for rope in ropes if rope}
    window = getattr(text, "sliding_window", None)
    kinds = (
        getattr(text, "layer_types", None) or ["sliding_attention" if window else "full_attention"] * ours.num_layers
    )
    assert ours.windows == tuple(window if kind == "sliding_attention" else 2**30 for kind in kinds)
    if ours.experts:
        sizes = first(text, "num_local_experts", "num_experts"), text.num_experts_per_tok
        assert (ours.experts.count, ours.experts.per_token) == sizes
        assert ours.experts.d_ff == first(text, "moe_intermediate_size", "intermediate_size")

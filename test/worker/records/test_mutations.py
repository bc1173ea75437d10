"""Mutations of the decoder: the golden check fails for each."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import golden_models as golden

pytestmark = pytest.mark.long


def no_change(value):
    return value


def ropes(which=0, **changes):
    """Changes one of a model's rotary embeddings."""

    def change(config):
        changed = replace(config.ropes[which], **changes)
        return replace(config, ropes=config.ropes[:which] + (changed,) + config.ropes[which + 1 :])

    return change


def setting(**changes):
    return lambda config: replace(config, **changes)


def experts(**changes):
    return lambda config: replace(config, experts=replace(config.experts, **changes))


def windows(change):
    """Changes the window of the layers with sliding attention."""
    return lambda config: replace(config, windows=tuple(change(w) if w < 2**30 else w for w in config.windows))


def shifted(key):
    """Uses the value of layer i in layer i + 1."""
    return lambda config: replace(config, **{key: getattr(config, key)[-1:] + getattr(config, key)[:-1]})


def blocks(**changes):
    """Changes parameters of all layers."""
    return lambda params: (
        params
        | {"blocks": params["blocks"] | {name: change(params["blocks"][name]) for name, change in changes.items()}}
    )


def heads_round_robin(config):
    """Query heads spread over key/value heads one by one instead of in groups."""

    def change(w):
        groups = w.reshape(len(w), config.num_kv_heads, -1, config.head_dim, w.shape[-1])
        return groups.swapaxes(1, 2).reshape(w.shape)

    return blocks(wq=change)


def pairs_interleaved(config):
    """Rotary pairs of neighbours, as in GPT-J; all families here pair the halves of a head."""

    def change(w):
        heads = w.reshape(len(w), -1, 2, config.head_dim // 2, w.shape[-1])
        return heads.swapaxes(2, 3).reshape(w.shape)

    return blocks(wq=change, wk=change)


def swapped(one, other):
    def change(params):
        stacks = params["blocks"]
        return params | {"blocks": stacks | {one: stacks[other], other: stacks[one]}}

    return change


def layers_reversed(params):
    return params | {"blocks": {name: stack[::-1] for name, stack in params["blocks"].items()}}


def as_bf16(params):
    rounded = {name: stack.astype(ml_dtypes.bfloat16).astype(np.float32) for name, stack in params["blocks"].items()}
    return params | {"blocks": rounded}


zeros, ones = np.zeros_like, np.ones_like
OF_CONFIG = [
    ("rope theta", "qwen2", ropes(theta=10_000.0)),
    ("rope theta, by one percent", "llama2", ropes(theta=10_100.0)),
    ("llama3 scaling left out", "llama3.1", ropes(kind="default")),
    ("llama3 scaling factor", "llama3.1", ropes(factor=4.0)),
    ("llama3 low_freq_factor", "llama3.1", ropes(low_freq_factor=2.0)),
    ("llama3 high_freq_factor", "llama3.1", ropes(high_freq_factor=8.0)),
    ("llama3 original length", "llama3.1", ropes(original_positions=512)),
    ("linear scaling factor", "gemma3-text", ropes(1, factor=4.0)),
    ("linear scaling left out", "gemma3-multimodal", ropes(1, kind="default")),
    ("yarn left out", "qwen2-yarn", ropes(kind="default", attention_factor=1.0)),
    ("yarn scaling factor", "qwen2-yarn", ropes(factor=8.0)),
    ("yarn attention factor", "qwen2-yarn", ropes(attention_factor=1.0)),
    ("yarn beta_slow", "qwen2-yarn", ropes(beta_slow=0.2)),
    ("yarn original length", "qwen2-yarn", ropes(original_positions=512)),
    ("local and global rope exchanged", "gemma3-text", lambda c: replace(c, ropes=c.ropes[::-1])),
    ("one rope for all layers", "gemma3-multimodal", lambda c: replace(c, layer_ropes=(0,) * c.num_layers)),
    ("ropes of the next layer", "gemma3-text", shifted("layer_ropes")),
    ("eps", "qwen2", setting(norm_eps=1e-5)),
    ("eps, smaller", "llama2", setting(norm_eps=1e-6)),
    ("eps of Gemma", "gemma2", setting(norm_eps=1e-5)),
    ("window left out", "qwen2-windowed", windows(lambda w: 2**30)),
    ("window left out", "mistral", windows(lambda w: 2**30)),
    ("window left out", "gemma3-text", windows(lambda w: 2**30)),
    ("window longer by one", "mistral", windows(lambda w: w + 1)),
    ("window shorter by one", "gemma2", windows(lambda w: w - 1)),
    ("windows in other layers", "gemma2", shifted("windows")),
    ("windows in other layers", "qwen3", shifted("windows")),
    ("softmax scale", "qwen2", lambda c: replace(c, attention_scale=c.attention_scale * 1.01)),
    ("scale by head size", "gemma2", lambda c: replace(c, attention_scale=c.head_dim**-0.5)),
    ("scale by head size", "gemma3-text", lambda c: replace(c, attention_scale=c.head_dim**-0.5)),
    ("soft cap left out", "gemma2", setting(attention_softcap=None)),
    ("soft cap", "gemma2", setting(attention_softcap=2.1)),
    ("soft cap added", "gemma3-text", setting(attention_softcap=50.0)),
    ("embedding scale left out", "gemma2", setting(embed_scale=None)),
    ("embedding scale rounded to bf16", "gemma3-multimodal", setting(embed_scale=4.46875)),
    ("qk norm left out", "qwen3", setting(qk_norm=None)),
    ("qk norm left out", "gemma3-text", setting(qk_norm=None)),
    ("norm offset left out", "gemma2", setting(norm_offset=0.0)),
    ("norm offset added", "qwen3", setting(norm_offset=1.0)),
    ("post norms left out", "gemma3-text", setting(post_norms=False)),
    ("norm of each head", "olmo2", setting(qk_norm=None)),
    ("norms before the sum", "olmo2", setting(norm_rounds_last=False, post_norms=False)),
    ("local and global rope exchanged", "olmo3", lambda c: replace(c, ropes=c.ropes[::-1])),
    ("exact gelu", "gemma", setting(activation="gelu")),
    ("norm offset left out", "gemma", setting(norm_offset=0.0)),
    ("embedding scale left out", "gemma", setting(embed_scale=None)),
    ("clip left out", "olmoe", setting(clip_qkv=None)),
    ("norm of each head", "olmoe", setting(qk_norm=None)),
    ("weights of experts as they are", "olmoe", experts(weights_add_up=False)),
    ("short factors", "phi3", lambda c: replace(c, ropes=(replace(c.ropes[0], original_positions=512),))),
    ("attention factor", "phi3", ropes(attention_factor=1.0)),
    ("embedding multiplier left out", "granite", setting(embed_scale=None)),
    ("residual multiplier left out", "granite", setting(residual_scale=1.0)),
    ("scale by head size", "granite", lambda c: replace(c, attention_scale=c.head_dim**-0.5)),
    ("rope in every layer", "smollm3", lambda c: replace(c, layer_ropes=(0, 0, 0))),
    ("window in other layers", "smollm3", shifted("windows")),
    ("layers scaled alike", "gpt2", setting(scale_by_layer=False)),
    ("learned positions left out", "gpt2", setting(learned_positions=False)),
    ("RMS norm", "gpt2", setting(layer_norm=False)),
    ("MLP after attention", "gpt-neox", setting(is_parallel=False)),
    ("tanh in place of erf", "gpt-neox", setting(activation="gelu_pytorch_tanh")),
    ("weights of experts as they are", "mixtral", experts(weights_add_up=False)),
    ("one expert less", "mixtral", experts(per_token=1)),
    ("weights of experts that add up", "qwen3-moe", experts(weights_add_up=True)),
    ("limit of experts", "gpt-oss", experts(clamp=(1.702, 7.0))),
    ("alpha of experts", "gpt-oss", experts(clamp=(1.0, 1.0))),
    ("activation", "qwen3", setting(activation="gelu_pytorch_tanh")),
    ("activation", "gemma2", setting(activation="silu")),
]
OF_PARAMS = [
    ("query bias left out", "qwen2", blocks(bq=zeros)),
    ("key bias left out", "qwen2-windowed", blocks(bk=zeros)),
    ("value bias left out", "qwen3", blocks(bv=zeros)),
    ("output bias left out", "qwen3", blocks(bo=zeros)),
    ("gate bias left out", "llama3.1", blocks(b_gate=zeros)),
    ("up bias left out", "llama3.1", blocks(b_up=zeros)),
    ("down bias left out", "llama3.1", blocks(b_down=zeros)),
    ("order of heads", "qwen2", heads_round_robin(golden.config("qwen2"))),
    ("order of heads", "llama3.1", heads_round_robin(golden.config("llama3.1"))),
    ("rotary pairs", "llama2", pairs_interleaved(golden.config("llama2"))),
    ("weights of a norm", "mistral", blocks(norm1=ones)),
    ("weights of the other norm", "mistral", blocks(norm2=ones)),
    ("weights of the query norm", "qwen3", blocks(q_norm=ones)),
    ("weights of the key norm", "gemma3-multimodal", blocks(k_norm=zeros)),
    ("weights of a post norm", "gemma2", blocks(post1=zeros)),
    ("weights of the other post norm", "gemma3-text", blocks(post2=zeros)),
    ("gate and up exchanged", "llama2", swapped("gate", "up")),
    ("gate and up exchanged", "phi3", swapped("gate", "up")),
    ("bias of a norm left out", "gpt2", blocks(norm1_bias=zeros)),
    ("bias of the other norm left out", "gpt-neox", blocks(norm2_bias=zeros)),
    ("output bias left out", "gpt-neox", blocks(bo=zeros)),
    ("up bias left out", "gpt2", blocks(b_up=zeros)),
    ("sinks left out", "gpt-oss", blocks(sinks=lambda w: w - 100)),
    ("router's bias left out", "gpt-oss", blocks(b_router=zeros)),
    ("bias of experts left out", "gpt-oss", blocks(b_experts_down=zeros)),
    ("gate and up of experts exchanged", "mixtral", swapped("experts_gate", "experts_up")),
    ("experts exchanged", "qwen3-moe", blocks(experts_down=lambda w: w[:, ::-1])),
    ("experts of the next layer", "qwen3-moe", blocks(experts_down=lambda w: w[::-1])),
    ("weights of the query norm", "olmo2", blocks(q_norm=ones)),
    ("weights of the key norm", "olmoe", blocks(k_norm=ones)),
    ("gate and up of experts exchanged", "olmoe", swapped("experts_gate", "experts_up")),
    ("weights of a post norm", "olmo3", blocks(post1=ones)),
    ("order of layers", "mistral", layers_reversed),
    ("weights in bf16", "qwen2", as_bf16),
]


@pytest.mark.parametrize(
    ("mutation", "name", "of_config", "of_params"),
    [(mutation, name, change, no_change) for mutation, name, change in OF_CONFIG]
    + [(mutation, name, no_change, change) for mutation, name, change in OF_PARAMS],
    ids=[f"{name}: {mutation}" for mutation, name, _ in OF_CONFIG + OF_PARAMS],
)
def test_the_golden_check_fails_for_each_mutation(mutation, name, of_config, of_params):
    config, params = of_config(golden.config(name)), of_params(golden.params(name))
    with pytest.raises(AssertionError, match="points elsewhere|differs from transformers"):
        golden.check(name, config, params)

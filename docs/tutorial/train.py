"""Trains a language model of four blocks on texts.jsonl, and goes on from its checkpoint after a preemption."""

import json
import os
import time

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

STEPS, BATCH = int(os.environ["STEPS"]), int(os.environ.get("BATCH", 8))
SAVES, LENGTH, RATE = 20, 128, 3e-3
VOCAB, WIDTH, HIDDEN, HEADS, BLOCKS, EPSILON, THETA = 1024, 128, 384, 4, 4, 1e-5, 10_000.0
ARTIFACTS, CHECKPOINT, BEGIN = os.environ["JOB_ARTIFACTS"], os.environ["JOB_CHECKPOINT"], "<|begin|>"


def make_tokenizer(texts):
    tokenizer = Tokenizer(models.BPE())
    digits, words = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Sequence([digits, words]), decoders.ByteLevel()
    options = {"special_tokens": [BEGIN], "initial_alphabet": words.alphabet(), "show_progress": False}
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=VOCAB, **options))
    tokenizer.post_processor = processors.TemplateProcessing(f"{BEGIN} $A", special_tokens=[(BEGIN, 0)])
    return tokenizer


def first_weights():  # by the names of Llama, [out, in] each
    shapes = {"model.embed_tokens.weight": (VOCAB, WIDTH), "model.norm.weight": (WIDTH,)}
    for block in range(BLOCKS):
        own = {f"self_attn.{each}_proj.weight": (WIDTH, WIDTH) for each in "qkvo"}
        own |= {"mlp.gate_proj.weight": (HIDDEN, WIDTH), "mlp.up_proj.weight": (HIDDEN, WIDTH)}
        own |= {"mlp.down_proj.weight": (WIDTH, HIDDEN)}
        own |= {f"{each}_layernorm.weight": (WIDTH,) for each in ("input", "post_attention")}
        shapes |= {f"model.layers.{block}.{name}": shape for name, shape in own.items()}
    random = np.random.default_rng(0)
    values = {
        name: random.normal(0, 0.02, shape) if len(shape) == 2 else np.ones(shape) for name, shape in shapes.items()
    }
    return {name: each.astype(np.float32) for name, each in values.items()}


def norm(x, weight):
    return x * jax.lax.rsqrt((x**2).mean(-1, keepdims=True) + EPSILON) * weight


def rope(x):  # [batch, token, head, width]: turns each pair of values by an angle that grows with the position
    half = x.shape[-1] // 2
    angle = np.arange(x.shape[1])[:, None, None] * THETA ** (-np.arange(half) / half)
    a, b = jnp.split(x, 2, -1)
    return jnp.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], -1)


def logits(weights, tokens):  # [batch, token] -> [batch, token, VOCAB]
    x = weights["model.embed_tokens.weight"][tokens]
    mask = np.tril(np.ones((tokens.shape[1],) * 2, bool))
    for block in range(BLOCKS):
        w = {name.split(".")[-2]: each for name, each in weights.items() if f".layers.{block}." in name}
        y = norm(x, w["input_layernorm"])
        q, k, v = ((y @ w[f"{each}_proj"].T).reshape(*y.shape[:2], HEADS, -1) for each in "qkv")
        scores = jnp.einsum("bihd,bjhd->bhij", rope(q), rope(k)) / np.sqrt(WIDTH // HEADS)
        z = jnp.einsum("bhij,bjhd->bihd", jax.nn.softmax(jnp.where(mask, scores, -jnp.inf)), v)
        x = x + z.reshape(x.shape) @ w["o_proj"].T
        y = norm(x, w["post_attention_layernorm"])
        x = x + (jax.nn.silu(y @ w["gate_proj"].T) * (y @ w["up_proj"].T)) @ w["down_proj"].T
    return norm(x, weights["model.norm.weight"]) @ weights["model.embed_tokens.weight"].T


def loss(weights, tokens):  # nats for each next token
    chances = jax.nn.log_softmax(logits(weights, tokens[:, :-1]))
    return -jnp.take_along_axis(chances, tokens[:, 1:, None], -1).mean()


@jax.jit
def train(state, tokens, step):  # a step of Adam
    value, gradient = jax.value_and_grad(loss)(state["weights"], tokens)
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["mean"], gradient)
    square = jax.tree.map(lambda s, g: 0.95 * s + 0.05 * g**2, state["square"], gradient)
    rate = RATE * jnp.minimum(1, (step + 1) / 50) * (1 - step / STEPS)  # rises for 50 steps, and then falls to 0
    a, b = 1 / (1 - 0.9 ** (step + 1)), 1 / (1 - 0.95 ** (step + 1))
    move = jax.tree.map(lambda m, s: rate * a * m / (jnp.sqrt(b * s) + 1e-8), mean, square)
    return {"weights": jax.tree.map(jnp.subtract, state["weights"], move), "mean": mean, "square": square}, value


def save(state, step):
    flat = {f"{part} {name}": np.asarray(each) for part, tree in state.items() for name, each in tree.items()}
    save_file(flat | {"step": np.array(step)}, f"{CHECKPOINT}/new")
    os.replace(f"{CHECKPOINT}/new", f"{CHECKPOINT}/state.safetensors")
    open(f"{CHECKPOINT}/.save", "w").close()  # the worker stores this moment, and then deletes the file
    while os.path.exists(f"{CHECKPOINT}/.save"):
        time.sleep(0.1)


def load():
    zeros = {name: np.zeros_like(each) for name, each in first_weights().items()}
    state, step = {"weights": first_weights(), "mean": zeros, "square": zeros}, 0
    if os.path.exists(path := f"{CHECKPOINT}/state.safetensors"):
        found = load_file(path)
        step = int(found["step"])
        state = {part: {name: found[f"{part} {name}"] for name in tree} for part, tree in state.items()}
    return state, step


def write_model(weights, tokenizer):  # as transformers does
    save_file({name: np.asarray(each) for name, each in weights.items()}, f"{ARTIFACTS}/model.safetensors")
    tokenizer.save(f"{ARTIFACTS}/tokenizer.json")
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu"}
    config |= {"vocab_size": VOCAB, "hidden_size": WIDTH, "intermediate_size": HIDDEN, "num_hidden_layers": BLOCKS}
    config |= {"num_attention_heads": HEADS, "num_key_value_heads": HEADS, "max_position_embeddings": 2048}
    config |= {"rms_norm_eps": EPSILON, "rope_theta": THETA, "tie_word_embeddings": True, "dtype": "float32"}
    with open(f"{ARTIFACTS}/config.json", "w") as file:
        json.dump(config, file)


with open("texts.jsonl", encoding="utf-8") as file:
    texts = [json.loads(line)["text"] for line in file]
tokenizer = make_tokenizer(texts)
stream = np.concatenate([each.ids for each in tokenizer.encode_batch(texts)])
(state, step), losses = load(), []
print(f"{len(stream):,} tokens of {len(texts):,} texts; begins at step {step}", flush=True)
while step < STEPS:
    begins = np.random.default_rng(step).integers(0, len(stream) - LENGTH, BATCH)  # the same in each attempt
    state, value = train(state, np.stack([stream[at : at + LENGTH + 1] for at in begins]), step)
    losses.append(value)
    step += 1
    if step % max(1, STEPS // SAVES) == 0:
        print(f"step {step} of {STEPS}: loss {np.mean(losses[-STEPS // SAVES :]):.2f}", flush=True)
        save(state, step)
write_model(state["weights"], tokenizer)
result = f"loss {np.mean(losses[-STEPS // SAVES :]):.2f}"

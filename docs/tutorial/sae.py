"""Trains a top-k sparse autoencoder on a layer of a run, and saves it as SAELens does."""

import json
import os

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save_file

import gleaner_reader

STEPS, BATCH, FEATURES, K, LAYER, RATE = int(os.environ["STEPS"]), 2048, 512, 8, 2, 2e-3
run = gleaner_reader.open(os.environ["JOB_INPUT_0"])
batches = run.batches(LAYER, batch_rows=BATCH, seed=0, dtype="float32", epochs=None)
first = next(batches)
decoder = np.random.default_rng(0).normal(size=(FEATURES, first.shape[1])).astype(np.float32)
decoder /= np.linalg.norm(decoder, axis=1, keepdims=True)
sae = {"W_enc": decoder.T.copy(), "b_enc": np.zeros(FEATURES, np.float32), "W_dec": decoder, "b_dec": first.mean(0)}


def encode(sae, x):  # the K largest features of each row; the others are 0
    features = jax.nn.relu((x - sae["b_dec"]) @ sae["W_enc"] + sae["b_enc"])
    least = jax.lax.top_k(features, K)[0][:, -1:]
    return jnp.where(features >= least, features, 0)


def error(sae, x):
    features = encode(sae, x)
    return ((features @ sae["W_dec"] + sae["b_dec"] - x) ** 2).sum(1).mean(), features


@jax.jit
def train(state, x, step):  # a step of Adam
    sae, mean, square = state
    (value, features), gradient = jax.value_and_grad(error, has_aux=True)(sae, x)
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, gradient)
    square = jax.tree.map(lambda s, g: 0.99 * s + 0.01 * g**2, square, gradient)
    rate = RATE * (1 - step / STEPS) / (1 - 0.9 ** (step + 1))
    sae = jax.tree.map(
        lambda w, m, s: w - rate * m / (jnp.sqrt(s / (1 - 0.99 ** (step + 1))) + 1e-8), sae, mean, square
    )
    sae["W_dec"] /= jnp.linalg.norm(sae["W_dec"], axis=1, keepdims=True)
    return (sae, mean, square), value, (features > 0).sum(0)


zeros = jax.tree.map(np.zeros_like, sae)
state, active = (sae, zeros, zeros), np.zeros(FEATURES, int)
for step in range(STEPS):
    state, value, counts = train(state, next(batches), step)
    active = active + counts if step >= STEPS - 50 else active  # in the last 50 batches
    if (step + 1) % (STEPS // 5) == 0:
        print(f"step {step + 1}: squared error {value:.3f}", flush=True)
sae = state[0]
rows = np.concatenate([next(batches) for _ in range(10)])
explained = 1 - error(sae, rows)[0] / ((rows - rows.mean(0)) ** 2).sum(1).mean()
print(f"explained variance {explained:.3f}, dead features {(np.asarray(active) == 0).sum()} of {FEATURES}")
folder = os.environ["JOB_ARTIFACTS"]
save_file({name: np.asarray(each) for name, each in sae.items()}, f"{folder}/sae_weights.safetensors")
config = {"architecture": "topk", "k": K, "d_in": rows.shape[1], "d_sae": FEATURES, "dtype": "float32"}
config |= {"hook_name": f"blocks.{LAYER}.hook_resid_post", "apply_b_dec_to_input": True}
with open(f"{folder}/cfg.json", "w") as file:
    json.dump(config | {"normalize_activations": "none"}, file)

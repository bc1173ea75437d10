# Trains a small transformer, and goes on from its checkpoint: parameters, state of the optimizer, step and losses.
# The result is the digest of all losses and parameters. SAVES chooses who saves: numpy, optax or orbax.
import hashlib
import os
import time

import jax
import jax.numpy as jnp
import numpy as np

STEPS, EVERY, PAUSE_S = int(os.environ["STEPS"]), 8, float(os.environ["PAUSE_S"])
SAVES, HOST, HOSTS = os.environ["SAVES"], jax.process_index(), jax.process_count()
D, VOCAB, LENGTH, BATCH, RATE = 16, 11, 8, 8, 0.01


def normal(number, *shape):
    return np.random.default_rng(number).standard_normal(shape, np.float32) / np.float32(shape[0] ** 0.5)


layers = [{"qkv": normal(2 * n, D, 3 * D), "up": normal(2 * n + 1, D, D)} for n in range(2)]
first = {"embed": normal(9, VOCAB, D), "out": normal(8, D, VOCAB), "layers": layers}


def logits(params, tokens):
    x = params["embed"][tokens]
    for layer in params["layers"]:
        q, k, v = jnp.split(x @ layer["qkv"], 3, -1)
        mask = jnp.tril(jnp.ones((x.shape[1], x.shape[1])))
        scores = jnp.where(mask, q @ k.swapaxes(1, 2) / D**0.5, -1e9)
        x = x + jax.nn.softmax(scores) @ v
        x = x + jnp.tanh(x @ layer["up"])
    return x @ params["out"]


@jax.jit
@jax.value_and_grad
def train(params, tokens):
    chances = jax.nn.log_softmax(logits(params, tokens[:, :-1]))
    return -jnp.take_along_axis(chances, tokens[:, 1:, None], -1).mean()


def batch(step):  # each host has a part, which the number of the step decides
    start = np.random.default_rng((step, HOST)).integers(0, VOCAB, (BATCH, 1))
    return (start + np.arange(LENGTH) * (1 + start % 3)) % VOCAB


if SAVES == "numpy":
    begin = jax.tree.map(np.zeros_like, first)

    def apply(params, momentum, grads):
        momentum = jax.tree.map(lambda m, g: np.float32(0.9) * m + g, momentum, grads)
        return jax.tree.map(lambda p, m: p - np.float32(RATE) * m, params, momentum), momentum
else:
    import optax

    optimizer = optax.adam(RATE)
    begin = jax.tree.map(np.asarray, optimizer.init(first))

    @jax.jit
    def apply(params, state, grads):
        updates, state = optimizer.update(grads, state)
        return optax.apply_updates(params, updates), state


def mean_over_hosts(tree):  # gathered and added in the order of the hosts, so the sum is the same each time
    if HOSTS == 1:
        return jax.tree.map(np.asarray, tree)
    from jax.experimental import multihost_utils

    return jax.tree.map(lambda x: np.asarray(multihost_utils.process_allgather(x)).mean(0), tree)


folder = os.environ["JOB_CHECKPOINT"]


def save_file(step, params, state, losses):
    if HOST > 0:
        return
    leaves = jax.tree.leaves((params, state))
    arrays = {str(n): np.asarray(leaf) for n, leaf in enumerate(leaves)}
    with open(f"{folder}/new", "wb") as file:
        np.savez(file, step=step, losses=np.asarray(losses), **arrays)
    os.replace(f"{folder}/new", f"{folder}/state.npz")


def load_file():
    if not os.path.exists(f"{folder}/state.npz"):
        return 0, first, begin, []
    found = np.load(f"{folder}/state.npz")
    leaves, tree = jax.tree.flatten((first, begin))
    params, state = jax.tree.unflatten(tree, [found[str(n)] for n in range(len(leaves))])
    return int(found["step"]), params, state, found["losses"].tolist()


if SAVES == "orbax":
    import orbax.checkpoint as ocp

    place = os.environ["JOB_CHECKPOINT_URL"] if os.environ["WHERE"] == "bucket" else folder
    manager = ocp.CheckpointManager(place, options=ocp.CheckpointManagerOptions(max_to_keep=2))

    def save(step, params, state, losses):
        whole = {"params": params, "state": state, "losses": np.resize(np.asarray(losses), STEPS)}
        manager.save(step, args=ocp.args.StandardSave(jax.tree.map(np.asarray, whole)))
        manager.wait_until_finished()

    def load():
        step = manager.latest_step()
        if step is None:
            return 0, first, begin, []
        shape = {"params": first, "state": begin, "losses": np.zeros(STEPS)}
        found = manager.restore(step, args=ocp.args.StandardRestore(shape))
        return step, found["params"], found["state"], found["losses"][:step].tolist()
else:
    save, load = save_file, load_file

step, params, state, losses = load()
print(f"begins at step {step}", flush=True)
while step < STEPS:
    loss, grads = mean_over_hosts(train(params, batch(step)))
    params, state = apply(params, state, grads)
    losses.append(float(loss))
    step += 1
    if step % EVERY == 0:
        save(step, params, state, losses)
        print(f"saved step {step}", flush=True)
    time.sleep(PAUSE_S)
leaves = [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(params)]
result = hashlib.sha256(b"".join([np.asarray(losses).tobytes(), *leaves])).hexdigest()
print(f"loss from {losses[0]:.6f} to {losses[-1]:.6f}", flush=True)

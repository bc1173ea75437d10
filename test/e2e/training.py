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
key = jax.random.key(0)


def normal(number, *shape):
    return jax.random.normal(jax.random.fold_in(key, number), shape) / shape[0] ** 0.5


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


def loss_of(params, tokens):
    chances = jax.nn.log_softmax(logits(params, tokens[:, :-1]))
    return -jnp.take_along_axis(chances, tokens[:, 1:, None], -1).mean()


def batch(step):  # each host has a part, which the number of the step decides
    keys = jax.random.fold_in(jax.random.fold_in(key, 1000 + step), HOST)
    start = jax.random.randint(keys, (BATCH, 1), 0, VOCAB)
    return (start + jnp.arange(LENGTH) * (1 + start % 3)) % VOCAB


if SAVES == "numpy":
    begin = jax.tree.map(jnp.zeros_like, first)

    def update(grads, momentum):
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
        return jax.tree.map(lambda m: -RATE * m, momentum), momentum
else:
    import optax

    optimizer = optax.adam(RATE)
    begin, update = optimizer.init(first), optimizer.update


@jax.jit
def train(params, state, tokens):
    loss, grads = jax.value_and_grad(loss_of)(params, tokens)
    return loss, grads


@jax.jit
def apply(params, state, grads):
    updates, state = update(grads, state)
    return jax.tree.map(jnp.add, params, updates), state


def mean_over_hosts(tree):  # gathered and added in the order of the hosts, so the sum is the same each time
    if HOSTS == 1:
        return tree
    from jax.experimental import multihost_utils

    return jax.tree.map(lambda x: jnp.asarray(multihost_utils.process_allgather(x)).mean(0), tree)


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
    params, state = jax.tree.unflatten(tree, [jnp.asarray(found[str(n)]) for n in range(len(leaves))])
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
        found = manager.restore(step, args=ocp.args.StandardRestore(jax.tree.map(np.asarray, shape)))
        found = jax.tree.map(jnp.asarray, found | {"losses": None}) | {"losses": found["losses"]}
        return step, found["params"], found["state"], found["losses"][:step].tolist()
else:
    save, load = save_file, load_file

step, params, state, losses = load()
print(f"begins at step {step}", flush=True)
while step < STEPS:
    loss, grads = mean_over_hosts(train(params, state, batch(step)))
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

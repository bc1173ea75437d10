"""The parameters of a model as numpy arrays, by the way that a worker moves them to one device."""

import glob
import json
import os
import resource

import jax
import numpy as np
from jax.sharding import Mesh

from gleaner_worker.architecture.config import parse_config
from gleaner_worker.model.files.weight_files import DiskFile
from gleaner_worker.model.weights.mesh import Layout
from gleaner_worker.model.weights.place import place
from gleaner_worker.model.weights.weights import open_weights


def one_device():
    return Layout(Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("data", "model")))


def weight_files(folder):
    return [DiskFile(path) for path in sorted(glob.glob(os.path.join(glob.escape(folder), "*.safetensors")))]


def load_params(folder, config, num_layers, dtype, where, end=""):
    weights = open_weights(weight_files(folder), config, num_layers, dtype, where, end)
    return jax.tree.map(np.asarray, place(weights, one_device(), False))


def print_memory_of_loading(folder):
    """Prints the growth of a process that loads the eight layers of a model, and the bytes of its parameters.

    One layer is loaded before, because pages of libraries count when a forked process first uses them.
    """
    with open(f"{folder}/config.json") as file:
        config = parse_config(json.load(file), "m")
    layout, files = one_device(), [DiskFile(f"{folder}/model.safetensors")]
    place(open_weights(files, config, 1, "fp32", "m"), layout, False)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    params = place(open_weights(files, config, 8, "fp32", "m"), layout, False)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(grown, sum(w.nbytes for w in params["blocks"].values()), flush=True)

"""The parameters of a model as numpy arrays, by the way that a worker moves them to one device."""

import glob
import os

import jax
import numpy as np
from jax.sharding import Mesh

from gleaner_worker.model.mesh import Layout
from gleaner_worker.model.place import place
from gleaner_worker.model.weight_files import DiskFile
from gleaner_worker.model.weights import open_weights


def load_params(folder, config, num_layers, dtype, where):
    layout = Layout(Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("data", "model")))
    files = [DiskFile(path) for path in sorted(glob.glob(os.path.join(glob.escape(folder), "*.safetensors")))]
    return jax.tree.map(np.asarray, place(open_weights(files, config, num_layers, dtype, where), layout, False))

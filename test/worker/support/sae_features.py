"""Features that the program computes of given vectors, by the files of an autoencoder."""

import json
import os
import shutil
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import golden_models as golden
from build import a_spec
from gleaner_worker.model.files.reduction_files import find_reduction_files, naming
from gleaner_worker.model.program.reduce import reduced
from gleaner_worker.model.program.split import Split
from gleaner_worker.model.program.tuning import CPU
from gleaner_worker.model.weights.reduction_weights import find_reduction

FOLDER = os.path.join(os.path.dirname(golden.FOLDER), "golden_saes")  # see make_sae_golden.py
NARROW = golden.config("qwen2")  # a model of three layers whose streams are 16 wide


def open_features(weights, config=NARROW, home="/nowhere", dtype="fp32", **entry):
    """The parameters of an entry of `features` for the model of the config, of layer 1 if it names no layers."""
    spec = a_spec(compute_dtype=dtype, features=[{"name": "scope", "weights": str(weights), "layers": [1]} | entry])
    with naming(*spec.features):
        files = find_reduction_files(spec, *spec.features, config, home, None, None, None, True)
        return find_reduction(spec, config, files)


def encode(opened, x, dtype="fp32"):
    """(values fp32 [vectors, k], ids [vectors, k], active [vectors]) of the vectors x, by layer 1."""
    params = {name: array[None] for name, array in opened.layer(1, 1, dtype).items()}
    params = {"reductions": {opened.reduction.name: params}}
    found = reduced(jnp.asarray(x)[None], opened.reduction, params, 1, (1,), CPU, Split())
    values, ids, active = (np.asarray(part)[0] for part in found.values())
    return values, ids, active[:, 0]


def golden_cases(found):
    """{folder of an autoencoder: {changes of its config, as JSON: features [vectors, d_sae]}} of expected.npz."""
    cases = {}
    for key in found:
        if key != "x":
            name, _, changes = key.partition(" ")
            cases.setdefault(name, {})[changes] = found[key]
    return cases


def check_features(folder, name, x, expected, scratch):
    """Asserts that the features of the vectors x equal the expected ones: the same are active, with the same values."""
    own = shutil.copytree(os.path.join(folder, name), Path(scratch) / name) / "cfg.json"
    for changes, wanted in expected.items():
        if own.exists():
            own.write_text(json.dumps(json.loads(own.read_text()) | json.loads(changes)))
        opened = open_features(scratch, path=name, k=None if name == "topk" else wanted.shape[1])
        values, ids, active = encode(opened, x)
        found = dense_of(values, ids, wanted.shape[1])
        assert np.array_equal(found > 0, wanted > 0), (name, changes)
        assert (np.abs(found - wanted) <= 1e-5 * wanted.max(axis=1, keepdims=True)).all(), (name, changes)
        assert np.array_equal(active, (wanted > 0).sum(axis=1)) and (np.diff(values) <= 0).all(), (name, changes)


def dense_of(values, ids, d_sae):
    """[vectors, d_sae]: the value of each feature."""
    dense = np.zeros((len(ids), d_sae + 1), np.float32)  # the last column takes the padding
    np.put_along_axis(dense, ids, values, axis=1)
    return dense[:, :-1]

"""Model folders: `model_folder` is a copy of the tiny model to change; `upload` puts it into the bucket."""

import json
import shutil

import pytest

from build import BUCKET
from gleaner_worker.model_files import INDEX, names_in

GS = f"gs://{BUCKET}/models/tiny"
MODEL_JSON = "activations/my-run/model.json"
SPLIT = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]


@pytest.fixture
def model_folder(tmp_path, tiny_folder):
    """A copy of the tiny model for one test."""
    return shutil.copytree(tiny_folder, tmp_path / "a model")


def upload(storage, model_folder, prefix="models/tiny/"):
    for name in names_in(model_folder):
        storage.put(BUCKET, f"{prefix}{name}", (model_folder / name).read_bytes())


def downloads(storage):
    return [request.partition("?")[0].rpartition("/")[2] for request in storage.requests if "alt=media" in request]


def split_weights(model_folder):
    """Splits the weights into two files and an index."""
    data = (model_folder / "model.safetensors").read_bytes()
    (model_folder / "model.safetensors").unlink()
    (model_folder / SPLIT[0]).write_bytes(data[:100])
    (model_folder / SPLIT[1]).write_bytes(data[100:])
    (model_folder / INDEX).write_text(
        json.dumps({"metadata": {}, "weight_map": {"a": SPLIT[0], "b": SPLIT[1], "c": SPLIT[1]}})
    )

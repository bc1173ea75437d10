"""Builders: `a_work(storage, lines)` is a leased stream whose lines are stored. `fails` expects a Failure."""

import json
import os
import re
from contextlib import contextmanager

import pytest

from gleaner_worker.extract.state import ExtractionState
from gleaner_worker.failures import Failure
from gleaner_worker.spec.read_spec import parse_spec
from gleaner_worker.spec.work import parse_work

BUCKET = "a-bucket"
SPEC_HASH = "5" * 64
TINY_CONFIG = {
    "model_type": "qwen2",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "vocab_size": 600,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "use_sliding_window": False,
    "tie_word_embeddings": True,
}
BYTES_PER_TOKEN = 3 * 32 * 2  # of the model above, all layers, bf16


def a_raw_spec(**changes):
    return {
        "model": "/nowhere",
        "revision": None,
        "layers": "all",
        "sites": ["resid_post"],
        "tokens": "all",
        "dtype": "bf16",
        "format": "safetensors",
        "shard_size_gb": 1.0,
        "max_seq_length": 64,
        "over_long": "reject",
        "row_tokens": 128,
        "window_tokens": 1024,
        "record": {"field": None},
        "seed": 42,
    } | changes


def a_spec(**changes):
    return parse_spec(a_raw_spec(**changes))


def text_lines(count, words=7):
    """Different texts of different lengths."""
    return [
        json.dumps({"text": " ".join(f"apples {i * 7 + j} cost" for j in range(1 + (i * 13) % words))})
        for i in range(count)
    ]


def a_stream(storage, lines, run="my-run", stream="007", name=None):
    data = lines if isinstance(lines, bytes) else ("\n".join(lines) + "\n").encode()
    name = name or f"datasets/{run}/stream_{stream}.jsonl"
    return storage.put(BUCKET, name, data)


def a_work_answer(resource, run="my-run", stream="007", epoch=1, **spec):
    """The answer of worker-api to `lease`."""
    return {
        "action": "work",
        "lease": {"run": run, "stream": stream, "epoch": epoch, "expires_at": "2030-01-01T00:00:00Z"},
        "work": {
            "run": run,
            "stream": stream,
            "worker_id": int(stream),
            "bucket": BUCKET,
            "dataset": {
                "object": resource["name"],
                "generation": resource["generation"],
                "size_bytes": int(resource["size"]),
                "crc32c": resource["crc32c"],
            },
            "output_prefix": f"activations/{run}/tpu_{int(stream)}/",
            "spec": a_raw_spec(**spec),
            "spec_hash": SPEC_HASH,
            "lease_key": "key",
            "stored_shards": 0,
            "kept_shards": [],
        },
        "heartbeat_s": 0.1,
    }


def a_work(resource, **changes):
    answer = a_work_answer(resource, **changes)
    return parse_work(answer["lease"], answer["work"])


def shard_gb(tokens):
    """shard_size_gb of shards that hold this many tokens of the tiny model."""
    return tokens * BYTES_PER_TOKEN / 1e9


SMALL = shard_gb(400)  # shards of a few samples


def bucket(check=lambda: None):
    from gleaner_worker.storage import objects

    return objects.Bucket(objects.make_client("local"), BUCKET, check)


def a_model(spec, home="/nowhere", bucket=None, run=None, **how):
    """The model of the spec, loaded."""
    from gleaner_worker.model.model import find_files, load_model

    return load_model(spec, find_files(spec, home, bucket, run), **how)


def settings_of(model):
    """The settings of the samples that the model computes."""
    from gleaner_worker.records.samples.tokenize_lines import make_sample_settings

    return make_sample_settings(model.files.folder, model.spec, model.config.vocab_size, model.config.max_positions)


def run_extract(work, model, folder, control=None, settings=None):
    from gleaner_worker.extract.extract import extract

    control = control or ExtractionState()
    scratch = os.path.join(folder, "scratch")
    return extract(work, model, settings or settings_of(model), bucket(control.check_lease), scratch, control)


def outputs(storage, prefix="activations/my-run/tpu_7/"):
    """What is stored, by name. `upload` of metadata.json, which is measured, is zero."""
    stored = {name.removeprefix(prefix): storage.data(BUCKET, name) for name in storage.names(BUCKET, prefix)}
    if text := stored.get("metadata.json"):
        stored["metadata.json"] = re.sub(rb'("(bytes|seconds|bound_seconds)": )[\d.e-]+', rb"\g<1>0", text)
    return stored


def put_manifest(storage, run="my-run", **spec):
    manifest = {"schema": "gleaner/1", "run": run, "spec": a_raw_spec(**spec), "spec_hash": SPEC_HASH}
    storage.put(BUCKET, f"activations/{run}/manifest.json", json.dumps(manifest).encode())


@contextmanager
def fails(kind, match=None):
    """Expects a Failure of this kind whose reason matches."""
    with pytest.raises(Failure, match=match) as failure:
        yield failure
    assert failure.value.kind == kind

"""Builders: `store_run(folder, …)` writes a run as the worker does, and returns the values that it stored."""

import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path

import ml_dtypes
import numpy as np

import gleaner_reader
from gleaner_reader.format.checksums import as_text, crc32c
from gleaner_reader.format.files import open_folder
from gleaner_reader.run.verify import verify
from gleaner_worker.records.samples.sample import Sample
from gleaner_worker.shards.encode import encode_shard
from gleaner_worker.shards.plan import ShardPlan
from gleaner_worker.shards.shard_bytes import ShardBytes

DTYPES = {"bf16": ml_dtypes.bfloat16, "fp16": np.float16, "fp32": np.float32, "int8": np.int8}
MANIFEST = {"schema": "gleaner/1", "spec": {}, "spec_hash": hashlib.sha256(b"{}").hexdigest()}
SUMMARY = {
    "dataset_path": "gs://b/datasets/my-run/stream_000.jsonl",
    "model_path": "m",
    "total_samples": 30,
    "total_tokens": 300,
    "layers": [0, 2],
    "stats": {"resid_post.0": {"norm": 1.0}},
}
SAMPLES = 40  # in a shard; every seventh is rejected


@dataclass
class Stored:
    folder: str
    layers: dict[str, list[np.ndarray]] = field(default_factory=dict)  # "resid_post.0" -> fp32 of each shard
    samples: dict[tuple[int, int], dict] = field(default_factory=dict)  # (stream, index) -> its parts
    plans: list[ShardPlan] = field(default_factory=list)

    def rows(self, name: str) -> np.ndarray:
        return np.concatenate(self.layers[name])


def a_sample(index: int, length: int, positions=None, kept: str = "", **parts) -> Sample:
    positions = None if positions is None else np.asarray(positions, np.int32)
    return Sample(index, np.arange(length, dtype=np.int32) + index, positions, f"text {index}", False, kept, **parts)


def a_plan(number=1, first=0, count=SAMPLES, final=True, tokens="all", keep=False, seed=0, masked=False) -> ShardPlan:
    """tokens: "all", "mean", "spans" for the pools of two spans, or a slice. masked: every second token is."""
    random = np.random.default_rng([seed, number])
    samples = []
    for index in range(first, first + count):
        length = int(random.integers(1, 20))
        if index % 7 == 3:
            continue
        positions = None if tokens in ("all", "mean", "spans") else np.arange(length)[tokens]
        if positions is not None and not len(positions):
            continue  # a selection that chooses nothing rejects the sample
        kept = json.dumps({"n": index, "text": "é"}, separators=(",", ":")) if keep else ""
        parts = {"mask": (np.arange(length) % 2).astype(np.uint8)} if masked else {}
        if tokens == "spans":
            parts |= {"pools": np.array([[0, 1], [0, length]], np.int32), "span_idx": np.array([0, 2], np.int32)}
        samples.append(a_sample(index, length, positions, kept, **parts))
    return ShardPlan(number, first, first + count - 1, tuple(samples), final, tokens in ("mean", "spans"))


def some_rows(plan: ShardPlan, sites, layers, d_model, dtype, seed=0):
    """(rows, scale, fp32 values by name) as the device returns them. Each site is wider than the site before."""
    random = np.random.default_rng([seed, plan.number])
    rows, scale, values = {}, {}, {}
    for place, site in enumerate(sites):
        made = random.standard_normal((len(layers), plan.rows, d_model + 3 * place)).astype(np.float32)
        if dtype == "int8":
            scale[site] = (np.abs(made).max(axis=2, initial=0) / 127).astype(np.float32)
            rows[site] = np.round(made / np.maximum(scale[site], 1e-9)[..., None]).astype(np.int8)
            made = rows[site] * scale[site][..., None]
        else:
            rows[site] = made.astype(DTYPES[dtype])
            made = rows[site].astype(np.float32)
        values |= {f"{site}.{layer}": made[number] for number, layer in enumerate(layers)}
    return rows, scale, values


def encode(plan: ShardPlan, rows, scale, layers, file_format, threads=2, more=None, sums=(), **identity) -> ShardBytes:
    facts = {
        "schema": "gleaner/1",
        "shard": str(plan.number),
        "first_sample": str(plan.first_sample),
        "last_sample": str(plan.last_sample),
        "samples": str(len(plan.samples)),
        "tokens": str(plan.tokens),
        "rows": str(plan.rows),
        "final": "true" if plan.final else "false",
    }
    stats = {f"{site}.{layer}": {"norm": 1.0} for site in rows for layer in layers}
    by_site = dict.fromkeys(rows, layers)
    return encode_shard(file_format, plan, by_site, rows, scale, facts | identity, more or stats, threads, dict(sums))


def store_run(
    folder,
    file_format="safetensors",
    dtype="bf16",
    sites=("resid_post",),
    layers=(0, 2),
    d_model=16,
    tokens="all",
    keep=False,
    streams=(0, 7),
    shards=3,
    count=SAMPLES,
    masked=False,
) -> Stored:
    stored = Stored(str(folder))
    for stream in streams:
        path = os.path.join(stored.folder, f"tpu_{stream}")
        os.makedirs(path, exist_ok=True)
        for number in range(1, shards + 1):
            plan = a_plan(number, (number - 1) * count, count, number == shards, tokens, keep, stream, masked)
            rows, scale, values = some_rows(plan, sites, layers, d_model, dtype, stream)
            with open(os.path.join(path, f"shard_{number:04d}.{file_format}"), "wb") as file:
                facts = {"stream": f"{stream:03d}", "spec_hash": MANIFEST["spec_hash"]}
                file.write(encode(plan, rows, scale, layers, file_format, **facts).read())
            stored.plans.append(plan)
            for name, array in values.items():
                stored.layers.setdefault(name, []).append(array)
            _note_samples(stored, stream, plan, values)
    manifest = MANIFEST | {"result": {"shards": len(streams) * shards}}
    with open(os.path.join(stored.folder, "manifest.json"), "w") as file:
        json.dump(manifest, file)
    return stored


def _note_samples(stored: Stored, stream: int, plan: ShardPlan, values: dict[str, np.ndarray]) -> None:
    for place, sample in enumerate(plan.samples):
        part = slice(plan.row_offsets[place], plan.row_offsets[place + 1])
        positions = np.arange(len(sample.token_ids)) if sample.positions is None else sample.positions
        stored.samples[stream, sample.index] = {
            "activations": {name: array[part] for name, array in values.items()},
            "token_ids": sample.token_ids,
            "positions": None if plan.pooled else positions,
            "kept": json.loads(sample.kept) if sample.kept else {},
        }


def put_in_bucket(storage, folder: str, bucket: str, prefix: str) -> None:
    for root, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(root, name)
            with open(path, "rb") as file:
                storage.put(bucket, f"{prefix}/{os.path.relpath(path, folder)}", file.read())


def summarise(folder):
    """Writes model.json, and metadata.json of each stream; of a file that exists, the shards and their sums alone.

    Then the manifest states the digest of all that, as the control plane makes it. Returns the digest.
    """
    folder = Path(folder)
    if not list(folder.glob("tpu_*/metadata.json")):
        (folder / "model.json").write_text(json.dumps({"schema": "gleaner/1", "name": "m", "files": {}}))
    for stream in folder.glob("tpu_*"):
        path = stream / "metadata.json"
        summary = json.loads(path.read_text()) if path.exists() else SUMMARY
        shards = [
            {
                "filename": path.name,
                "size_bytes": path.stat().st_size,
                "crc32c": as_text(crc32c(path.read_bytes())),
                "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
                **gleaner_reader.open(path).layout,
                **{key: getattr(gleaner_reader.open(path), key) for key in ("first_sample", "last_sample")},
            }
            for path in sorted(stream.glob("shard_*"))
        ]
        path.write_text(json.dumps(summary | {"shards": shards}))
    manifest, digest = json.loads((folder / "manifest.json").read_text()), verify(open_folder(str(folder))).digest
    if isinstance(manifest.get("result"), dict):
        manifest["result"] |= {"digest": digest}
        (folder / "manifest.json").write_text(json.dumps(manifest))
    return digest

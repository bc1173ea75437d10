"""`store_reductions(folder, …)` writes a run of features, projections and moments, with the worker's own encoder."""

import json
import os
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

from gleaner_worker.shards.encode import encode_shard
from gleaner_worker.shards.plan import ShardPlan
from stored_run import MANIFEST, SAMPLES, a_plan

D_MODEL, D_SAE, K, LAYERS = 8, 32, 4, (0, 2)
OUTPUTS = {
    "features": {"scope": {"kind": "features", "site": "resid_post", "d_sae": D_SAE, "k": K}},
    "project": {"probe": {"kind": "project", "site": "resid_post", "k": 3}},
    "moments": {"moments": {"kind": "moments", "sites": ["resid_post"], "layers": list(LAYERS)}},
}


@dataclass
class Reductions:
    """What was stored, of all shards in order."""

    folder: str
    plans: list[tuple[int, ShardPlan]] = field(default_factory=list)  # with the stream of each
    dense: list[np.ndarray] = field(default_factory=list)  # fp32 [layers, rows, d_model] of each shard
    values: dict[str, list[np.ndarray]] = field(default_factory=dict)  # "probe" -> [layers, rows, width]

    def of(self, parts: list[np.ndarray], layer: int) -> np.ndarray:
        return np.concatenate([part[LAYERS.index(layer)] for part in parts])


def some_features(random: np.random.Generator, rows: int) -> dict[str, np.ndarray]:
    """The K strongest of D_SAE features with many ties, as the device returns them."""
    active = np.maximum(np.round(random.standard_normal((len(LAYERS), rows, D_SAE)) * 3 - 3), 0).astype(np.float32)
    ids = np.argsort(-active, axis=2, kind="stable")[..., :K].astype(np.int32)
    values, counts = np.take_along_axis(active, ids, 2), (active > 0).sum(2, keepdims=True).astype(np.int32)
    ids = np.where(values > 0, ids, -1).astype(np.int32)
    return {"scope": values.astype(ml_dtypes.bfloat16), "scope_ids": ids, "scope_active": counts}


def some_moments(plan: ShardPlan, dense: np.ndarray, wanted: bool) -> dict[str, np.ndarray]:
    parts = np.split(dense, plan.row_offsets[1:-1], axis=1)
    return {
        f"resid_post.{layer}.{kind}": np.array([(part[n] ** power).sum(0) for part in parts], np.float32)
        for n, layer in enumerate(LAYERS)
        for kind, power in (("sum", 1), ("squares", 2))
        if wanted
    }


def store_reductions(
    folder, kinds=tuple(OUTPUTS), form="safetensors", dense=False, tokens="all", count=SAMPLES, cut=0.1
) -> Reductions:
    stored = Reductions(str(folder))
    for stream, number in ((stream, number) for stream in (0, 7) for number in (1, 2, 3)):
        plan = a_plan(number, (number - 1) * count, count, number == 3, tokens, True, stream)
        random = np.random.default_rng([stream, number])
        x = random.integers(-4, 5, (len(LAYERS), plan.rows, D_MODEL)).astype(np.float32)
        x /= 1 if "project" in kinds else 3  # the order of additions decides the sums of thirds
        rows = some_features(random, plan.rows) if "features" in kinds else {}
        rows |= {"probe": np.ascontiguousarray(x[..., :3])} if "project" in kinds else {}
        rows |= {"resid_post": x.astype(ml_dtypes.bfloat16)} if dense else {}
        metadata = {"shard": number, "first_sample": plan.first_sample, "last_sample": plan.last_sample}
        metadata |= {"final": str(plan.final).lower(), "spec_hash": MANIFEST["spec_hash"]}
        metadata["outputs"] = json.dumps({name: each for kind in kinds for name, each in OUTPUTS[kind].items()})
        identity = {key: str(value) for key, value in metadata.items()}
        stats, sums = {f"scope.{layer}": {"cut": cut} for layer in LAYERS}, some_moments(plan, x, "moments" in kinds)
        shard = encode_shard(form, plan, dict.fromkeys(rows, LAYERS), rows, {}, identity, stats, 2, sums)
        os.makedirs(os.path.join(folder, f"tpu_{stream}"), exist_ok=True)
        with open(os.path.join(folder, f"tpu_{stream}", f"shard_{number:04d}.{form}"), "wb") as file:
            file.write(shard.read())
        stored.plans.append((stream, plan))
        stored.dense.append(x)
        for name, each in rows.items():
            stored.values.setdefault(name, []).append(each)
    with open(os.path.join(folder, "manifest.json"), "w") as file:
        json.dump(MANIFEST | {"result": {"shards": 6}}, file)
    return stored

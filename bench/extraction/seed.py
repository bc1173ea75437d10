"""End to end compared with the seeds' way of extraction: SEED_WAY describes that way, rebuilt here for the comparison.

Both sides take the same token ids of real records and store into the same bucket on the loopback. Every batch of four
costs the older way the same, because all are padded alike: the bench measures one batch and extrapolates.
"""

import gzip
import pickle
import statistics
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from gleaner_worker.architecture.config import parse_config
from gleaner_worker.model.files.model_source import find_model
from gleaner_worker.model.weights.mesh import Layout
from gleaner_worker.model.weights.place import place as place_weights
from gleaner_worker.model.weights.weights import open_weights
from gleaner_worker.storage.objects import Bucket
from gleaner_worker.storage.upload_content import FileContent

from .job import load, put_stream, store
from .prompts import every_nth, real_prompts
from .sink import running_sink
from .timing import Figure, Report, speed_up, take_turns
from .workplace import Workplace

CLAIM = "end to end against the older way, per sample, on the lengths of shared/data"
SEED_WAY = (
    "fp32, batches of 4 padded to 2,048 tokens, dense attention, all layers copied to the host with their padding, "
    "pickled with gzip level 9 and uploaded, one after the other"
)
_BATCH, _LENGTH = 4, 2048
_PROMPTS_PER_TASK = 8  # of an ARC task


def run(place: Workplace) -> Report:
    report = Report(CLAIM, notes=[f"The older way: {SEED_WAY}."])
    ids = real_prompts(512 if place.is_quick else 8192)
    if ids is None:
        report.notes.append("skipped: shared/data is not there")
        return report
    length = 64 if place.is_quick else _LENGTH
    seed = _SeedWay(place, length)
    totals: dict[str, list[float]] = {}
    with running_sink() as bucket:
        models_ = {dtype: load(place, place.spec(dtype=dtype, max_seq_length=length)) for dtype in ("bf16", "fp32")}
        for name, count, weight in (("GSM8K", 64, 1), ("ARC", 8, _PROMPTS_PER_TASK)):
            chosen = every_nth(ids[name], count)
            stream = put_stream(bucket, [{"tokens": sample} for sample in chosen])
            sides = {"seed": partial(seed.run, chosen[:_BATCH], bucket)}
            sides |= {d: partial(store, place, model, bucket, stream) for d, model in models_.items()}
            seconds = take_turns(sides, place.rounds(2), warm_up=place.is_quick)
            each = {
                side: [s / (_BATCH if side == "seed" else len(chosen)) for s in times]
                for side, times in seconds.items()
            }
            lengths = [len(sample) for sample in ids[name]]
            detail = (
                f"median {statistics.median(lengths):.0f} tokens, "
                f"{sum(n > length for n in lengths)} of {len(lengths)} cut; {min(each['seed']):.2f} s a sample, "
                f"ours {min(each['bf16']):.3f} (bf16) {min(each['fp32']):.3f} (fp32)"
            )
            report.figures.append(speed_up(f"{name}, ours stores bf16", each["seed"], each["bf16"], 10.0, detail))
            report.figures.append(speed_up(f"{name}, ours stores fp32", each["seed"], each["fp32"]))
            for side, times in each.items():
                totals.setdefault(side, []).append(min(times) * len(ids[name]) * weight)
    whole = {side: sum(parts) for side, parts in totals.items()}
    for dtype, target in (("bf16", 10.0), ("fp32", None)):
        detail = f"{whole['seed'] / 3600:.1f} h, ours {whole[dtype] / 3600:.2f} h; extrapolated from the samples above"
        what = f"all of both (8 prompts a task), ours stores {dtype}"
        report.figures.append(Figure(what, whole["seed"] / whole[dtype], target, detail=detail))
    return report


class _SeedWay:
    def __init__(self, place: Workplace, length: int):
        config = parse_config(place.config, "the bench's model")
        weights = open_weights(
            find_model(place.model, "", None).weights, config, config.num_layers, "fp32", place.model
        )
        layout = Layout(Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("data", "model")))
        self._params = place_weights(weights, layout, as_bits=False)
        self._path, self._length, self._number = place.path("seed-shard.pkl.gz"), length, 0
        shape = jax.ShapeDtypeStruct((_BATCH, length), jnp.int32)
        self._forward = jax.jit(partial(_residuals, config=config)).lower(self._params, shape).compile()

    def run(self, samples: list[list[int]], bucket: Bucket) -> None:
        ids = np.zeros((_BATCH, self._length), np.int32)
        for row, sample in enumerate(samples):
            ids[row, : len(sample)] = sample[: self._length]
        shard: dict[int, list[dict]] = {}
        for layer, values in enumerate(self._forward(self._params, ids)):
            host = np.array(values)
            shard[layer] = [
                {"sample_idx": row, "activation": host[row], "shape": host[row].shape, "text_preview": ""}
                for row in range(_BATCH)
            ]
        with gzip.open(self._path, "wb", compresslevel=9) as file:
            pickle.dump(shard, file)
        self._number += 1
        with open(self._path, "rb") as file:
            bucket.create(f"seed/shard_{self._number:04}.pkl.gz", FileContent(file), {}, "application/gzip")


def _residuals(params: dict, ids: jax.Array, config) -> list[jax.Array]:
    """The residual stream after every block, [B, T, D] each: fp32 throughout, T x T scores, causal, no logits."""
    b, t = ids.shape
    heads, kv, size = config.num_heads, config.num_kv_heads, config.head_dim
    angle = jnp.arange(t)[:, None] * config.ropes[0].theta ** (-jnp.arange(0, size, 2) / size)
    cos, sin = jnp.cos(angle)[:, None], jnp.sin(angle)[:, None]

    def norm(x, weight):
        return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + config.norm_eps) * weight

    def turned(x):
        first, second = jnp.split(x, 2, -1)
        return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], -1)

    x, kept = params["embed"][ids], []
    causal = jnp.tril(jnp.ones((t, t), bool))
    for layer in range(config.num_layers):
        p = {name: stack[layer] for name, stack in params["blocks"].items()}
        h = norm(x, p["norm1"])
        q = turned((h @ p["wq"].T + p["bq"]).reshape(b, t, heads, size))
        k = turned((h @ p["wk"].T + p["bk"]).reshape(b, t, kv, size)).repeat(heads // kv, 2)
        v = (h @ p["wv"].T + p["bv"]).reshape(b, t, kv, size).repeat(heads // kv, 2)
        scores = jnp.where(causal, jnp.einsum("bqhd,bkhd->bhqk", q, k) / size**0.5, -jnp.inf)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), v)
        x = x + mixed.reshape(b, t, -1) @ p["wo"].T
        h = norm(x, p["norm2"])
        x = x + (jax.nn.silu(h @ p["gate"].T) * (h @ p["up"].T)) @ p["down"].T
        kept.append(x)
    return kept

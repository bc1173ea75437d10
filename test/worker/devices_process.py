"""Runs models on the devices of XLA_FLAGS: each line on stdin is [OUT.npz, SPEC, BYTES], answered by a line.

OUT.npz gets the rows of 300 samples, as `{site}.{sample}` [L, rows, D], all statistics, and the use of devices.
BYTES is the stated memory of a device, or null.
"""

import json
import sys
from itertools import groupby
from types import SimpleNamespace

import numpy as np

import environment  # noqa: F401  (before the rest)


def run(out, raw_spec, device_bytes):
    from build import a_model, a_spec
    from gleaner_worker.batching import plan_batches

    spec = a_spec(**raw_spec)
    model = a_model(spec, device_bytes=device_bytes)
    rng = np.random.default_rng(3)
    lengths = rng.integers(1, model.max_length + 1, 300).tolist()
    samples = [SimpleNamespace(token_ids=rng.integers(0, 600, n).astype(np.int32), positions=None) for n in lengths]
    rows, stats = {}, []
    batches = plan_batches(lengths, model.max_length)
    running = []  # batches of one shape, at most one for each device
    for _, same in groupby(batches, key=lambda batch: batch.width):
        same = list(same)
        for begin in range(0, len(same), model.devices):
            group = same[begin : begin + model.devices]
            rows_of = [[samples[s] for s in batch.rows] for batch in group]
            running.append((group, model.start(rows_of, group[0].height, group[0].width)))
    pairs = ((batch, host) for group, pending in running for batch, host in zip(group, pending.collect(), strict=True))
    for batch, host in pairs:
        stats.append(np.stack([host.stats[site] for site in model.sites]))
        for b, sample in enumerate(batch.rows):
            rows |= {f"{site}.{sample}": host.rows(site, b).view(f"u{model.dtype.itemsize}") for site in model.sites}
    weights = [model.params["embed"], *model.params["blocks"].values()]
    held = sum(shard.data.nbytes for weight in weights for shard in weight.addressable_shards)
    layout = [model.layout.data, model.layout.model, held, len(running), model.programs]
    np.savez(out, **rows, layout=layout, sums=np.stack(stats)[..., [0, 1, 3]].sum(axis=0))


if __name__ == "__main__":
    for line in sys.stdin:
        run(*json.loads(line))
        print("done", flush=True)

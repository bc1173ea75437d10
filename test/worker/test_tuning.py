"""The settings of each kind of chip, against the programs that bench/tpu/sweep.py compiled."""

import json
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

from gleaner_worker.model.tuning import tuning_of

ROOT = Path(__file__).parents[2]
KINDS = {"v6e": "TPU v6 lite", "v5p": "TPU v5p", "v5litepod": "TPU v5 lite"}


def test_the_barrier_of_an_mlp_is_there_where_it_is_faster():
    speeds = defaultdict(dict)
    for line in map(json.loads, (ROOT / "bench/tpu/sweep.jsonl").read_text().splitlines()):
        case = line["accelerator"].split("-")[0], line["model"], line["d_model"], line["step_tokens"]
        speeds[case][line["mlp_barrier"]] = line["tokens_per_s"]
    compared = {case: found for case, found in speeds.items() if len(found) == 2}
    for (generation, _, d_model, step_tokens), found in compared.items():
        device = SimpleNamespace(platform="tpu", device_kind=KINDS[generation])
        tuning = tuning_of(device, "bf16", d_model)
        if tuning.step_tokens == step_tokens:
            assert found[tuning.mlp_barrier] == max(found.values())
    assert {"v6e"} <= {generation for generation, *_ in compared}

"""The settings of each kind of chip, against the programs that bench/tpu/sweep.py compiled."""

import json
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

from gleaner_worker.model.program.tuning import tuning_of

ROOT = Path(__file__).parents[3]
KINDS = {"v6e": "TPU v6 lite", "v5p": "TPU v5p", "v5litepod": "TPU v5 lite"}


def test_the_settings_of_each_kind_are_the_fastest_of_the_sweep_to_a_hundredth():
    speeds = defaultdict(dict)
    for line in map(json.loads, (ROOT / "bench/tpu/sweep.jsonl").read_text().splitlines()):
        case = line["accelerator"].split("-")[0], line["model"], line["d_model"]
        # The devices wait for each copy to the host where they hold one step.
        is_usable = line["fits"] and line["steps_in_flight"] > 1
        speeds[case][line["step_tokens"], line["mlp_barrier"]] = is_usable and line["tokens_per_s"]
    for (generation, model, d_model), found in speeds.items():
        tuning = tuning_of(SimpleNamespace(platform="tpu", device_kind=KINDS[generation]), "bf16", d_model)
        assert found[tuning.step_tokens, tuning.mlp_barrier] > 0.99 * max(found.values()), (generation, model)
    assert speeds.keys() >= {(generation, "Llama-3.1-8B", 4096) for generation in KINDS}

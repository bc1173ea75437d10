"""The settings of each kind of chip, against the programs that bench/tpu/search.py compiled."""

import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

from gleaner_worker.architecture.config import parse_config
from gleaner_worker.model.program.tuning import CPU, TABLE, TPU, tuning_of

sys.path.append(str(Path(__file__).parents[3] / "bench"))
# By name, because benchmarks import from the tests.
SEARCH, MODELS = (import_module(name) for name in ("tpu.search", "tpu.models"))
V6E = SimpleNamespace(platform="tpu", device_kind="TPU v6 lite")


def test_the_table_of_the_worker_has_the_fastest_settings_of_the_search():
    (compiler,) = {entry["compiler"] for entry in TABLE}
    assert SEARCH.table(compiler) == TABLE
    assert {entry["kind"] for entry in TABLE} >= {"TPU v6 lite", "TPU v5"}


@pytest.mark.parametrize("model", ["Llama-3.1-8B", "Qwen2.5-7B", "gemma-2-9b", "Qwen3-30B-A3B"])
def test_a_model_of_the_table_has_its_own_settings_and_another_those_of_the_nearest_width(model):
    (entry,) = (entry for entry in TABLE if (entry["kind"], entry["model"]) == (V6E.device_kind, model))
    config = parse_config(MODELS.CONFIGS[model], model)
    expected = TPU.tried | entry["settings"]
    for each in (config, replace(config, d_model=config.d_model + 64)):
        found = tuning_of(V6E, "bf16", each)
        assert found.tried == expected and found.kernels


def test_a_chip_without_a_search_has_the_usual_settings_and_fp32_has_no_kernel():
    config = parse_config(MODELS.CONFIGS["Llama-3.1-8B"], "a model")
    assert tuning_of(SimpleNamespace(platform="tpu", device_kind="TPU v9"), "bf16", config) == TPU
    assert not tuning_of(V6E, "fp32", config).kernels
    assert tuning_of(SimpleNamespace(platform="cpu", device_kind="cpu"), "bf16", config) == CPU


def test_the_search_takes_no_setting_that_gains_little_has_a_problem_or_leaves_no_second_step():
    def compiled(settings):
        speed = 1000
        speed += 5 * settings["neurons_barrier"] + 100 * settings["mlp_barrier"]
        speed += 500 * (settings["attention_barrier"] or settings["heads_apart"] or settings["step_tokens"] == 8192)
        return {
            "fits": not settings["heads_apart"],
            "tokens_per_s": speed,
            "problems": ["a product of fp32"] if settings["attention_barrier"] else [],
            "steps_in_flight": 1 if settings["step_tokens"] == 8192 else 2,
        }

    assert SEARCH.fastest("Llama-3.1-8B", compiled) == ({"mlp_barrier": True}, [])

    def compiled_before(settings):
        return compiled(settings) if settings == TPU.tried else None

    assert SEARCH.fastest("Llama-3.1-8B", compiled_before) == ({}, list(TPU.tried))

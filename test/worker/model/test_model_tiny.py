import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest

import golden_models as golden
from build import a_model, a_spec
from device_rows import a_sample, rows_of, run
from gleaner_worker.architecture.config import parse_config
from gleaner_worker.architecture.families import FAMILIES
from gleaner_worker.model.files.model_source import read_config
from gleaner_worker.model.tiny import FAMILY_CONFIGS, family_config, main, make_tiny_model
from gleaner_worker.records.chat.chat import load_chat
from gleaner_worker.records.samples.samples import read_samples
from gleaner_worker.records.samples.tokenize_lines import make_sample_settings
from host_params import load_params

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-m", "gleaner_worker.model.tiny"]


def make(folder, seed, *options, run=main):
    run([str(folder), "--seed", str(seed), *options])
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in sorted(os.listdir(folder))}


@pytest.mark.long
def test_the_same_seed_makes_the_same_model_and_another_seed_makes_another_model(tmp_path):
    first = make(tmp_path / "a", 0, run=lambda options: subprocess.run(COMMAND + options, check=True))
    again, other = make(tmp_path / "b", 0), make(tmp_path / "c", 1)
    assert set(first) == {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert first == again
    assert first["model.safetensors"] != other["model.safetensors"]
    model = a_model(a_spec(model=str(tmp_path / "a"), max_seq_length=2048))
    assert (model.config.d_model, model.config.num_layers, model.config.max_positions) == (128, 8, 32768)
    out = rows_of(run(model, [a_sample(np.arange(256))]), "resid_post")
    assert np.isfinite(out).all() and out.std() > 0.1


@pytest.mark.long
def test_every_family_has_a_tiny_model(tmp_path):
    assert set(FAMILY_CONFIGS) == set(FAMILIES) - {"gemma3"}  # gemma3_text is the text part of gemma3
    for family in FAMILY_CONFIGS:
        raw = family_config(family, vocab_size=400, hidden_size=64, num_hidden_layers=2)
        make_tiny_model(str(tmp_path / family), config=raw, dtype="fp32")
        config = parse_config(raw, family)
        weights = load_params(str(tmp_path / family), config, 2, "fp32", family)
        capture = golden.capture(config, sites=("resid_post",))
        out = np.stack(list(golden.run(weights, np.arange(300, dtype=np.int32)[None], capture).values()))
        assert np.isfinite(out).all() and 0.1 < out.std() < 100, family


@pytest.mark.long
def test_the_command_makes_a_model_of_the_requested_family(tmp_path):
    assert make(tmp_path / "a", 0, "--family", "qwen2") == make(tmp_path / "b", 0)
    make(tmp_path / "c", 0, "--family", "gemma2", "--dtype", "fp32")
    model = a_model(a_spec(model=str(tmp_path / "c")))
    assert (model.config.family, model.config.attention_softcap) == ("gemma2", 50.0)


@pytest.fixture(scope="module")
def default_folder(tmp_path_factory):
    """The default tiny model."""
    folder = tmp_path_factory.mktemp("default")
    make(folder, 0)
    return str(folder)


@pytest.fixture(scope="module")
def settings(default_folder):
    """The settings of the default tiny model."""
    spec = a_spec(model=default_folder, max_seq_length=2048)
    config, _ = read_config(spec, default_folder)
    return make_sample_settings(default_folder, spec, config.vocab_size, config.max_positions)


@pytest.mark.sample(1)
@pytest.mark.parametrize(("name", "fitting"), [("arc-agi-training.jsonl", 390), ("gsm8k-test.jsonl", 1319)])
def test_most_real_records_become_samples_and_the_others_are_too_long(settings, name, fitting):
    path = os.path.join(os.path.dirname(__file__), "../../../../shared/data", name)
    if not os.path.exists(path):
        pytest.skip(f"{name} is not beside the project, in ../shared/data")
    items = list(read_samples(path, name, settings))
    with open(path, encoding="utf-8") as file:
        assert len(items) == sum(1 for _ in file)
    assert sum(hasattr(item, "token_ids") for item in items) >= fitting
    assert all("tokens long; the limit is 2048" in item.reason for item in items if not hasattr(item, "token_ids"))


def test_the_chat_template_of_the_tiny_model_writes_messages(default_folder):
    chat = load_chat(default_folder, "tiny")
    messages = [{"role": "user", "content": "How many apples?"}, {"role": "assistant", "content": "Two."}]
    text = chat.render(messages, add_generation_prompt=False)
    assert text == "<|user|>How many apples?<|endoftext|>\n<|assistant|>Two.<|endoftext|>\n"
    assert chat.render(messages[:1], add_generation_prompt=True).endswith("<|endoftext|>\n<|assistant|>")

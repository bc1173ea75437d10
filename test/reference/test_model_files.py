"""The files and the keys of a model that transformers looks for: each has a rule."""

import json
import os
import sys
from pathlib import Path

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "worker", "support")]
pytest.importorskip("transformers")
import config_keys  # noqa: E402
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig  # noqa: E402

from added_token_cases import write_case  # noqa: E402
from gleaner_worker.architecture.config import parse_config  # noqa: E402
from gleaner_worker.architecture.config_keys import HARMLESS, unknown_keys  # noqa: E402
from gleaner_worker.architecture.families import FAMILIES, NEUTRAL  # noqa: E402
from gleaner_worker.model_files import FILE_RULES, rule_of  # noqa: E402

FOLDERS = {"additional_chat_templates", "."}


@pytest.mark.parametrize("has_weights", ["one file", "an index", "pickles", "nothing"])
def test_each_name_that_transformers_looks_for_in_a_text_model_has_a_rule(tmp_path, monkeypatch, has_weights):
    looked, stat = set(), os.stat

    def watched(path, *args, **kwargs):
        if isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(f"{tmp_path}{os.sep}"):
            looked.add(os.path.relpath(path, tmp_path))
        return stat(path, *args, **kwargs)

    write_case(tmp_path, "no other file")
    small = {
        "hidden_size": 8,
        "intermediate_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "vocab_size": 30,
    }
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"} | small))
    if has_weights in ("one file", "an index"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(tmp_path))
        model.save_pretrained(tmp_path, max_shard_size="100GB" if has_weights == "one file" else "1KB")
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "rag.jinja").write_text("x")
    monkeypatch.setattr(os, "stat", watched)
    AutoTokenizer.from_pretrained(tmp_path)
    for load in (AutoModelForCausalLM.from_pretrained, GenerationConfig.from_pretrained):
        try:
            load(tmp_path)
        except (OSError, ValueError):
            assert has_weights in ("pickles", "nothing") or load == GenerationConfig.from_pretrained
    monkeypatch.undo()
    assert {"config.json", "tokenizer.json", "added_tokens.json", "chat_template.jinja"} <= looked
    assert sorted(name for name in looked - FOLDERS if rule_of(name) is None) == []


def test_each_rule_is_of_names_that_no_other_rule_before_it_has():
    names = ["config.json", "generation_config.json", "tokenizer.json", "added_tokens.json", "chat_template.json"]
    names += ["additional_chat_templates/rag.jinja", "model.safetensors", "additional_chat_templates/a b.jinja"]
    names += ["adapter_config.json", "tokenizer.4.0.json", "consolidated.00.safetensors", "pytorch_model.bin"]
    names += ["tokenizer.model", "preprocessor_config.json", "modeling_x.py", "modelcard.json"]
    names += ["model-00001-of-00002.safetensors"]
    assert [rule_of(name) for name in names] == list(FILE_RULES)


def test_the_keys_are_those_of_this_version_of_transformers():
    stored = Path(sys.modules[parse_config.__module__].__file__).with_name("config_keys.json").read_text()
    assert config_keys.text(FAMILIES) == stored


def test_every_harmless_or_neutral_key_is_one_that_transformers_knows_or_knew():
    known = {key for name in FAMILIES for key in config_keys.keys_of(name)}
    # Keys that transformers writes or takes out without a name of their own in the code that is read.
    assert {key for keys in HARMLESS.values() for key in keys.split()} - known == {
        "_name_or_path",
        "_sliding_window_pattern",
        "auto_map",
    }
    assert not set(NEUTRAL) & {key for keys in HARMLESS.values() for key in keys.split()}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_config_of_transformers_has_no_unknown_key_and_a_strange_one_is_found(name):
    raw = json.loads(AutoConfig.for_model(name).to_json_string(use_diff=False))
    assert unknown_keys(raw) == []
    assert unknown_keys(raw | {"no_such_key": 1}) == ["no_such_key"]

"""Exports of stored features: delphi's cache, JSON by feature, and folders of SAELens from other layouts."""

import json

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

import gleaner_reader
from gleaner_reader.export import features, to_delphi, to_feature_json
from gleaner_reader.export.__main__ import main as export_main
from stored_reductions import D_SAE, store_reductions
from test_reader_exports import interrupt, tensors_of


def content(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_cache_of_delphi_has_every_activation_of_each_whole_context(tmp_path, monkeypatch):
    monkeypatch.setattr(features, "_ROWS_AT_ONCE", 7)
    stored = store_reductions(tmp_path / "run", ("features",))
    run = gleaner_reader.open(stored.folder)
    export = to_delphi(run, str(tmp_path / "out"), 2, context_size=4, splits=3)
    with pytest.raises(KeyboardInterrupt):
        to_delphi(run, str(tmp_path / "again"), 2, context_size=4, splits=3, progress=interrupt)
    to_delphi(run, str(tmp_path / "again"), 2, context_size=4, splits=3)
    assert content(tmp_path / "again") == content(tmp_path / "out")
    module = tmp_path / "out/latents/layers.2"
    assert [path.name for path in (tmp_path / "out/latents").iterdir()] == ["layers.2"]
    assert sorted(path.name for path in module.iterdir()) == [
        *(f"{a}_{b}.safetensors" for a, b in ((0, 9), (10, 20), (21, 31))),
        "config.json",
    ]
    expected, tokens = {}, []
    for sample in (run.sample(s, i.index) for s, plan in stored.plans for i in plan.samples):
        for begin in range(0, len(sample.token_ids) - 3, 4):
            for place in range(4):
                ids, values = (sample.activations[f"{name}.2"][begin + place] for name in ("scope_ids", "scope"))
                expected |= {(len(tokens), place, int(n)): float(v) for n, v in zip(ids, values, strict=True) if n >= 0}
            tokens.append(sample.token_ids[begin : begin + 4].tolist())
    found = {}
    for first in (0, 10, 21):
        (path,) = module.glob(f"{first}_*")
        tensors = tensors_of(path)
        assert tensors["tokens"].tolist() == tokens and tensors["locations"].dtype == np.uint32
        at = tensors["locations"].astype(int) + [0, 0, first]
        found |= {tuple(key): value for key, value in zip(at.tolist(), tensors["activations"].tolist(), strict=True)}
    assert found == expected and export.contexts == len(tokens)
    assert (export.rows, export.left_out, export.dropped) == (4 * len(tokens), run.num_rows - 4 * len(tokens), 0)
    config = json.loads((module / "config.json").read_text())
    assert (config["ctx_len"], config["cache_ctx_len"], config["n_splits"]) == (4, 4, 3)
    some = gleaner_reader.open(store_reductions(tmp_path / "some", ("features",), tokens=slice(0, 9, 2)).folder)
    with pytest.raises(ValueError, match='no row for each token, as delphi needs it: store `tokens` "all"'):
        to_delphi(some, str(tmp_path / "x"), 2)


def test_the_json_of_a_feature_has_its_facts_and_the_value_of_each_token(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(features, "_FEATURES_AT_ONCE", 5)
    run = gleaner_reader.open(store_reductions(tmp_path / "run", ("features",)).folder)
    (tmp_path / "run/model.json").write_text(json.dumps({"name": str(tmp_path)}))
    Tokenizer(WordLevel({f"w{n}": n for n in range(1000)}, "w0")).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(KeyboardInterrupt):
        to_feature_json(run, str(tmp_path / "out"), 2, n=3, context=2, progress=interrupt)
    to_feature_json(run, str(tmp_path / "out"), 2, n=3, context=2)
    assert len(content(tmp_path / "out")) == D_SAE + 1
    feature, facts = run.feature(2, 7, n=3), json.loads((tmp_path / "out/7.json").read_text())
    assert (facts["density"], facts["histogram"], facts["max"]) == (
        feature.density,
        feature.histogram.tolist(),
        feature.max,
    )
    for example, row, score in zip(facts["examples"], run.rows(feature.top.rows), feature.top.scores, strict=True):
        sample, p = run.sample(row.stream, row.sample), row.position
        here = slice(max(0, p - 2), p + 3)
        values = np.where(sample.activations["scope_ids.2"] == 7, sample.activations["scope.2"].astype(float), 0).max(1)
        assert example["token_ids"] == sample.token_ids[here].tolist()
        assert example["values"] == values[here].tolist() and values[p] == score and example["position"] == p
    monkeypatch.setattr(
        "sys.argv",
        ["export", run.url, "--to", "features", "--layer", "2", "--ids", "7", "--output", str(tmp_path / "cli")],
    )
    assert export_main() == 0 and json.loads(capsys.readouterr().out)["features"] == 1
    assert json.loads((tmp_path / "cli/7.json").read_text())["examples"][0]["tokens"][0].startswith("w")

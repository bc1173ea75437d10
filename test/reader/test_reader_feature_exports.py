"""Exports of stored features: delphi's cache, JSON by feature, and folders of SAELens from other layouts."""

import json
import re
import zipfile

import ml_dtypes
import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

import gleaner_reader
from gleaner_reader.__main__ import main as reader_main
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


def some_weights(d_in=4, d_sae=6, threshold=True):
    random = np.random.default_rng(0)
    shapes = {"W_enc": (d_in, d_sae), "W_dec": (d_sae, d_in), "b_enc": (d_sae,), "b_dec": (d_in,)}
    shapes |= {"threshold": (d_sae,)} if threshold else {}
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def torch_file(path, tensors, storage="torch\nFloatStorage", strides=None):
    """As torch.save writes it, without torch."""
    text = lambda value: b"X" + len(value).to_bytes(4, "little") + value.encode()  # noqa: E731
    numbers = lambda *of: b"(" + b"".join(b"J" + n.to_bytes(4, "little") for n in of) + b"t"  # noqa: E731
    items, files = b"", {}
    for key, (name, each) in enumerate(tensors.items()):
        files[f"a/data/{key}"] = each.tobytes()
        place = b"(" + text("storage") + f"c{storage}\n".encode() + text(str(key)) + text("cpu") + b"K\x01tQ"
        steps = strides or [step // each.itemsize for step in each.strides]
        items += text(name) + b"ctorch._utils\n_rebuild_tensor_v2\n(" + place + b"K\x00" + numbers(*each.shape)
        items += numbers(*steps) + b"\x89ccollections\nOrderedDict\n)RtR"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in ({"a/data.pkl": b"\x80\x02}(" + items + b"u."} | files).items():
            archive.writestr(name, data)


@pytest.mark.parametrize("storage", ["FloatStorage", "BFloat16Storage"])
def test_published_autoencoders_become_folders_of_saelens(tmp_path, monkeypatch, capsys, storage):
    gemma, qwen = tmp_path / "gemma-scope-2b-pt-att/layer_12/width_16k", tmp_path / "SAE-Res-Qwen3-W32K-L0_5"
    gemma.mkdir(parents=True), qwen.mkdir()
    weights = some_weights()
    np.savez(gemma / "params.npz", **{name.replace("W_", "w_"): each for name, each in weights.items()})
    flipped = {name: np.ascontiguousarray(each.T) for name, each in some_weights(threshold=False).items()}
    if storage == "BFloat16Storage":
        flipped = {name: each.astype(ml_dtypes.bfloat16) for name, each in flipped.items()}
    torch_file(qwen / "layer3.sae.pt", flipped, f"torch\n{storage}")
    assert reader_main(["convert-sae", str(tmp_path / "gemma-scope-2b-pt-att"), str(tmp_path / "a")]) == 0
    assert reader_main(["convert-sae", str(qwen), str(tmp_path / "b")]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / "a/layer_12/width_16k"), str(tmp_path / "b/layer3")]
    for folder, expected in (
        ("a/layer_12/width_16k", weights),
        ("b/layer3", {n: e.astype("f4").T for n, e in flipped.items()}),
    ):
        found = tensors_of(tmp_path / folder / "sae_weights.safetensors")
        assert set(found) == set(expected)
        assert all(np.array_equal(found[name], each) and found[name].dtype == "f4" for name, each in expected.items())
    config = json.loads((tmp_path / "a/layer_12/width_16k/cfg.json").read_text())
    assert (config["architecture"], config["d_in"], config["d_sae"]) == ("jumprelu", 4, 6)
    assert (config["metadata"]["hook_name"], config["reshape_activations"]) == ("blocks.12.attn.hook_z", "hook_z")
    config = json.loads((tmp_path / "b/layer3/cfg.json").read_text())
    assert (config["architecture"], config["k"], config["metadata"]["hook_name"]) == (
        "topk",
        5,
        "blocks.3.hook_resid_post",
    )


def damage_npz(path, **changes):
    np.savez(path, **{name.replace("W_", "w_"): each for name, each in (some_weights() | changes).items()})


@pytest.mark.parametrize(
    ("name", "write", "says"),
    [
        ("layer1.sae.pt", lambda p: torch_file(p, some_weights(threshold=False), "os\nsystem"), "asks for os.system"),
        ("layer1.sae.pt", lambda p: torch_file(p, some_weights(threshold=False), strides=[1]), "another shape"),
        ("layer1.sae.pt", lambda p: torch_file(p, some_weights()), "Qwen-Scope has W_dec, W_enc"),
        (
            "layer1.sae.pt",
            lambda p: torch_file(p, {n: e.T.copy() for n, e in some_weights(threshold=False).items()}),
            "its k is None.*--k",
        ),
        ("layer1.sae.pt", lambda p: p.write_bytes(b"PK"), "not a zip file"),
        ("params.npz", lambda p: damage_npz(p, b_enc=np.array([{}], object)), "is object, not of floats"),
        ("params.npz", lambda p: damage_npz(p, b_dec=np.zeros(6, "f4")), r"its b_dec has the shape \(6,\)"),
        ("params.npz", lambda p: damage_npz(p, threshold=np.full(6, np.nan, "f4")), "its threshold .* is not finite"),
        ("params.npz", lambda p: damage_npz(p, scaling_factor=np.full(6, 2.0)), "a finetuning_scaling_factor"),
        ("params.npz", lambda p: damage_npz(p, b_other=np.zeros(6)), "it has .*b_other.*; Gemma Scope 1 has"),
        ("params.npz", damage_npz, "pass --hook-name"),
        ("readme.md", lambda p: p.write_bytes(b""), "has no params.npz and no layerN.sae.pt"),
    ],
)
def test_a_file_that_is_no_such_autoencoder_is_refused(tmp_path, capsys, name, write, says):
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / name)
    assert reader_main(["convert-sae", str(tmp_path / "in"), str(tmp_path / "out")]) == 1
    assert re.search(f"Failed to convert .*{says}", capsys.readouterr().err)
    assert not (tmp_path / "out").exists()

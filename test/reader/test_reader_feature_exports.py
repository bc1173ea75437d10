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
from test_reader_exports import interrupt, tensors_of
from test_reader_reductions import D_SAE, store_reductions


def content(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_cache_of_delphi_has_every_activation_of_each_whole_context(tmp_path, monkeypatch):
    monkeypatch.setattr("gleaner_reader.run.pieces._ROWS_AT_ONCE", 7)
    monkeypatch.setattr(features, "_SPLITS", 3)
    stored = store_reductions(tmp_path / "run", ("features",))
    run = gleaner_reader.open(stored.folder)
    export = to_delphi(run, str(tmp_path / "out"), 2, context_size=4)
    with pytest.raises(KeyboardInterrupt):
        to_delphi(run, str(tmp_path / "again"), 2, context_size=4, progress=interrupt)
    to_delphi(run, str(tmp_path / "again"), 2, context_size=4)
    assert content(tmp_path / "again") == content(tmp_path / "out")
    paths = [f"latents/layers.2/{name}.safetensors" for name in ("0_9", "10_20", "21_31")]
    names = {*paths, "latents/layers.2/config.json", "export.json", "samples.jsonl"}
    assert content(tmp_path / "out").keys() == names
    lines = [json.loads(line) for line in (tmp_path / "out/samples.jsonl").read_text().splitlines()]
    expected, tokens, found = {}, [], {}
    for sample in (run.sample(stream, each.index) for stream, plan in stored.plans for each in plan.samples):
        for row in range(len(sample.token_ids) // 4 * 4):
            tokens += [sample.token_ids[row : row + 4].tolist()] * (row % 4 == 0)
            at = zip(*(sample.activations[f"{name}.2"][row].tolist() for name in ("scope_ids", "scope")), strict=True)
            expected |= {(len(tokens) - 1, row % 4, id): value for id, value in at if id >= 0}
    for line in lines:
        sample, (begin, end) = run.sample(line["stream"], line["sample"]), line["contexts"]
        assert line["kept"] == sample.kept and len(sample.token_ids) // 4 == end - begin
        assert sum(tokens[begin:end], []) == sample.token_ids[: (end - begin) * 4].tolist()
    for path, first in zip(paths, (0, 10, 21), strict=True):
        tensors = tensors_of(tmp_path / "out" / path)
        assert tensors["tokens"].tolist() == tokens and tensors["locations"].dtype == np.uint32
        at = tensors["locations"].astype(int) + [0, 0, first]
        found |= {tuple(key): value for key, value in zip(at.tolist(), tensors["activations"].tolist(), strict=True)}
    assert found == expected and export.contexts == len(tokens)
    assert (export.rows, export.left_out, export.dropped) == (4 * len(tokens), run.num_rows - 4 * len(tokens), 0)
    config = json.loads((tmp_path / "out/latents/layers.2/config.json").read_text())
    assert (config["ctx_len"], config["cache_ctx_len"], config["n_splits"]) == (4, 4, 3)
    some = gleaner_reader.open(store_reductions(tmp_path / "some", ("features",), tokens=slice(0, 9, 2)).folder)
    with pytest.raises(ValueError, match='no row for each token, as delphi needs it: store `tokens` "all"'):
        to_delphi(some, str(tmp_path / "x"), 2)


def test_the_json_of_a_feature_has_its_facts_and_the_value_of_each_token(tmp_path, monkeypatch, capsys):
    for name, value in {"_FEATURES_AT_ONCE": 5, "_EXAMPLES": 3, "_AROUND": 2}.items():
        monkeypatch.setattr(features, name, value)
    run = gleaner_reader.open(store_reductions(tmp_path / "run", ("features",)).folder)
    (tmp_path / "run/model.json").write_text(json.dumps({"name": str(tmp_path)}))
    Tokenizer(WordLevel({f"w{n}": n for n in range(1000)}, "w0")).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(KeyboardInterrupt):
        to_feature_json(run, str(tmp_path / "out"), 2, progress=interrupt)
    to_feature_json(run, str(tmp_path / "out"), 2)
    assert len(content(tmp_path / "out")) == D_SAE + 1
    feature, facts = run.feature(2, 7, n=3), json.loads((tmp_path / "out/7.json").read_text())
    assert (facts["density"], facts["histogram"]) == (feature.density, feature.histogram.tolist())
    for example, row, score in zip(facts["examples"], run.rows(feature.top.rows), feature.top.scores, strict=True):
        sample, p = run.sample(row.stream, row.sample), row.position
        here = slice(max(0, p - 2), p + 3)
        values = np.where(sample.activations["scope_ids.2"] == 7, sample.activations["scope.2"].astype(float), 0).max(1)
        assert example["token_ids"] == sample.token_ids[here].tolist()
        assert example["values"] == values[here].tolist() and values[p] == score and example["position"] == p
        assert (example["score"], example["kept"]) == (score, sample.kept)
    chosen = ["--to", "features", "--layer", "2", "--ids", "7", "--output", str(tmp_path / "cli")]
    monkeypatch.setattr("sys.argv", ["export", run.url, *chosen])
    assert export_main() == 0 and json.loads(capsys.readouterr().out)["features"] == 1
    assert json.loads((tmp_path / "cli/7.json").read_text())["examples"][0]["tokens"][0].strip()[0] == "w"
    (tmp_path / "run/model.json").unlink()
    monkeypatch.setattr("sys.argv", ["export", run.url, *chosen[:-1], str(tmp_path / "ids")])
    assert export_main() == 0 and "token ids in place of texts, because" in capsys.readouterr().err
    assert "token_ids" in json.loads((tmp_path / "ids/7.json").read_text())["examples"][0]


def some_weights(axes=(4, 6), names=("W_enc", "W_dec", "b_enc", "b_dec", "threshold")):
    shapes = {"W_enc": axes, "W_dec": axes[::-1], "b_dec": axes[:1]}
    return {n: np.random.default_rng(0).standard_normal(shapes.get(n, axes[1:]), np.float32) for n in names}


def npz(path, **changes):
    np.savez(path, **{name.replace("W_", "w_"): each for name, each in (some_weights() | changes).items()})


def pt(path, tensors, storage="torch\nFloatStorage", strides=None):
    """As torch.save writes it, without torch."""
    text = lambda value: b"X" + len(value).to_bytes(4, "little") + value.encode()  # noqa: E731
    numbers = lambda of: b"(" + b"".join(b"J" + n.to_bytes(4, "little") for n in of) + b"t"  # noqa: E731
    items, files = b"", {}
    for key, (name, each) in enumerate(tensors.items()):
        files[f"a/data/{key}"] = each.tobytes()
        place = b"(" + text("storage") + f"c{storage}\n".encode() + text(str(key)) + text("cpu") + b"K\x01tQ"
        items += text(name) + b"ctorch._utils\n_rebuild_tensor_v2\n(" + place + b"K\x00" + numbers(each.shape)
        items += numbers(strides or [step // each.itemsize for step in each.strides])
        items += b"\x89ccollections\nOrderedDict\n)RtR"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in ({"a/data.pkl": b"\x80\x02}(" + items + b"u."} | files).items():
            archive.writestr(name, data)


QWEN = {name: each.T.copy() for name, each in some_weights().items() if name != "threshold"}


BF16 = {name: each.astype(ml_dtypes.bfloat16) for name, each in QWEN.items()}


@pytest.mark.parametrize("end", ["a-att/layer_12/params.npz", "W32K-L0_5/layer3.sae.pt"])
def test_published_autoencoders_become_folders_of_saelens(tmp_path, capsys, end):
    source, result = tmp_path / "in" / end, tmp_path / "out" / end.removesuffix("/params.npz").removesuffix(".sae.pt")
    source.parent.mkdir(parents=True)
    npz(source) if end.endswith("npz") else pt(source, BF16, "torch\nBFloat16Storage")
    assert reader_main(["convert-sae", str(tmp_path / "in"), str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out == f"{result}\n"
    found, cfg = tensors_of(result / "sae_weights.safetensors"), json.loads((result / "cfg.json").read_text())
    assert found.keys() == (some_weights() if end.endswith("npz") else QWEN).keys()
    for name, each in found.items():
        assert each.dtype == "f4" and np.allclose(each, some_weights()[name], 0 if end.endswith("npz") else 0.01)
    jumprelu, topk = ("jumprelu", None, "blocks.12.attn.hook_z"), ("topk", 5, "blocks.3.hook_resid_post")
    facts = cfg["architecture"], cfg.get("k"), cfg["metadata"]["hook_name"]
    assert facts == (jumprelu if end.endswith("npz") else topk) and (cfg["d_in"], cfg["d_sae"]) == (4, 6)


@pytest.mark.parametrize(
    ("name", "write", "says"),
    [
        ("layer1.sae.pt", lambda p: pt(p, QWEN, "os\nsystem"), "asks for os.system"),
        ("layer1.sae.pt", lambda p: pt(p, QWEN, strides=[1]), "another shape"),
        ("layer1.sae.pt", lambda p: pt(p, {"W_enc": QWEN["W_enc"]}, strides=[1, 6]), "its W_enc is not contiguous"),
        ("layer1.sae.pt", lambda p: pt(p, some_weights()), "its threshold is .* none of W_enc, W_dec"),
        ("layer1.sae.pt", lambda p: pt(p, {"b_enc": QWEN["b_enc"]}), "it has b_enc; Qwen-Scope has W_dec, W_enc"),
        ("layer1.sae.pt", lambda p: pt(p, QWEN), "its k is 0.*--k"),
        ("layer1.sae.pt", lambda p: p.write_bytes(b"PK"), "not a zip file"),
        ("params.npz", lambda p: npz(p, b_enc=np.array([{}], object)), "Object arrays cannot be loaded"),
        ("params.npz", lambda p: npz(p, b_dec=np.zeros(6, "f4")), r"its b_dec \[6\] is not \[4\]"),
        ("params.npz", lambda p: npz(p, threshold=np.full(6, np.nan)), "its threshold .* of finite floats"),
        ("params.npz", lambda p: npz(p, scaling_factor=np.full(6, 2.0)), "a finetuning_scaling_factor"),
        ("params.npz", lambda p: npz(p, b_other=np.zeros(6)), "it has .*b_other.*; Gemma Scope 1 has"),
        ("params.npz", npz, "pass --hook-name"),
        ("readme.md", lambda p: p.write_bytes(b""), "has no params.npz and no layerN.sae.pt"),
    ],
)
def test_a_file_that_is_no_such_autoencoder_is_refused(tmp_path, capsys, name, write, says):
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / name)
    assert reader_main(["convert-sae", str(tmp_path / "in"), str(tmp_path / "out")]) == 1
    assert re.search(f"Failed to convert .*{says}", capsys.readouterr().err)
    assert not (tmp_path / "out").exists()

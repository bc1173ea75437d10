"""Exports that are interrupted and go on, safetensors parts, and the folder for dictionary_learning."""

import hashlib
import json
import os
import shutil
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

import gleaner_reader
from gleaner_reader.export import (
    npy,
    open_tokenizer,
    parts,
    to_npy,
    to_pairs,
    to_safetensors,
    to_shuffled_safetensors,
    tokenizer_of,
)
from gleaner_reader.export.__main__ import main as export_main
from gleaner_reader.export.dictionary_learning import FolderBuffer, _activations
from gleaner_reader.export.parts import part_name
from gleaner_reader.format.convert import as_stored
from gleaner_reader.format.files import LocalFile
from gleaner_reader.format.safetensors_header import read_safetensors_header
from stored_run import store_run


def tensors_of(path):
    file = LocalFile(str(path), os.path.getsize(path))
    found = read_safetensors_header(file.read, file.size, str(path)).tensors
    return {
        name: as_stored(np.frombuffer(file.read(info.begin, info.end), np.uint8), info.dtype).reshape(info.shape)
        for name, info in found.items()
    }


def interrupt(done, total):
    if done > total // 2:
        raise KeyboardInterrupt


@pytest.fixture
def reads(monkeypatch):
    """The rows that each read of a shard has asked for."""
    found, rows = [], gleaner_reader.run.tensor_shard.SafetensorsShard.rows

    def noted(shard, site, layer, begin, end, verify=False):
        found.append((shard.url, begin, end))
        return rows(shard, site, layer, begin, end, verify)

    monkeypatch.setattr(gleaner_reader.run.tensor_shard.SafetensorsShard, "rows", noted)
    return found


@pytest.fixture
def small_steps(monkeypatch):
    """Every step of an export is kept."""
    monkeypatch.setattr(npy, "_KEEP_EVERY_S", 0.0)
    monkeypatch.setattr(parts, "_PART_BYTES", 4000)
    monkeypatch.setattr(parts, "_BATCH_BYTES", 4000)


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def tokenizer():
    """Token N is the word wN."""
    return Tokenizer(WordLevel({f"w{number}": number for number in range(1000)}, "w0"))


@pytest.mark.parametrize("write", [to_npy, to_safetensors, to_shuffled_safetensors, to_pairs])
def test_an_interrupted_export_goes_on_and_equals_an_uninterrupted_export(
    tmp_path, small_steps, reads, tokenizer, write
):
    if write is to_pairs:
        write = partial(to_pairs, tokenizer=tokenizer)
    run = gleaner_reader.open(store_run(tmp_path / "run").folder)
    write(run, str(tmp_path / "whole"), 2)
    rows_of_whole = sum(end - begin for _, begin, end in reads)
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        write(run, str(out), 2, progress=interrupt)
    assert not out.exists() and (tmp_path / "out.unfinished/progress.json").exists()
    del reads[:]
    seen = []
    export = write(gleaner_reader.open(run.url), str(out), 2, progress=lambda done, total: seen.append(done))
    # The rows of one buffer of the shuffle are read together.
    assert write is to_shuffled_safetensors or sum(end - begin for _, begin, end in reads) < rows_of_whole
    assert seen[0] > run.num_rows // 3
    assert seen[-1] == run.num_rows == export.rows
    assert content(out) == content(tmp_path / "whole")
    assert sorted(os.listdir(tmp_path)) == ["out", "run", "whole"]


def test_an_unfinished_export_of_other_options_is_begun_anew(tmp_path, small_steps):
    run = gleaner_reader.open(store_run(tmp_path / "run").folder)
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        to_npy(run, str(out), 2, progress=interrupt)
    to_npy(run, str(out), 0)
    assert np.array_equal(np.load(out / "activations.npy"), run.layer(0, dtype="float32")[:])
    with pytest.raises(FileExistsError, match="it exists; choose another folder"):
        to_safetensors(run, str(out), 0)


@pytest.mark.parametrize("write", [to_npy, to_safetensors, to_shuffled_safetensors, to_pairs])
def test_an_export_begins_only_where_the_disk_has_room_for_it(tmp_path, monkeypatch, tokenizer, write):
    run = gleaner_reader.open(store_run(tmp_path / "run").folder)
    write = partial(write, run, layer=2, **({"tokenizer": tokenizer} if write is to_pairs else {}))
    write(str(tmp_path / "a"))
    written = sum(len(each) for each in content(tmp_path / "a").values())
    free = written // 4
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    with pytest.raises(OSError, match=r"needs 0\.\d MB more, and its disk has 0\.\d MB free; choose a folder"):
        write(str(tmp_path / "b"))
    assert sorted(os.listdir(tmp_path)) == ["a", "run"]
    free = written
    write(str(tmp_path / "b"))


def test_the_model_of_a_run_in_a_local_cloud_is_found_in_the_same_folder(tmp_path, tokenizer):
    folder = tmp_path / "buckets" / "gleaner-local"
    stored = store_run(folder / "activations" / "my-run").folder
    (folder / "activations" / "my-run" / "model.json").write_text('{"name": "gs://gleaner-local/models/tiny"}')
    os.makedirs(folder / "models" / "tiny")
    tokenizer.save(str(folder / "models" / "tiny" / "tokenizer.json"))
    assert tokenizer_of(gleaner_reader.open(stored)).decode([7]) == "w7"


@pytest.mark.parametrize(("dtype", "tokens"), [("bfloat16", "all"), ("float16", "all"), ("float32", "mean")])
def test_parts_hold_every_row_with_its_origin(tmp_path, small_steps, dtype, tokens):
    run = gleaner_reader.open(store_run(tmp_path / "run", tokens=tokens).folder)
    export = to_safetensors(run, str(tmp_path / "out"), 2, dtype=dtype)
    to_npy(run, str(tmp_path / "npy"), 2)
    found = [tensors_of(tmp_path / "out" / f"part-{number + 1:05d}.safetensors") for number in range(export.parts)]
    together = {name: np.concatenate([part[name] for part in found]) for name in found[0]}
    values = together.pop("activations")
    stored = run.layer(2)[:].view(np.uint16) if dtype == "bfloat16" else run.layer(2, dtype=dtype)[:]
    assert np.array_equal(values, stored)
    for name, column in together.items():
        assert column.dtype == np.int64 and np.array_equal(column, np.load(tmp_path / f"npy/{name}.npy"))
    assert ("position" in together) == (tokens == "all")
    assert json.loads((tmp_path / "out/export.json").read_text())["parts"] == len(found) > 1


@pytest.mark.parametrize("tokens", ["all", slice(1, 9, 2), "mean", "spans"])
def test_each_line_of_pairs_has_the_tokens_that_its_vector_knows(tmp_path, small_steps, tokenizer, tokens):
    run = gleaner_reader.open(store_run(tmp_path / "run", tokens=tokens, keep=True).folder)
    export = to_pairs(run, str(tmp_path / "out"), 2, tokenizer=tokenizer, window=3)
    found = {name: tensors_of(tmp_path / "out" / name) for name in (part_name(1 + n) for n in range(export.parts))}
    lines = [
        json.loads(line)
        for name in sorted(found)
        for line in (tmp_path / "out" / name.replace("safetensors", "jsonl")).read_text().splitlines()
    ]
    vectors = [found[line["vector"]["file"]]["activations"][line["vector"]["row"]] for line in lines]
    assert np.array_equal(vectors, run.layer(2, dtype="float32")[:])
    are_pools = tokens in ("mean", "spans")
    for line in lines:
        sample = run.sample(line["stream"], line["sample"], layers=[0])
        end = len(sample.token_ids) if are_pools else line["position"] + 1
        known = sample.token_ids[0 if are_pools else max(0, end - 3) : end]
        assert line["text"] == " ".join(f"w{each}" for each in known) and line["kept"] == sample.kept
        assert are_pools or (line["token_id"], line["token"]) == (known[-1], f"{' ' * (end > 1)}w{known[-1]}")
    if tokens == "spans":
        assert [line["span"] for line in lines[:2]] == run.sample(0, lines[0]["sample"]).span_idx.tolist()


def test_half_of_a_character_in_a_kept_field_comes_through_each_export(tmp_path, monkeypatch, tokenizer):
    run = gleaner_reader.open(store_run(tmp_path / "run", keep=True).folder)
    parse, half = gleaner_reader.format.index._parse_kept, {"text": "\ud83d"}
    monkeypatch.setattr(gleaner_reader.format.index, "_parse_kept", lambda *of: [each | half for each in parse(*of)])
    to_npy(run, str(tmp_path / "npy"), 2)
    to_pairs(run, str(tmp_path / "pairs"), 2, tokenizer=tokenizer)
    for name in ("npy/samples.jsonl", "pairs/samples.jsonl", "pairs/part-00001.jsonl"):
        assert json.loads((tmp_path / name).read_text().splitlines()[0])["kept"]["text"] == "\ud83d"


def test_a_tokenizer_of_another_model_is_refused(tmp_path, tokenizer):
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert open_tokenizer(str(tmp_path), sha256=digest).decode([7]) == "w7"
    with pytest.raises(ValueError, match=f"has SHA-256 {digest}, and the run was made with 0000"):
        open_tokenizer(str(path), sha256="0" * 64)
    path.write_text("{}")
    with pytest.raises(ValueError, match=r"Failed to read the tokenizer\.json of "):
        open_tokenizer(str(tmp_path))
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"has no tokenizer\.json"):
        open_tokenizer(str(tmp_path))


def test_a_dtype_that_would_round_or_is_unknown_is_refused(tmp_path):
    run = gleaner_reader.open(store_run(tmp_path / "run", dtype="fp32").folder)
    for dtype in ("bfloat16", "float64"):
        with pytest.raises(ValueError, match=f"dtype is '{dtype}', and for a run that stores fp32 .* float32, float16"):
            to_safetensors(run, str(tmp_path / "out"), 2, dtype=dtype)
    assert not (tmp_path / "out.unfinished").exists()


def test_the_folder_for_dictionary_learning_gives_each_row_once_an_epoch_in_new_orders(
    tmp_path, small_steps, monkeypatch
):
    stored = store_run(tmp_path / "run", dtype="fp32")
    run, out = gleaner_reader.open(stored.folder), str(tmp_path / "out")
    export = to_shuffled_safetensors(run, out, 2, seed=3)
    rows = np.concatenate(
        [_activations(os.path.join(out, f"part-{n + 1:05d}.safetensors")) for n in range(export.parts)]
    )
    assert sorted(row.tobytes() for row in rows) == sorted(row.tobytes() for row in stored.rows("resid_post.2"))
    assert not np.array_equal(rows, stored.rows("resid_post.2"))
    parts_of = (tensors_of(os.path.join(out, f"part-{n + 1:05d}.safetensors")) for n in range(export.parts))
    assert np.array_equal(rows, stored.rows("resid_post.2")[np.concatenate([part["row"] for part in parts_of])])

    class Tensor(np.ndarray):
        def to(self, device):
            return self

    monkeypatch.setattr("gleaner_reader.export.dictionary_learning.check_kind", lambda *_: None)
    monkeypatch.setattr(
        "gleaner_reader.export.dictionary_learning.finish", lambda rows, *_: rows.stored.copy().view(Tensor)
    )
    batches = list(FolderBuffer(out, 10, "cpu", None, 2, 3))
    assert [len(batch) for batch in batches] == [10] * (2 * len(rows) // 10)
    both = np.concatenate(batches)
    assert np.array_equal(both[: len(rows)], rows)
    second = both[len(rows) :]
    assert not np.array_equal(second, rows[: len(second)])
    assert len({row.tobytes() for row in second}) == len(second)
    with pytest.raises(ValueError, match="is not an export for dictionary_learning; write one"):
        to_npy(run, str(tmp_path / "npy"), 2)
        FolderBuffer(str(tmp_path / "npy"), 10, "cpu", None, 1, 0)


def test_a_run_that_lost_a_shard_is_not_exported_and_one_that_is_unfinished_says_so(tmp_path, monkeypatch, capsys):
    run = store_run(tmp_path / "run").folder
    command = ["export", run, "--to", "numpy", "--layer", "2", "--output", str(tmp_path / "out")]
    monkeypatch.setattr("sys.argv", command)
    os.unlink(os.path.join(run, "tpu_7", "shard_0002.safetensors"))
    with pytest.warns(UserWarning, match="is not complete"):
        assert export_main() == 1
    assert "it has lost shards: 5 of its 6 shards are here; shard 2 of stream 7" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    del manifest["result"]
    (tmp_path / "run" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.warns(UserWarning, match="is not complete"):
        assert export_main() == 0
    assert f"note: {run} is exported as far as it is stored: its manifest has no result" in capsys.readouterr().err

"""Runs that cut documents: stored, read, verified, and interrupted."""

import json
import shutil

import numpy as np
import pytest

import gleaner_reader
from build import a_spec, outputs, put_manifest, shard_gb
from device_rows import rows_of
from device_rows import run as run_rows
from gleaner_worker.failures import Failure
from gleaner_worker.records.samples.sample import Reject, Sample
from gleaner_worker.records.samples.tokenize_lines import make_sample_settings
from verified_run import rewrite

pytestmark = pytest.mark.slow

LINES = (
    [json.dumps({"text": "one two three four five " * n, "id": n}) for n in (1, 9, 2)]
    + ["junk"]
    + [json.dumps({"text": "six seven " * n, "id": n}) for n in (12, 1, 1, 30)]
)
CHUNK = {"over_long": "chunk", "context_size": 16, "overlap": 3, "keep": ["id"], "shard_size_gb": shard_gb(60)}
PACK = {"over_long": "pack", "context_size": 16, "shard_size_gb": shard_gb(60)}


@pytest.fixture
def store(storage, extract, tmp_path, tiny_folder):
    """store(**spec) -> the run of LINES, opened by the reader."""

    def run(**spec):
        assert extract(LINES, **spec) == "completed"
        put_manifest(storage, model=tiny_folder, **spec)
        for name, data in outputs(storage).items():
            path = tmp_path / "run" / "tpu_7" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        with pytest.warns(UserWarning, match="no manifest"):
            return gleaner_reader.open(str(tmp_path / "run"))

    return run


@pytest.mark.sample(2)
@pytest.mark.parametrize("tokens", ["mean", "all", "last", [-1, 0]])
@pytest.mark.parametrize("spec", [CHUNK, PACK], ids=["chunk", "pack"])
def test_a_run_that_cuts_documents_is_stored_read_and_verified(storage, store, verify, spec, tokens):
    run = store(**spec, tokens=tokens)
    report, problems = verify()
    assert report["ok"], problems
    assert report["rejected"] >= 1 and report["missing"] == report["doubled"] == 0
    assert len(run.shards) > 1 or tokens != "all"
    indices = [run.index(shard) for shard in run.shards]
    identities = [pair for index in indices for pair in zip(index.lines, index.chunks, strict=True)]
    assert len(set(identities)) == len(identities) == report["stored_once"]
    sample = run.sample(7, int(indices[0].sample_idx[1]))
    assert (sample.line, sample.chunk) == (int(indices[0].lines[1]), int(indices[0].chunks[1]))
    if spec is PACK:
        assert sample.token_lines.shape == sample.token_ids.shape
    else:
        assert all(
            kept["id"] == json.loads(LINES[line])["id"]
            for index in indices
            for kept, line in zip(index.kept, index.lines, strict=True)
        )
    rejects = [json.loads(line) for line in outputs(storage)["rejects.jsonl"].splitlines()]
    assert [reject["line"] for reject in rejects if "JSON" in reject["reason"]] == [4]


def test_verify_finds_a_sample_with_a_wrong_chunk_number(storage, store, verify):
    store(**CHUNK)

    def change(tensors):
        tensors["chunk_idx"][0] += 1

    rewrite(storage, "shard_0001.safetensors", change, signed=True)
    report, problems = verify()
    assert not report["ok"] and report["different"] == 1 and "differ from the stream" in problems


def test_a_chunk_has_the_activations_of_its_tokens_alone(store, tiny_models):
    run = store(**CHUNK, dtype="fp32")
    found = [run.sample(7, int(index)) for shard in run.shards for index in run.index(shard).sample_idx]
    (chunk, *_) = [sample for sample in found if sample.chunk == 1]
    model = tiny_models(dtype="fp32")
    alone = rows_of(run_rows(model, [Sample(0, chunk.token_ids, None, "", False)]), "resid_post")
    for layer, rows in zip(model.layers, alone, strict=True):
        assert np.allclose(rows, chunk.activations[f"resid_post.{layer}"], atol=1e-5)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"over_long": "chunk", "context_size": 2048}, "positions"),
        ({"over_long": "chunk", "max_seq_length": 8, "overlap": 7}, "overlap 7"),
        ({"bos": True}, "bos_token"),
    ],
)
def test_a_spec_that_the_model_cannot_follow_is_refused(tiny_folder, spec, reason):
    with pytest.raises(Failure, match=reason):
        make_sample_settings(tiny_folder, a_spec(**spec), 600, 1024)


def test_an_eos_beyond_the_embeddings_fails_the_run(tiny_folder, tmp_path):
    shutil.copytree(tiny_folder, tmp_path / "model")
    file = tmp_path / "model" / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    tokenizer["added_tokens"].append(tokenizer["added_tokens"][0] | {"id": 600, "content": "<eos>", "special": True})
    file.write_text(json.dumps(tokenizer))
    (tmp_path / "model" / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<eos>"}))
    with pytest.raises(Failure, match="eos_token: the id is 600, and the model has 600 embeddings; correct"):
        make_sample_settings(str(tmp_path / "model"), a_spec(**PACK), 600, 1024)


def test_a_text_that_no_sample_can_hold_is_rejected_before_it_is_tokenised(read_items):
    (item,) = read_items([{"text": " " * 1_000_000}], max_seq_length=16)
    assert isinstance(item, Reject) and "1000000 characters" in item.reason

"""Runs of reductions: features, projections and moments that were computed on the device."""

import json
from dataclasses import replace

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

import gleaner_reader
from gleaner_reader import ShardError
from gleaner_reader.export import to_npy
from gleaner_reader.format.files import open_folder
from gleaner_reader.run.questions import _typed
from gleaner_reader.run.verify import verify
from memory import MIB, at_most
from stored_reductions import D_MODEL, LAYERS, OUTPUTS, store_reductions
from stored_run import store_run, summarise


@pytest.fixture
def run(tmp_path):
    return gleaner_reader.open(store_reductions(tmp_path / "reductions").folder)


def test_the_outputs_of_a_run_are_read_as_any_site(tmp_path):
    stored = store_reductions(tmp_path)
    run = gleaner_reader.open(stored.folder)
    assert set(run.sites) == {"scope", "scope_ids", "scope_active", "probe"} and run.layers == LAYERS
    assert run.outputs == {name: each for outputs in OUTPUTS.values() for name, each in outputs.items()}
    for name in run.sites:
        assert np.array_equal(run.layer(2, name)[:].astype(np.float32), stored.of(stored.values[name], 2))


@pytest.mark.parametrize("tokens", ["all", slice(1, 9, 2)])
@pytest.mark.parametrize("form", ["safetensors", "safetensors.zst"])
def test_a_run_of_moments_alone_opens_and_verifies_and_says_that_it_has_no_rows(tmp_path, form, tokens):
    stored = store_reductions(tmp_path / "run", ("moments",), form, tokens=tokens)
    digest, run = summarise(stored.folder), gleaner_reader.open(stored.folder)
    assert (run.sites, run.layers, run.widths, run.dtypes) == ((), (), {}, {})
    assert run.num_rows == sum(plan.rows for _, plan in stored.plans)
    assert run.first.moments == {("resid_post", layer): D_MODEL for layer in LAYERS}
    assert run.sample(7, 41).activations == {} and run.sample(7, 41).kept == {"n": 41, "text": "é"}
    asks = (lambda: run.d_model, lambda: run.dtype, lambda: run.layer(0), lambda: run.batches(0))
    for ask in (*asks, lambda: to_npy(run, str(tmp_path / "npy"), 0)):
        with pytest.raises(ValueError, match="stores moments and no rows of a site; run.moments"):
            ask()
    found = verify(open_folder(stored.folder))
    assert found.problems == () and found.digest == digest
    if form == "safetensors":
        last = run.streams[7][-1]  # of another attempt than metadata.json, so its own checksums count
        overwrite(last, "resid_post.2.squares", 0, b"\1")
        assert any("shard_0003" in problem for problem in verify(open_folder(stored.folder)).problems)


def overwrite(shard, tensor, offset, data):
    with open(shard.url, "r+b") as file:
        file.seek(shard.tensors[tensor].begin + offset)
        file.write(data)


SAE, NOT = OUTPUTS["features"]["scope"], "scope_ids are not features of an SAE"


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        *(("outputs", text, "the outputs in its header are damaged") for text in ("[1]", "[" * 100_000)),
        *(("outputs", {"scope": each}, "stores the features of no SAE") for each in (1, {"kind": ["features"]})),
        *(("outputs", {"scope": SAE | {"d_sae": d_sae}}, NOT) for d_sae in (True, (1 << 24) + 1, None)),
        ("outputs", {"scope": SAE | {"site": "../q"}}, NOT),
        ("outputs", {"probe": SAE}, "probe_ids are not features of an SAE"),
        *(("resid_post.0.sum", {"shape": shape}, "are not F32") for shape in ((), (34,), (34, 0), (34, 8, 1), (1, 8))),
        ("resid_post.2.squares", {"dtype": "I32"}, "its moments of resid_post.2 are not F32"),
    ],
)
def test_a_damaged_description_is_refused(run, monkeypatch, name, value, says):
    header = run.first.header
    if name == "outputs":
        monkeypatch.setitem(header.metadata, name, value if isinstance(value, str) else json.dumps(value))
    else:
        monkeypatch.setitem(header.tensors, name, replace(header.tensors[name], **value))
    with pytest.raises((ShardError, ValueError), match=says):
        run.feature(0, 1)
        run.moments(0)


def words(numbers):
    return " ".join(f"w{number}" for number in numbers)


@pytest.mark.parametrize("tokens", ["all", slice(1, 9, 2), "mean", "pkl"])
def test_rows_know_their_sample_and_the_text_around_them(tmp_path, tokens):
    tokenizer = Tokenizer(WordLevel({f"w{number}": number for number in range(1000)}, "w0"))
    form = ("pkl.gz", "fp32", "all") if tokens == "pkl" else ("safetensors", "bf16", tokens)
    run = gleaner_reader.open(store_run(tmp_path / "run", *form[:2], tokens=form[2], keep=True).folder)
    to_npy(run, str(tmp_path / "npy"), 0)
    ids = np.random.default_rng(0).permutation(run.num_rows)[:100]
    rows = run.rows(ids, context=3, tokenizer=tokenizer)
    for file, name in ("stream", "stream"), ("sample_idx", "sample"), ("position", "position"):
        if name != "position" or tokens not in ("pkl", "mean"):
            assert [getattr(row, name) for row in rows] == np.load(tmp_path / f"npy/{file}.npy")[ids].tolist()
    for row in rows:
        sample, p = run.sample(row.stream, row.sample, layers=[0]), row.position
        assert row.kept == sample.kept and row.kept["n"] == row.sample
        if tokens == "pkl":
            assert (row.token_id, row.text, row.before) == (None, None, None)
        elif tokens == "mean":
            assert (p, row.token_id, row.token, row.after) == (None, None, None, None)
            assert row.text == words(sample.token_ids)
        else:
            around = words(sample.token_ids[max(0, p - 3) : p]), words(sample.token_ids[p + 1 : p + 4])
            assert (row.before, row.after) == around and row.token == f"w{row.token_id}" == words(sample.token_ids[[p]])
            assert row.text == words(sample.token_ids[max(0, p - 3) : p + 4])


@pytest.mark.parametrize("tokens", ["all", "mean", "spans"])
def test_a_table_has_the_kept_fields_of_each_row(tmp_path, tokens):
    run = gleaner_reader.open(store_run(tmp_path, tokens=tokens, keep=True).folder)
    assert run.table() == {} and set(run.table("text")["text"]) == {"é"}
    assert run.table("n")["n"].tolist() == [row.sample for row in run.rows(range(run.num_rows))]
    mixed = (["a\0", "a"], [True, 1], [1, 1 << 63], [1.5, 10**400], [1, None], [[1, 2], [3, 4]])
    for dtype, *columns in (np.int64, [1, -2]), (float, [1, 2.5]), (bool, [True, False]), (object, *mixed):
        assert all(_typed(values).dtype == dtype and _typed(values).tolist() == values for values in columns)


def interrupt(*_):
    raise KeyboardInterrupt


def by_full_sort(scores, stored, n, per_sample):
    counts = np.concatenate([np.diff(plan.row_offsets) for _, plan in stored.plans])
    samples, taken, of = np.repeat(np.arange(len(counts)), counts), [], {}
    for row in np.lexsort((np.arange(len(scores)), -scores)):
        of[samples[row]] = of.get(samples[row], 0) + 1
        taken += [row] * (of[samples[row]] <= per_sample)
    return taken[:n]


@pytest.mark.parametrize(("n", "per_sample", "at_once"), [(1, 1, 31), (9, 1, 1 << 14), (30, 2, 31), (999, 999, 31)])
def test_the_top_rows_are_those_of_a_full_sort_also_after_interruptions(tmp_path, monkeypatch, n, per_sample, at_once):
    """The values are small integers, so that many scores are equal."""
    monkeypatch.setattr("gleaner_reader.run.pieces._ROWS_AT_ONCE", at_once)
    stored = store_reductions(tmp_path, ("project",), dense=True, count=20)
    run, direction = gleaner_reader.open(stored.folder), np.array([1, 0, 0, 2, 0, 0, 0, -1])
    column = stored.of(stored.values["probe"], 2)[:, 1]
    found = run.top(2, ("probe", 1), n, per_sample=per_sample)
    assert found.rows.tolist() == by_full_sort(column, stored, n, per_sample)
    scores = stored.of(stored.dense, 2) @ direction
    expected = by_full_sort(scores, stored, n, per_sample)
    options = {"site": "resid_post", "per_sample": per_sample}
    for shard in (0, 3, 5):
        state = {}
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(run.shards[shard], "rows", interrupt)
            run.top(2, direction, n, **options, state=state)
        assert bool(state.get("rows")) == bool(shard)
        top = run.top(2, direction, n, **options, state=json.loads(json.dumps(state)))
        assert top.rows.tolist() == expected and top.scores.tolist() == scores[expected].tolist()


def test_the_memory_of_top_does_not_grow_with_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr("gleaner_reader.run.pieces._ROWS_AT_ONCE", 256)
    run = gleaner_reader.open(store_run(tmp_path, d_model=256, count=400, layers=(0,)).folder)
    assert run.num_rows * 512 > 8 * MIB
    with at_most(3 * MIB):
        run.top(0, np.ones(256), 20)


def test_rows_without_a_finite_score_are_left_out(tmp_path):
    run = gleaner_reader.open(store_run(tmp_path, dtype="fp32", shards=1, streams=(0,)).folder)
    for row, value in enumerate((np.nan, np.inf, -np.inf)):
        overwrite(run.first, "resid_post.0", 64 * row, np.float32(value).tobytes())
    top = gleaner_reader.open(run.url).top(0, np.eye(16)[0], run.num_rows, per_sample=99)
    assert sorted(top.rows.tolist()) == list(range(3, run.num_rows))


@pytest.mark.parametrize(("form", "at_once"), [("safetensors", 31), ("safetensors.zst", 31), ("safetensors", 1 << 14)])
def test_features_equal_those_of_the_stored_values(tmp_path, monkeypatch, form, at_once):
    monkeypatch.setattr("gleaner_reader.run.pieces._ROWS_AT_ONCE", at_once)
    stored = store_reductions(tmp_path, ("features",), form)
    run = gleaner_reader.open(stored.folder)
    ids, values = (stored.of(stored.values[name], 2) for name in ("scope_ids", "scope"))
    streams = np.concatenate([np.full(plan.rows, stream) for stream, plan in stored.plans])
    found = run.features(2, range(32), n=6)
    for number, feature in found.items():
        rows, columns = np.nonzero(ids == number)
        scores = np.zeros(run.num_rows)
        scores[rows] = of_rows = values[rows, columns].astype(np.float32)
        assert (feature.active, feature.density) == (len(rows), len(rows) / run.num_rows)
        assert feature.by_stream == {stream: int((streams[rows] == stream).sum()) for stream in (0, 7)}
        assert feature.max == of_rows.max() and feature.at_least
        bins = np.clip(np.floor(2 * np.log2(of_rows)) + 32, 0, 63).astype(int)
        assert feature.histogram.tolist() == np.bincount(bins, minlength=64).tolist()
        best = [row for row in by_full_sort(scores, stored, 6, 1) if scores[row]]
        assert feature.top.rows.tolist() == best and feature.top.scores.tolist() == scores[best].tolist()
    assert str(run.feature(2, 5, n=6)) == str(found[5])
    assert not gleaner_reader.open(store_reductions(tmp_path / "b", cut=0).folder).feature(2, 5).at_least


def sums_of(stored, layer, of=lambda stream, sample: True):
    """Counts and fp64 sums of the samples, one addition after another."""
    count, total, squares = 0, np.zeros(D_MODEL), np.zeros(D_MODEL)
    for (stream, plan), dense in zip(stored.plans, stored.dense, strict=True):
        for sample, begin, end in zip(plan.samples, plan.row_offsets, plan.row_offsets[1:], strict=False):
            if of(stream, sample):
                rows = dense[LAYERS.index(layer), begin:end]
                count, total, squares = count + len(rows), total + rows.sum(0), squares + (rows**2).sum(0)
    return count, total / count, squares / count - (total / count) ** 2


@pytest.mark.parametrize(("form", "piece_bytes"), [("safetensors", 70), ("safetensors.zst", 70), ("safetensors", 9999)])
def test_moments_are_those_of_the_rows_by_any_kept_field(tmp_path, monkeypatch, form, piece_bytes):
    monkeypatch.setattr("gleaner_reader.run.questions._PIECE_BYTES", piece_bytes)
    stored = store_reductions(tmp_path, ("moments",), form, tokens=slice(1, 9, 2))
    run = gleaner_reader.open(stored.folder)
    groups = len({sample.index for _, plan in stored.plans for sample in plan.samples})
    for given, count, key, of in (
        ({}, 1, None, lambda stream, sample: True),
        ({"streams": [7]}, 1, None, lambda stream, sample: stream == 7),
        ({"by": "text"}, 1, "é", lambda stream, sample: True),
        ({"by": "n"}, groups, 41, lambda stream, sample: sample.index == 41),
    ):
        found, expected = run.moments(2, **given), sums_of(stored, 2, of)
        assert len(found) == count and found[key].count == expected[0]
        assert found[key].mean.tolist() == expected[1].tolist() and found[key].var.tolist() == expected[2].tolist()
    expected = sums_of(stored, 0, lambda _, s: s.index == 41)[1] - sums_of(stored, 0, lambda _, s: s.index == 5)[1]
    assert run.difference_of_means(0, "n", 41, 5).tolist() == expected.tolist()


REFUSED = [
    (lambda run: run.top(0, ("probe", 3)), "what is column 3; probe has 3 columns"),
    (lambda run: run.top(1, ("probe", 0)), "layer is 1; .* has layers 0, 2"),
    (lambda run: run.top(0, np.ones(4), site="probe"), r"what is of \(4,\); probe has 3 columns"),
    (lambda run: run.top(0, [1, 2, np.nan], site="probe"), "as many finite numbers"),
    (lambda run: run.top(0, ("probe", 1), 0), "n is 0 and per_sample 1"),
    (lambda run: run.top(0, ("probe", 1), 4, state={"of": "others"}), "the state is of another question"),
    (lambda run: run.feature(0, 32), "there is no feature 32 of scope; it has 32"),
    (lambda run: run.feature(0, 1, name="probe"), "name is 'probe'; .* stores the features scope"),
    (lambda run: run.rows([0], context=-1), "context is -1; set it to at least 0"),
    (lambda run: run.rows([9999]), "there is no row 9999; there are"),
    (lambda run: run.table("n", "label"), "there is no field 'label' in .*; it keeps n, text"),
    (lambda run: run.moments(1), "layer 1; .* has moments of resid_post.0, resid_post.2"),
    (lambda run: run.moments(0, by="n"), "n is not of at most 60 texts or numbers"),
    (lambda run: run.moments(0, by="list"), "list is not of at most 60 texts or numbers"),
    (lambda run: run.moments(0, streams=[0, 3]), "there is no stream 3"),
    (lambda run: run.difference_of_means(0, "text", "é", "e"), "text is 'e' in no sample of"),
]


@pytest.mark.parametrize(("ask", "says"), REFUSED, ids=[says for _, says in REFUSED])
def test_a_question_that_the_run_cannot_answer_is_refused(run, monkeypatch, ask, says):
    monkeypatch.setattr("gleaner_reader.run.questions._MAX_GROUPS", 60)
    if says.startswith("list"):
        run.shard_index(0).kept[0]["list"] = [1]
    with pytest.raises((ValueError, IndexError), match=says):
        ask(run)

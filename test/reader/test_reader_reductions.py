"""Runs of reductions: features, projections and moments that were computed on the device."""

import json

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

import gleaner_reader
from gleaner_reader import ShardError
from gleaner_reader.export import to_npy
from gleaner_reader.format.files import open_folder
from gleaner_reader.query.moments import add_samples
from gleaner_reader.query.rows import typed
from gleaner_reader.run.verify import verify
from hostile_files import a_file, a_header, a_tensor
from memory import MIB, at_most
from stored_reductions import D_MODEL, LAYERS, OUTPUTS, store_reductions
from stored_run import store_run, summarise


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    return store_reductions(tmp_path_factory.mktemp("reductions"))


@pytest.fixture
def run(stored):
    return gleaner_reader.open(stored.folder)


def test_the_outputs_of_a_run_are_read_as_any_site(stored, run):
    assert set(run.sites) == {"scope", "scope_ids", "scope_active", "probe"} and run.layers == LAYERS
    assert run.outputs == OUTPUTS
    for name in run.sites:
        assert np.array_equal(run.layer(2, name)[:].astype(np.float32), stored.of(stored.values[name], 2))


@pytest.mark.parametrize("tokens", ["all", slice(1, 9, 2)])
@pytest.mark.parametrize("file_format", ["safetensors", "safetensors.zst"])
def test_a_run_of_moments_alone_opens_and_verifies_and_says_that_it_has_no_rows(tmp_path, file_format, tokens):
    stored = store_reductions(tmp_path / "run", ("moments",), file_format, tokens=tokens)
    digest = summarise(stored.folder)
    run = gleaner_reader.open(stored.folder)
    assert (run.sites, run.layers, run.widths, run.dtypes) == ((), (), {}, {})
    assert run.num_samples == sum(len(plan.samples) for _, plan in stored.plans)
    assert run.num_rows == sum(plan.rows for _, plan in stored.plans)
    assert run.num_rows == sum(int(run.shard_index(n).row_offsets[-1]) for n in range(6))
    assert run.first.moments == {("resid_post", layer): D_MODEL for layer in LAYERS}
    assert "6 shards of 2 streams" in repr(run)
    assert run.sample(7, 41).activations == {} and run.sample(7, 41).kept == {"n": 41, "text": "é"}
    says = "stores moments and no rows of a site; run.moments"
    for ask in (
        lambda: run.d_model,
        lambda: run.dtype,
        lambda: run.layer(0),
        lambda: run.batches(0),
        lambda: to_npy(run, str(tmp_path / "npy"), 0),
    ):
        with pytest.raises(ValueError, match=says):
            ask()
    found = verify(open_folder(stored.folder))
    assert found.problems == () and found.digest == digest
    last = run.streams[7][-1].url  # of another attempt than metadata.json, so its own checksums count
    data = bytearray(open(last, "rb").read())
    if file_format == "safetensors":
        data[run.streams[7][-1].tensors["resid_post.2.squares"].begin] ^= 1
        open(last, "wb").write(data)
        assert any("shard_0003" in problem for problem in verify(open_folder(stored.folder)).problems)


def test_other_runs_have_no_outputs_and_no_moments(tmp_path):
    run = gleaner_reader.open(store_run(tmp_path).folder)
    assert run.outputs == {} and run.first.moments == {}


SUM, SQUARES = a_tensor(shape=(1, 1), offsets=(0, 4)), a_tensor(shape=(1, 1), offsets=(4, 8))


@pytest.mark.parametrize(
    "tensors",
    [
        {"resid_post.0.sum": SUM},
        {"resid_post.0.squares": SUM},
        {"resid_post.0.sum": SUM, "resid_post.1.squares": SQUARES},
        {"resid_post.0.sum": SUM, "resid_post.0.squares": SQUARES | {"shape": [1]}},
        {"resid_post.0.sum": SUM | {"dtype": "I32"}, "resid_post.0.squares": SQUARES | {"dtype": "I32"}},
        {"resid_post.0.sum": SUM | {"shape": [1, 1, 1]}, "resid_post.0.squares": SQUARES | {"shape": [1, 1, 1]}},
    ],
)
def test_moments_of_other_shapes_are_refused(tmp_path, tensors):
    """Every shard here has one sample."""
    end = max(each["data_offsets"][1] for each in tensors.values())
    header = tensors | {"sample_idx": a_tensor("I64", (1,), (end, end + 8))}
    shard = gleaner_reader.open(a_file(tmp_path, a_header(header, bytes(end + 8))))
    with pytest.raises(ShardError, match=r"its moments of resid_post\.\d are not F32 \[samples, width\]"):
        _ = shard.sites


@pytest.mark.parametrize(
    ("outputs", "says"),
    [
        ("[1]", "the outputs in its header are damaged"),
        ("[" * 100_000, "the outputs in its header are damaged"),
        ('{"a": 1}', "the kind of its output a is None"),
        ('{"a": {"kind": ["features"]}}', r"the kind of its output a is \['features'\]"),
        ('{"a": {"kind": "project", "site": "q", "k": true}}', "the k of its output a is True"),
        ('{"a": {"kind": "project", "site": "q", "k": 16777217}}', "the k of its output a is 16777217"),
        ('{"a": {"kind": "features", "site": "q", "k": 1}}', "the d_sae of its output a is None"),
        (json.dumps({"\x1b[2J": {"kind": "project"}}), r"the site of its output \\x1b\[2J is None"),
    ],
)
def test_a_damaged_description_of_the_outputs_is_refused(tmp_path, outputs, says):
    header = {"__metadata__": {"outputs": outputs}, "resid_post.0": a_tensor()}
    with pytest.raises(ShardError, match=says):
        _ = gleaner_reader.open(a_file(tmp_path, a_header(header, bytes(4)))).outputs


@pytest.fixture(scope="module")
def tokenizer():
    """Token N is the word wN."""
    return Tokenizer(WordLevel({f"w{number}": number for number in range(1000)}, "w0"))


def words(numbers):
    return " ".join(f"w{number}" for number in numbers)


@pytest.mark.parametrize(
    ("tokens", "dtype"), [("all", "bf16"), (slice(1, 9, 2), "bf16"), ("mean", "bf16"), ("all", "pkl")]
)
def test_rows_know_their_sample_and_the_text_around_them(tmp_path, tokenizer, tokens, dtype):
    form = ("pkl.gz", "fp32") if dtype == "pkl" else ("safetensors", dtype)
    run = gleaner_reader.open(store_run(tmp_path / "run", *form, tokens=tokens, keep=True).folder)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    to_npy(run, str(tmp_path / "npy"), 0)
    ids = np.random.default_rng(0).permutation(run.num_rows)[:100]
    rows = run.rows(ids, context=3, tokenizer=str(tmp_path / "tokenizer.json"))
    origins = {name: np.load(tmp_path / f"npy/{name}.npy")[ids] for name in ("stream", "sample_idx")}
    assert [(row.stream, row.sample) for row in rows] == list(
        zip(*map(np.ndarray.tolist, origins.values()), strict=True)
    )
    if dtype != "pkl" and tokens != "mean":
        assert [row.position for row in rows] == np.load(tmp_path / "npy/position.npy")[ids].tolist()
    for row in rows:
        sample, p = run.sample(row.stream, row.sample, layers=[0]), row.position
        assert row.kept == sample.kept and row.kept["n"] == row.sample
        if dtype == "pkl":
            assert (row.token_id, row.text, row.before) == (None, None, None)
        elif tokens == "mean":
            assert (p, row.token_id, row.token, row.after) == (None, None, None, None)
            assert row.text == words(sample.token_ids)
        else:
            around = words(sample.token_ids[max(0, p - 3) : p]), words(sample.token_ids[p + 1 : p + 4])
            assert (row.before, row.after) == around and row.token == f"w{row.token_id}" == words(sample.token_ids[[p]])
            assert row.text == words(sample.token_ids[max(0, p - 3) : p + 4])
    assert run.rows(ids[:9]) == [
        row.__class__(**vars(row) | dict.fromkeys(("token", "text", "before", "after"))) for row in rows[:9]
    ]


def test_rows_that_the_run_lacks_are_refused(run):
    with pytest.raises(IndexError, match=f"there is no row {run.num_rows}; there are {run.num_rows}"):
        run.rows([0, run.num_rows])
    with pytest.raises(ValueError, match="context is -1; set it to at least 0"):
        run.rows([0], context=-1)
    with pytest.raises(FileNotFoundError, match=r"has no tokenizer\.json"):
        run.rows([0], tokenizer=run.url)


@pytest.mark.parametrize("tokens", ["all", "mean", "spans"])
def test_a_table_has_the_kept_fields_of_each_row(tmp_path, tokens):
    run = gleaner_reader.open(store_run(tmp_path, tokens=tokens, keep=True).folder)
    table = run.table("n", "text")
    assert list(table) == ["n", "text"] and table["n"].dtype == np.int64 and table["text"].dtype.kind == "U"
    assert table["n"].tolist() == [row.sample for row in run.rows(range(run.num_rows))]
    assert set(table["text"]) == {"é"} and run.table() == {}
    with pytest.raises(ValueError, match="there is no field 'label' in .*; it keeps n, text"):
        run.table("n", "label")


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1, -2], "int64"),
        ([1, 2.5], "float64"),
        ([True, False], "bool"),
        (["a", "b" * 64], "<U64"),
        (["a", "b" * 65], "object"),
        (["a\0", "a"], "object"),
        ([True, 1], "object"),
        ([1, 1 << 63], "object"),
        ([1.5, 10**400], "object"),
        ([1, None], "object"),
        ([[1, 2], [3, 4]], "object"),
    ],
)
def test_a_column_of_a_table_has_the_type_of_its_values(values, dtype):
    column = typed(values)
    assert column.dtype == np.dtype(dtype) and column.tolist() == values


def by_full_sort(scores, samples, n, per_sample):
    taken, of = [], {}
    for row in np.lexsort((np.arange(len(scores)), -scores)):
        of[samples[row]] = of.get(samples[row], 0) + 1
        if of[samples[row]] <= per_sample:
            taken.append(row)
    return taken[:n]


def samples_of(stored):
    counts = np.concatenate([np.diff(plan.row_offsets) for _, plan in stored.plans])
    return np.repeat(np.arange(len(counts)), counts)


@pytest.mark.parametrize(
    ("n", "per_sample", "rows_at_once"), [(1, 1, 31), (9, 1, 1 << 14), (30, 2, 31), (999, 999, 31)]
)
def test_the_top_rows_are_those_of_a_full_sort(tmp_path, monkeypatch, n, per_sample, rows_at_once):
    """The values are small integers, so that many scores are equal."""
    monkeypatch.setattr("gleaner_reader.run.questions._ROWS_AT_ONCE", rows_at_once)
    stored = store_reductions(tmp_path, ("project",), dense=True, count=20)
    run, direction = gleaner_reader.open(stored.folder), np.array([1, 0, 0, 2, 0, 0, 0, -1])
    scores = stored.of(stored.dense, 2) @ direction
    expected = by_full_sort(scores, samples_of(stored), n, per_sample)
    top = run.top(2, direction, n, site="resid_post", per_sample=per_sample)
    assert top.rows.tolist() == expected and top.scores.tolist() == scores[expected].tolist()
    column = stored.of(stored.values["probe"], 2)[:, 1]
    found = run.top(2, ("probe", 1), n, per_sample=per_sample)
    assert found.rows.tolist() == by_full_sort(column, samples_of(stored), n, per_sample)
    # Interrupted at each shard, it goes on with the next one.
    read = type(run.first).rows
    for shard in (0, 3, 5):
        state = {}

        def broken(*arguments, limit=run.shards[shard]):
            if arguments[0] is limit:
                raise KeyboardInterrupt
            return read(*arguments)

        with monkeypatch.context() as patched:
            patched.setattr(type(run.first), "rows", broken)
            with pytest.raises(KeyboardInterrupt):
                run.top(2, direction, n, site="resid_post", per_sample=per_sample, state=state)
        state = json.loads(json.dumps(state))
        assert state.get("shard", 0) == shard
        again = run.top(2, direction, n, site="resid_post", per_sample=per_sample, state=state)
        assert again.rows.tolist() == expected and state == top.state


def test_the_memory_of_top_does_not_grow_with_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr("gleaner_reader.run.questions._ROWS_AT_ONCE", 256)
    run = gleaner_reader.open(store_run(tmp_path, d_model=256, count=400, layers=(0,)).folder)
    assert run.num_rows * 512 > 8 * MIB
    with at_most(3 * MIB):
        run.top(0, np.ones(256), 20)


def test_a_question_that_the_run_cannot_answer_is_refused(stored, run):
    state = run.top(0, ("probe", 1), 3).state
    for ask, says in (
        (lambda: run.top(0, ("probe", 3)), "there is no column 3 in probe; it has 3"),
        (lambda: run.top(0, ("lens", 0)), "site is 'lens'; .* has scope_ids"),
        (lambda: run.top(1, ("probe", 0)), "layer is 1; .* has layers 0, 2"),
        (lambda: run.top(0, np.ones(4), site="probe"), r"what is \(4,\); a direction in probe is 3 finite numbers"),
        (lambda: run.top(0, [1, 2, np.nan], site="probe"), "a direction in probe is 3 finite numbers"),
        (lambda: run.top(0, ("probe", 1), 0), "n is 0 and per_sample 1"),
        (lambda: run.top(0, ("probe", 1), 4, state=state), "the state is of another question"),
        (lambda: run.feature(0, 32), "there is no feature 32 of scope; it has 32"),
        (lambda: run.feature(0, 1, name="probe"), "name is 'probe'; .* stores the features scope"),
    ):
        with pytest.raises(ValueError, match=says):
            ask()


def test_rows_without_a_finite_score_are_left_out(tmp_path):
    stored = store_run(tmp_path, dtype="fp32", shards=1, streams=(0,))
    path = tmp_path / "tpu_0/shard_0001.safetensors"
    run = gleaner_reader.open(stored.folder)
    data, begin = bytearray(path.read_bytes()), run.first.tensors["resid_post.0"].begin
    for row, value in enumerate((np.nan, np.inf, -np.inf)):
        data[begin + 64 * row : begin + 64 * row + 4] = np.float32(value).tobytes()
    path.write_bytes(data)
    top = gleaner_reader.open(stored.folder).top(0, np.eye(16)[0], run.num_rows, per_sample=99)
    assert sorted(top.rows.tolist()) == list(range(3, run.num_rows))


@pytest.mark.parametrize("rows_at_once", [31, 1 << 14])
@pytest.mark.parametrize("file_format", ["safetensors", "safetensors.zst"])
def test_features_equal_those_of_the_stored_values(tmp_path, monkeypatch, file_format, rows_at_once):
    monkeypatch.setattr("gleaner_reader.run.questions._ROWS_AT_ONCE", rows_at_once)
    stored = store_reductions(tmp_path, ("features",), file_format)
    run, ids, values = (
        gleaner_reader.open(stored.folder),
        *(stored.of(stored.values[n], 2) for n in ("scope_ids", "scope")),
    )
    streams = np.concatenate([np.full(plan.rows, stream) for stream, plan in stored.plans])
    found = run.features(2, range(32), n=6)
    for number, feature in found.items():
        rows, columns = np.nonzero(ids == number)
        of_rows = values[rows, columns].astype(np.float32)
        assert (feature.active, feature.density) == (len(rows), len(rows) / run.num_rows)
        assert feature.by_stream == {stream: int((streams[rows] == stream).sum()) for stream in (0, 7)}
        assert feature.max == of_rows.max() and feature.at_least
        bins = np.clip(np.floor(2 * np.log2(of_rows)) + 32, 0, 63).astype(int)
        assert feature.histogram.tolist() == np.bincount(bins, minlength=64).tolist()
        scores = np.zeros(run.num_rows)
        scores[rows] = of_rows
        best = [row for row in by_full_sort(scores, samples_of(stored), 6, 1) if scores[row]]
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
                count += len(rows)
                total += rows.sum(0)
                squares += (rows**2).sum(0)
    return count, total / count, squares / count - (total / count) ** 2


@pytest.mark.parametrize("piece_bytes", [70, 1 << 25])
@pytest.mark.parametrize("file_format", ["safetensors", "safetensors.zst"])
def test_moments_are_those_of_the_rows_by_any_kept_field(tmp_path, monkeypatch, file_format, piece_bytes):
    monkeypatch.setattr("gleaner_reader.run.questions._PIECE_BYTES", piece_bytes)
    stored = store_reductions(tmp_path, ("moments",), file_format, tokens=slice(1, 9, 2))
    run = gleaner_reader.open(stored.folder)
    for given, of in (
        ({}, lambda stream, sample: True),
        ({"streams": [7]}, lambda stream, sample: stream == 7),
        ({"by": "text"}, lambda stream, sample: True),
        ({"by": "n"}, lambda stream, sample: sample.index == 41),
    ):
        found = run.moments(2, **given)
        moments = found[{"text": "é", "n": 41}.get(given.get("by"))]
        assert len(found) == (
            1 if given.get("by") != "n" else len({s.index for _, p in stored.plans for s in p.samples})
        )
        count, mean, var = sums_of(stored, 2, of)
        assert moments.count == count and moments.mean.dtype == np.float64
        assert moments.mean.tolist() == mean.tolist() and moments.var.tolist() == var.tolist()
    expected = sums_of(stored, 0, lambda _, s: s.index == 41)[1] - sums_of(stored, 0, lambda _, s: s.index == 5)[1]
    assert run.difference_of_means(0, "n", 41, 5).tolist() == expected.tolist()


def test_samples_are_added_one_after_another_and_in_fp64():
    """In another order, or in pairs, the ones beside 2^53 would not vanish one by one."""
    sums, totals = np.array([[2.0**53], [1], [1], [1], [-(2.0**53)], [1]], np.float32), {}
    add_samples(totals, ["a"] * 6, np.ones(6, int), sums, sums)
    assert [totals["a"][0], totals["a"][1].tolist()] == [6, [1.0]]
    add_samples(totals, ["b", "a"], np.array([2, 3]), sums[1:3], sums[1:3])
    assert [(count, total[0]) for count, total, _ in totals.values()] == [(9, 2.0), (2, 1.0)]


def test_moments_that_the_run_cannot_give_are_refused(tmp_path, monkeypatch):
    run = gleaner_reader.open(store_reductions(tmp_path / "a", ("moments",)).folder)
    other = gleaner_reader.open(store_run(tmp_path / "b").folder)
    monkeypatch.setattr("gleaner_reader.run.questions._MAX_GROUPS", 60)
    for ask, says in (
        (lambda: other.moments(0), "site is None and layer 0; .* has moments of no site"),
        (lambda: run.moments(1), "layer 1; .* has moments of resid_post.0, resid_post.2"),
        (lambda: run.moments(0, "q"), "site is 'q' and layer 0"),
        (lambda: run.moments(0, by="label"), "there is no field 'label' in .*; it keeps n, text"),
        (lambda: run.moments(0, by="n"), "n has more than 60 values"),
        (lambda: run.moments(0, streams=[0, 3]), "there is no stream 3"),
        (lambda: run.difference_of_means(0, "text", "é", "e"), "text is 'e' in no sample of .*; it is 'é'"),
    ):
        with pytest.raises(ValueError, match=says):
            ask()
    run.shard_index(0).kept[0]["text"] = [1]
    with pytest.raises(ValueError, match="text is a list or an object in some records"):
        run.moments(0, by="text")

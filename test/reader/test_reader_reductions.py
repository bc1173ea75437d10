"""Runs of reductions: features, projections and moments that were computed on the device."""

import json
import os
from dataclasses import dataclass, field, replace

import ml_dtypes
import numpy as np
import pytest
from tokenizers import Tokenizer, decoders
from tokenizers.models import BPE, WordLevel

import gleaner_reader
from gleaner_reader import ShardError
from gleaner_reader.export import to_npy
from gleaner_reader.format.files import open_folder
from gleaner_reader.run.answers import FOUND, best, texts_of
from gleaner_reader.run.questions import _typed
from gleaner_reader.run.verify import verify
from gleaner_worker.shards.plan import ShardPlan
from memory import MIB, at_most
from stored_run import MANIFEST, SAMPLES, a_plan, encode, store_run, summarise

D_MODEL, D_SAE, K, LAYERS = 8, 32, 4, (0, 2)
OUTPUTS = {
    "features": {"scope": {"kind": "features", "site": "resid_post", "d_sae": D_SAE, "k": K}},
    "project": {"probe": {"kind": "project", "site": "resid_post", "k": 3}},
    "moments": {"moments": {"kind": "moments", "sites": ["resid_post"], "layers": list(LAYERS)}},
}


@dataclass
class Reductions:
    """What was stored, of all shards in order."""

    folder: str
    plans: list[tuple[int, ShardPlan]] = field(default_factory=list)  # with the stream of each
    dense: list[np.ndarray] = field(default_factory=list)  # fp32 [layers, rows, d_model] of each shard
    values: dict[str, list[np.ndarray]] = field(default_factory=dict)  # "probe" -> [layers, rows, width]

    def of(self, parts: list[np.ndarray], layer: int) -> np.ndarray:
        return np.concatenate([part[LAYERS.index(layer)] for part in parts])

    def samples(self, layer: int) -> list[tuple[int, int, np.ndarray]]:
        """The stream, the number and the dense rows of each sample."""
        return [
            (stream, sample.index, rows)
            for (stream, plan), x in zip(self.plans, self.dense, strict=True)
            for sample, rows in zip(plan.samples, np.split(x[LAYERS.index(layer)], plan.row_offsets[1:-1]), strict=True)
        ]


def some_features(random: np.random.Generator, rows: int) -> dict[str, np.ndarray]:
    """The K strongest of D_SAE features with many ties, as the device returns them."""
    active = np.maximum(np.round(random.standard_normal((len(LAYERS), rows, D_SAE)) * 3 - 3), 0).astype(np.float32)
    ids = np.argsort(-active, axis=2, kind="stable")[..., :K].astype(np.int32)
    values, counts = np.take_along_axis(active, ids, 2), (active > 0).sum(2, keepdims=True).astype(np.int32)
    ids = np.where(values > 0, ids, -1).astype(np.int32)
    return {"scope": values.astype(ml_dtypes.bfloat16), "scope_ids": ids, "scope_active": counts}


def some_moments(plan: ShardPlan, dense: np.ndarray) -> dict[str, np.ndarray]:
    parts = np.split(dense, plan.row_offsets[1:-1], axis=1)
    return {
        f"resid_post.{layer}.{kind}": np.array([(part[n] ** power).sum(0) for part in parts], np.float32)
        for n, layer in enumerate(LAYERS)
        for kind, power in (("sum", 1), ("squares", 2))
    }


def store_reductions(
    folder, kinds=tuple(OUTPUTS), form="safetensors", dense=False, tokens="all", count=SAMPLES, cut=0.1
) -> Reductions:
    stored = Reductions(str(folder))
    for stream, number in ((stream, number) for stream in (0, 7) for number in (1, 2, 3)):
        plan = a_plan(number, (number - 1) * count, count, number == 3, tokens, True, stream)
        random = np.random.default_rng([stream, number])
        x = random.integers(-4, 5, (len(LAYERS), plan.rows, D_MODEL)).astype(np.float32)
        x /= 1 if "project" in kinds else 3  # the order of additions decides the sums of thirds
        rows = some_features(random, plan.rows) if "features" in kinds else {}
        rows |= {"probe": np.ascontiguousarray(x[..., :3])} if "project" in kinds else {}
        rows |= {"resid_post": x.astype(ml_dtypes.bfloat16)} if dense else {}
        outputs = json.dumps({name: each for kind in kinds for name, each in OUTPUTS[kind].items()})
        facts = {"more": {f"scope.{layer}": {"cut": cut} for layer in LAYERS}, "spec_hash": MANIFEST["spec_hash"]}
        sums = some_moments(plan, x) if "moments" in kinds else {}
        path = os.path.join(folder, f"tpu_{stream}", f"shard_{number:04d}.{form}")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(encode(plan, rows, {}, LAYERS, form, sums=sums, outputs=outputs, **facts).read())
        stored.plans.append((stream, plan))
        stored.dense.append(x)
        for name, each in rows.items():
            stored.values.setdefault(name, []).append(each)
    with open(os.path.join(folder, "manifest.json"), "w") as file:
        json.dump(MANIFEST | {"result": {"shards": 6}}, file)
    return stored


@pytest.fixture
def run(tmp_path):
    return gleaner_reader.open(store_reductions(tmp_path / "reductions").folder)


@pytest.mark.parametrize("tokens", ["all", slice(1, 9, 2)])
@pytest.mark.parametrize("form", ["safetensors", "safetensors.zst"])
def test_a_run_of_moments_alone_opens_and_verifies_and_says_that_it_has_no_rows(tmp_path, form, tokens):
    stored = store_reductions(tmp_path / "run", ("moments",), form, tokens=tokens)
    digest, run = summarise(stored.folder), gleaner_reader.open(stored.folder)
    assert (run.sites, run.layers, run.widths, run.dtypes) == ((), (), {}, {})
    assert run.num_rows == sum(plan.rows for _, plan in stored.plans)
    assert run.first.moments == {("resid_post", layer): D_MODEL for layer in LAYERS}
    assert run.sample(7, 41).activations == {} and run.sample(7, 41).kept == {"n": 41, "text": "é"}
    for ask in (lambda: run.d_model, lambda: run.dtype, lambda: run.batches(0), lambda: to_npy(run, "npy", 0)):
        with pytest.raises(ValueError, match="stores moments and no rows of a site; run.moments"):
            ask()
    found = verify(open_folder(stored.folder))
    assert found.problems == () and found.digest == digest
    if form == "safetensors":
        last = run.streams[7][-1]  # of another attempt than metadata.json, so its own checksums count
        with open(last.url, "r+b") as file:
            file.seek(last.tensors["resid_post.2.squares"].begin)
            file.write(b"\1")
        assert any("shard_0003" in problem for problem in verify(open_folder(stored.folder)).problems)


def words(numbers):
    return " ".join(f"w{number}" for number in numbers)


@pytest.mark.parametrize("tokens", ["all", slice(1, 9, 2), "mean", "pkl"])
def test_rows_know_their_sample_and_the_text_around_them(tmp_path, tokens):
    tokenizer = Tokenizer(WordLevel({f"w{number}": number for number in range(1000)}, "w0"))
    form = ("pkl.gz", "fp32", "all") if tokens == "pkl" else ("safetensors", "bf16", tokens)
    run = gleaner_reader.open(store_run(tmp_path / "run", *form[:2], tokens=form[2], keep=True).folder)
    ids = np.random.default_rng(0).permutation(run.num_rows)[:100]
    rows = run.rows(ids, context=3, tokenizer=tokenizer)
    for row, x in zip(rows, run.layer(0)[ids], strict=True):
        sample, p = run.sample(row.stream, row.sample, layers=[0]), row.position
        place = 0 if tokens == "mean" else p if sample.positions is None else sample.positions.tolist().index(p)
        assert row.kept == {"n": row.sample, "text": "é"} and (sample.activations["resid_post.0"][place] == x).all()
        if tokens == "pkl":
            assert (row.token_id, row.text, row.before) == (None, None, None)
        elif tokens == "mean":
            assert (p, row.token_id, row.token, row.after) == (None, None, None, None)
            assert row.text == words(sample.token_ids)
        else:
            parts = [sample.token_ids[slice(*each)] for each in ((max(0, p - 3), p), (p, p + 1), (p + 1, p + 4))]
            spaces = " " * (p > 3), " " * (p > 0), " "  # to the token before
            texts = [len(part) and space + words(part) or "" for space, part in zip(spaces, parts, strict=True)]
            assert [row.before, row.token, row.after, row.token_id] == [*texts, sample.token_ids[p]]
            assert row.text == "".join(texts)


def metaspace():
    """A tokenizer such as Llama 2's: a token has the space before it, a decoder strips the first one of a text, and
    other characters are tokens of bytes."""
    vocabulary = {f"▁w{number}" if number % 3 else f"w{number}": number for number in range(1000)}
    vocabulary |= {"▁": 2000} | {f"<0x{byte:02X}>": 1000 + byte for byte in range(256)}
    tokenizer = Tokenizer(BPE(vocabulary, [], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer


def test_a_token_has_its_spaces_and_a_cut_character_its_bytes():
    decode = metaspace().decode
    tokens = [1, 2, 3, *(1000 + byte for byte in "🦜".encode()), 4, 5]
    seen = [texts_of(tokens, position, 9, decode) for position in range(len(tokens))]
    assert [token for token, *_ in seen] == ["w1", " w2", "w3", *"����", " w4", " w5"]
    assert {text for _, text, *_ in seen} == {"w1 w2w3🦜 w4 w5"}
    assert seen[2][2:] == ["w1 w2", "🦜 w4 w5"] and seen[7][2:] == ["w1 w2w3🦜", " w5"]
    assert [texts_of(tokens, position, 0, decode)[0] for position in range(9)] == [token for token, *_ in seen]
    assert texts_of([1, 2000, 3], 1, 1, decode) == [" ", "w1 w3", "w1", "w3"]
    assert texts_of(tokens, 8, 1, decode) == [" w5", " w4 w5", " w4", ""]


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
    counts, taken, of = [len(rows) for _, _, rows in stored.samples(2)], [], {}
    samples = np.repeat(np.arange(len(counts)), counts)
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
    found = run.top(2, ("probe", 1), n, per_sample=per_sample).rows
    assert found.tolist() == by_full_sort(column, stored, n, per_sample)
    scores = stored.of(stored.dense, 2) @ direction
    expected = by_full_sort(scores, stored, n, per_sample)
    options = {"site": "resid_post", "per_sample": per_sample}
    for shard in (0, 3, 5):
        state = {}
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(run.shards[shard], "rows", interrupt)
            run.top(2, direction, n, **options, state=state)
        assert bool(state.get("rows")) == bool(shard)
        done = [state.get("rows", 0)]
        more = {"state": json.loads(json.dumps(state)), "progress": lambda rows, total, done=done: done.append(rows)}
        top = run.top(2, direction, n, **options, **more)
        assert top.rows.tolist() == expected and top.scores.tolist() == scores[expected].tolist()
        assert top.origins == run.rows(expected) and done == sorted(set(done)) and done[-1] == run.num_rows


def test_the_memory_of_top_does_not_grow_with_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr("gleaner_reader.run.pieces._ROWS_AT_ONCE", 256)
    run = gleaner_reader.open(store_run(tmp_path, d_model=256, count=400, layers=(0,)).folder)
    assert run.num_rows * 512 > 8 * MIB
    with at_most(3 * MIB):
        run.top(0, np.ones(256), 20)


def test_scores_that_are_not_finite_are_left_out():
    scores = (np.nan, 1, np.inf, 2, -np.inf)
    assert best(np.array([(0, 0, n, n, score) for n, score in enumerate(scores)], FOUND), 9, 9)["row"].tolist() == [
        3,
        1,
    ]


@pytest.mark.parametrize(("form", "at_once"), [("safetensors", 31), ("safetensors.zst", 31), ("safetensors", 1 << 14)])
def test_features_equal_those_of_the_stored_values(tmp_path, monkeypatch, form, at_once):
    monkeypatch.setattr("gleaner_reader.run.pieces._ROWS_AT_ONCE", at_once)
    stored = store_reductions(tmp_path, ("features",), form)
    run = gleaner_reader.open(stored.folder)
    ids, values = (stored.of(stored.values[name], 2) for name in ("scope_ids", "scope"))
    streams = np.concatenate([np.full(plan.rows, stream) for stream, plan in stored.plans])
    found, scores_of = run.features(2, range(32), n=6), {}
    assert run.outputs == OUTPUTS["features"] and run.sites == ("scope_ids", "scope_active", "scope")
    for number, feature in found.items():
        rows, columns = np.nonzero(ids == number)
        scores = scores_of[number] = np.zeros(run.num_rows)
        scores[rows] = of_rows = values[rows, columns].astype(np.float32)
        assert (feature.active, feature.density) == (len(rows), len(rows) / run.num_rows)
        assert feature.by_stream == {stream: int((streams[rows] == stream).sum()) for stream in (0, 7)}
        shares = {stream: count / (streams == stream).sum() for stream, count in feature.by_stream.items()}
        assert feature.density_by_stream == shares
        assert feature.max == of_rows.max() and feature.at_least
        bins = np.clip(np.floor(2 * np.log2(of_rows)) + 32, 0, 63).astype(int)
        assert feature.histogram.tolist() == np.bincount(bins, minlength=64).tolist()
        top = [row for row in by_full_sort(scores, stored, 6, 1) if scores[row]]
        assert feature.top.rows.tolist() == top and feature.top.scores.tolist() == scores[top].tolist()
    assert str(run.feature(2, 5, n=6)) == str(found[5])
    tokenizer = Tokenizer(WordLevel({f"w{number}": number for number in range(1000)}, "w0"))
    top = run.top(2, np.int64(5), 9, site="scope", per_sample=2, context=3, tokenizer=tokenizer)
    assert top.origins == run.rows(top.rows, context=3, tokenizer=tokenizer) and top.origins[0].token.strip()[0] == "w"
    assert top.rows.tolist() == [row for row in by_full_sort(scores_of[5], stored, 9, 2) if scores_of[5][row]]
    assert not gleaner_reader.open(store_reductions(tmp_path / "b", cut=0).folder).feature(2, 5).at_least


def test_features_go_on_from_the_state_of_an_interrupted_call(tmp_path, monkeypatch):
    monkeypatch.setattr("gleaner_reader.run.pieces._ROWS_AT_ONCE", 31)
    run, ids = gleaner_reader.open(store_reductions(tmp_path, ("features",)).folder), [5, 0, 31]
    whole, seen = run.features(2, ids, n=3), []
    for stop in (1, 4):
        state: dict = {}
        with pytest.raises(KeyboardInterrupt):
            run.features(2, ids, n=3, state=state, progress=lambda done, _, n=stop: done < 31 * n or interrupt())
        state = json.loads(json.dumps(state))
        with pytest.raises(ValueError, match="the state is of another question"):
            run.features(2, ids, n=4, state=dict(state))
        again = run.features(2, ids, n=3, state=state, progress=lambda done, _: seen.append(done))
        assert str(again) == str(whole) and again[31].histogram.tolist() == whole[31].histogram.tolist()
        assert seen.pop(0) > 31 * stop and seen[-1] == run.num_rows
        seen.clear()


def sums_of(stored, layer, of=lambda stream, sample: True):
    """The count, mean and variance by fp64 sums of the samples, one addition after another."""
    parts = [rows for stream, sample, rows in stored.samples(layer) if of(stream, sample)]
    count, powers = sum(map(len, parts)), (1, 2)
    mean, square = (sum(((part**power).sum(0) for part in parts), np.zeros(D_MODEL)) / count for power in powers)
    return count, mean, square - mean**2


@pytest.mark.parametrize(("form", "piece_bytes"), [("safetensors", 70), ("safetensors.zst", 70), ("safetensors", 9999)])
def test_moments_are_those_of_the_rows_by_any_kept_field(tmp_path, monkeypatch, form, piece_bytes):
    monkeypatch.setattr("gleaner_reader.run.questions._PIECE_BYTES", piece_bytes)
    stored = store_reductions(tmp_path, ("moments",), form, tokens=slice(1, 9, 2))
    run = gleaner_reader.open(stored.folder)
    groups = len({sample for _, sample, _ in stored.samples(2)})
    for given, count, key, of in (
        ({}, 1, None, lambda stream, sample: True),
        ({"streams": [7]}, 1, None, lambda stream, sample: stream == 7),
        ({"by": "text"}, 1, "é", lambda stream, sample: True),
        ({"by": "n"}, groups, 41, lambda stream, sample: sample == 41),
    ):
        found, expected = run.moments(2, **given), sums_of(stored, 2, of)
        assert len(found) == count and found[key].count == expected[0]
        assert found[key].mean.tolist() == expected[1].tolist() and found[key].var.tolist() == expected[2].tolist()
    expected = sums_of(stored, 0, lambda _, s: s == 41)[1] - sums_of(stored, 0, lambda _, s: s == 5)[1]
    assert run.difference_of_means(0, "n", 41, 5).tolist() == expected.tolist()


def stating(name, value):
    def ask(run):
        tensors, text = run.first.header.tensors, value if isinstance(value, str) else json.dumps(value)
        run.first.header.metadata[name] = text
        tensors |= {name: replace(tensors[name], **value)} if name in tensors else {}
        run.feature(0, 1), run.moments(0)

    return ask


SAE = OUTPUTS["features"]["scope"]
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
    *((stating("outputs", text), "the outputs in its header are damaged") for text in ("[1]", "[" * 100_000)),
    *((stating("outputs", {"scope": each}), "features of no SAE") for each in (1, {"kind": ["features"]})),
    *((stating("outputs", {"scope": SAE | {"d_sae": d}}), "not features of an SAE") for d in (True, 1 << 25, None)),
    (stating("outputs", {"scope": SAE | {"site": "../q"}}), "scope and scope_ids are not features of an SAE"),
    (stating("outputs", {"probe": SAE}), "probe and probe_ids are not features of an SAE"),
    *(
        (stating("resid_post.0.sum", {"shape": shape}), "are not F32")
        for shape in ((), (34,), (34, 0), (34, 8, 1), (1, 8))
    ),
    (stating("resid_post.2.squares", {"dtype": "I32"}), "its moments of resid_post.2 are not F32"),
]


@pytest.mark.parametrize(("ask", "says"), REFUSED)
def test_a_question_that_the_run_cannot_answer_is_refused(run, monkeypatch, ask, says):
    monkeypatch.setattr("gleaner_reader.run.questions._MAX_GROUPS", 60)
    if says.startswith("list"):
        run.shard_index(0).kept[0]["list"] = [1]
    with pytest.raises((ValueError, IndexError, ShardError), match=says):
        ask(run)

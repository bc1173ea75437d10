"""Shuffled batches: every row once, mixed, the same from the same seed, and exact after an interruption."""

import hashlib
import itertools
import json
import threading
from collections import Counter

import numpy as np
import pytest

import gleaner_reader
from gleaner_reader import ShardError
from gleaner_reader.format.files import LocalFile
from gleaner_reader.run.pickle_shard import PickleShard
from gleaner_reader.run.tensor_shard import SafetensorsShard
from gleaner_reader.shuffle import groups, shuffle
from shuffled_runs import ALL, as_rows, as_set
from stored_run import store_run
from waiting import until

pytestmark = pytest.mark.slow


@pytest.mark.sample(1)
@pytest.mark.parametrize("options", ALL, ids=lambda options: "-".join(options.values()))
@pytest.mark.parametrize("buffer_rows", [64, 200, None])
def test_an_epoch_gives_every_row_once(runs, options, buffer_rows):
    run, stored = runs(**options)
    expected = stored.rows("resid_post.2")
    batches = as_rows(run.batches(2, batch_rows=64, buffer_rows=buffer_rows, drop_last=False))
    assert [len(batch) for batch in batches] == [64] * (len(expected) // 64) + [len(expected) % 64]
    assert sorted(as_set(expected)) == sorted(row.tobytes() for batch in batches for row in batch)
    assert len(as_rows(run.batches(2, batch_rows=64, buffer_rows=buffer_rows))) == len(expected) // 64
    again = as_rows(run.batches(2, batch_rows=64, buffer_rows=buffer_rows, drop_last=False))
    assert all(np.array_equal(first, second) for first, second in zip(batches, again, strict=True))
    other = as_rows(run.batches(2, batch_rows=64, buffer_rows=buffer_rows, drop_last=False, seed=1))
    assert not np.array_equal(batches[0], other[0])


@pytest.mark.parametrize("options", [ALL[0], {"dtype": "int8"}], ids=str)
def test_several_layers_come_in_one_batch_with_the_rows_of_each_token_together(runs, options):
    run, stored = runs(**options)
    sizes = {"batch_rows": 64, "buffer_rows": 200, "drop_last": False}
    both = run.batches([2, 0], **sizes)
    for together, of_2, of_0 in zip(both, run.batches(2, **sizes), run.batches(0, **sizes), strict=True):
        assert together.shape == (len(of_2), 2, run.d_model) and together.dtype == of_2.dtype
        assert np.array_equal(together[:, 0], of_2) and np.array_equal(together[:, 1], of_0)
    assert "resid_post.2, resid_post.0 of" in repr(both)
    begun = run.batches([2, 0], **sizes)
    next(begun)
    resumed = run.batches([2, 0], state=json.loads(json.dumps(begun.state())), **sizes)
    assert np.array_equal(next(resumed), next(begun))
    with pytest.raises(ValueError, match=r"layer was \[2, 0\], now 2"):
        run.batches(2, state=both.state(), **sizes)
    norms = [np.linalg.norm(stored.rows(f"resid_post.{layer}"), axis=1) for layer in (2, 0)]
    kept = np.logical_and(*(each <= 1.2 * np.median(each) for each in norms)).sum()
    few = run.batches([2, 0], batch_rows=1, buffer_rows=run.num_rows, max_norm_multiple=1.2)
    assert sum(len(batch) for batch in few) == kept < run.num_rows
    with pytest.raises(ValueError, match="layer is an empty list"):
        run.batches([])
    with pytest.raises(ValueError, match="layer is 7"):
        run.batches([2, 7])


@pytest.mark.parametrize("options", ALL, ids=lambda options: "-".join(options.values()))
def test_the_ids_of_a_batch_are_the_numbers_of_its_rows(runs, options):
    run, _ = runs(**options)
    for layers, more in (2, {}), ([2, 0], {"exclude_positions": [0]}), (0, {"share": (1, 3), "epochs": 2, "seed": 4}):
        plain = {"batch_rows": 64, "buffer_rows": 200, "drop_last": False, **more}
        given = list(run.batches(layers, **plain, with_index=True))
        for (rows, ids), alone in zip(given, run.batches(layers, **plain), strict=True):
            stored = [run.layer(each)[ids] for each in np.atleast_1d(layers).tolist()]
            assert np.array_equal(rows, stored[0] if layers in (0, 2) else np.stack(stored, 1))
            assert np.array_equal(rows, alone)
        every = np.concatenate([ids for _, ids in given])
        assert every.dtype == np.int64 and len(np.unique(every)) * more.get("epochs", 1) == len(every)
        if not more:
            assert sorted(every) == list(range(run.num_rows))
            (first, _), rest = given[:2], run.batches(2, **plain, with_index=True)
            assert np.array_equal(next(rest)[1], first[1])
            resumed = run.batches(2, **plain, with_index=True, state=json.loads(json.dumps(rest.state())))
            assert np.array_equal(next(resumed)[1], given[1][1])


def test_each_epoch_has_its_own_order(runs):
    run, stored = runs(**ALL[0])
    one = as_rows(run.batches(0, batch_rows=50, buffer_rows=200, drop_last=False))
    three = as_rows(run.batches(0, batch_rows=50, buffer_rows=200, drop_last=False, epochs=3))
    assert len(three) == 3 * len(one)
    assert np.array_equal(three[0], one[0]) and not np.array_equal(three[len(one)], one[0])
    # The rows that are mixed with each other differ too.
    first, second = (as_set(np.concatenate(three[begin : begin + 4])) for begin in (0, len(one)))
    assert len(first & second) < 100
    for epoch in range(3):
        assert as_set(np.concatenate(three[epoch * len(one) : (epoch + 1) * len(one)])) == as_set(
            stored.rows("resid_post.0")
        )
    forever = itertools.islice(
        run.batches(0, batch_rows=50, buffer_rows=200, drop_last=False, epochs=None), 3 * len(one)
    )
    assert all(np.array_equal(first, second) for first, second in zip(forever, map(np.asarray, three), strict=False))


def test_a_second_loop_is_the_next_epoch_and_a_loop_that_was_left_goes_on(runs):
    run, _ = runs(**ALL[0])
    options = {"batch_rows": 50, "buffer_rows": 200, "drop_last": False}
    three = as_rows(run.batches(0, epochs=3, **options))
    count = len(three) // 3
    batches = run.batches(0, **options)
    first = as_rows(batches)
    assert next(batches, None) is None  # only a new loop begins the next epoch
    second = as_rows(itertools.islice(batches, 2)) + as_rows(batches)
    assert all(np.array_equal(one, other) for one, other in zip(first + second, three, strict=False))
    assert (len(first), len(second)) == (count, count)
    assert np.array_equal(next(iter(batches)), three[2 * count])
    state = json.loads(json.dumps(batches.state()))
    resumed = run.batches(0, state=state, **options)
    assert len(as_rows(resumed)) == count - 1 and len(as_rows(resumed)) == count


def test_batches_have_no_length_and_say_what_a_loader_needs(runs):
    run, _ = runs(**ALL[0])
    batches = run.batches(0, batch_rows=50)
    with pytest.raises(TypeError, match="have no length: .* pass as_='torch'"):
        len(batches)
    assert batches and len(list(batches)) > 10


def test_batches_and_samples_have_a_short_repr(runs):
    run, stored = runs(**ALL[0], d_model=64)
    stream, index = next(iter(stored.samples))
    for value in (run, run.layer(0), run.batches(0), run.sample(stream, index), run.shard_index(0), run.layer(0)):
        assert len(repr(value).replace(run.url, "")) < 200 and "\n" not in repr(value)


def test_rows_are_mixed_over_the_whole_run_with_few_rows_in_memory(runs):
    run, stored = runs(count=120, shards=4)
    expected = stored.rows("resid_post.0")
    place = {row.tobytes(): number for number, row in enumerate(expected)}
    batches = as_rows(run.batches(0, batch_rows=100, buffer_rows=len(expected) // 8))
    quarter = len(expected) / 4
    for batch in batches:
        places = np.array([place[row.tobytes()] for row in batch])
        # Rows from every quarter of the run, and few neighbours.
        assert np.bincount((places // quarter).astype(int), minlength=4).min() >= 5
        assert np.mean(np.diff(places) == 1) < 0.1


@pytest.mark.sample(1)
@pytest.mark.parametrize("options", ALL, ids=lambda options: "-".join(options.values()))
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"buffer_rows": 64},
        {"buffer_rows": 70, "epochs": 3, "drop_last": False},
        {"buffer_rows": 130, "epochs": 2, "exclude_positions": [0], "max_norm_multiple": 1.2},
    ],
    ids=str,
)
def test_batches_after_a_state_equal_the_batches_of_an_uninterrupted_iteration(runs, options, more):
    run, _ = runs(**options)
    more = {"batch_rows": 64, "seed": 5, "dtype": "float32"} | more
    expected = as_rows(run.batches(0, **more))
    iterator = run.batches(0, **more)
    for done in range(len(expected) + 1):
        state = json.loads(json.dumps(iterator.state()))
        assert len(json.dumps(state)) < 1000
        if done in (1, len(expected) // 2, len(expected) - 1, len(expected)):
            rest = as_rows(gleaner_reader.open(run.url).batches(0, state=state, **more))
            assert len(rest) == len(expected) - done
            assert all(np.array_equal(first, second) for first, second in zip(rest, expected[done:], strict=True))
        next(iterator, None)


LONG = {"batch_rows": 64, "buffer_rows": 1024, "seed": 5}  # with small chunks, two groups hold the run
# Of a release whose groups had equal sizes: its state after the first batch, and the digest of the batches after it.
EQUAL_GROUPS = {"layer": 0, "site": "resid_post", **LONG, "drop_last": True, "exclude_ids": [], "exclude_positions": []}
EQUAL_GROUPS |= {"max_norm_multiple": None, "share": [0, 1], "shards": "42763d1411090ffd"}
EARLIER = {"first_epoch": 0, "epoch": 0, "group": 0, "row": 64, "of": EQUAL_GROUPS}
EARLIER_SHA256 = "45fd19a5af6ace5f"


def test_the_first_epoch_begins_with_few_rows_from_everywhere_and_resumes_in_its_order(runs, monkeypatch):
    monkeypatch.setattr(shuffle, "_CHUNK_BYTES", 64)  # two rows
    run, stored = runs(**ALL[0])
    read = []
    read_group = shuffle.read_group
    monkeypatch.setattr(groups, "read_group", lambda *of: read.append(of[1]) or read_group(*of))
    iterator = run.batches(0, epochs=2, **LONG)
    expected, states = [], []
    for batch in iterator:
        states.append(json.loads(json.dumps(iterator.state())))
        expected.append(batch)
    sizes = [int((chunks[:, 2] - chunks[:, 1]).sum()) for chunks in read]
    assert sizes == pytest.approx([128, 256, 512, 1024, 100, 1024, 996], abs=4) and sum(sizes) == 2 * run.num_rows
    assert len(read[0]) == 64 and set(read[0][:, 0]) == set(range(len(run.shards)))
    for done in (1, 2, 3, len(expected) // 2, len(expected) - 1):
        rest = list(run.batches(0, epochs=2, state=states[done - 1], **LONG))
        assert np.array_equal(np.concatenate(rest), np.concatenate(expected[done:]))
    whole = next(run.batches(0, batch_rows=64, buffer_rows=run.num_rows))
    assert np.array_equal(whole, next(run.batches(0, batch_rows=64, buffer_rows=10 * run.num_rows)))


def test_an_iteration_that_an_earlier_release_saved_goes_on_in_its_order(runs, monkeypatch):
    monkeypatch.setattr(shuffle, "_CHUNK_BYTES", 64)
    run, _ = runs(**ALL[0])
    rest = as_rows(run.batches(0, state=EARLIER, **LONG))
    assert hashlib.sha256(np.concatenate(rest).tobytes()).hexdigest().startswith(EARLIER_SHA256)
    again = run.batches(0, state=EARLIER, **LONG)
    next(again)
    assert np.array_equal(
        np.concatenate(as_rows(run.batches(0, state=again.state(), **LONG))), np.concatenate(rest[1:])
    )
    with pytest.raises(ValueError, match="first_rows was None, now 128"):
        run.batches(0, state=EARLIER | {"of": EQUAL_GROUPS | {"first_rows": None}}, **LONG)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"seed": 1}, "seed was 0, now 1"),
        ({"batch_rows": 32}, "batch_rows was 64, now 32"),
        ({"layer": 2}, "layer was 0, now 2"),
        ({"masked": True}, "masked was None, now True"),
        ({"buffer_rows": 128, "exclude_ids": [7]}, "buffer_rows was .*, now 128; exclude_ids was .*, now .7"),
    ],
)
def test_a_state_of_batches_with_other_options_is_refused(runs, change, says):
    run, _ = runs(**ALL[0])
    state = run.batches(0, batch_rows=64).state()
    with pytest.raises(ValueError, match=says):
        run.batches(**({"layer": 0, "batch_rows": 64, "state": state} | change))
    other, _ = runs(count=20)
    with pytest.raises(ValueError, match="shards was"):
        other.batches(0, batch_rows=64, state=state)


@pytest.mark.parametrize(
    "state", [{"epoch": 0}, {"epoch": -1, "group": 0, "row": 0, "of": {}}, {"of": {}, "epoch": "0"}]
)
def test_a_malformed_state_is_refused(runs, state):
    run, _ = runs(**ALL[0])
    with pytest.raises(ValueError, match="Failed to resume"):
        run.batches(0, batch_rows=64, state=state)


def test_memory_is_bounded_by_the_buffer(runs, monkeypatch):
    run, stored = runs(count=200, d_model=64, shards=6)
    made = []
    empty_rows = shuffle.empty_rows
    monkeypatch.setattr(shuffle, "empty_rows", lambda *of: made.append(empty_rows(*of)) or made[-1])
    total = sum(len(batch) for batch in run.batches(0, batch_rows=32, buffer_rows=1000, drop_last=False))
    assert total == len(stored.rows("resid_post.0")) > 10_000
    assert [len(rows.stored) for rows in made] == [1000 + 1000 // 64] * 2


def test_the_next_rows_are_read_while_the_current_rows_are_used(runs, monkeypatch):
    run, _ = runs(count=100, shards=4)
    readers = set()
    read = LocalFile.read_into

    def noted(file, *of):
        readers.add(threading.current_thread().name.partition("_")[0])
        read(file, *of)

    _ = run.num_rows
    monkeypatch.setattr(LocalFile, "read_into", noted)
    batches = run.batches(0, batch_rows=32, buffer_rows=256)
    next(batches)
    until(lambda: batches._groups._next.group.done())
    assert readers == {"chunks"}
    batches.close()


def test_an_unreadable_shard_ends_the_iteration_with_its_name(tmp_path):
    stored = store_run(tmp_path)
    run = gleaner_reader.open(stored.folder)
    _ = run.num_rows
    path = tmp_path / "tpu_7/shard_0002.safetensors"
    path.write_bytes(path.read_bytes()[:-15_000])
    with pytest.raises(ShardError, match=f"{path} cannot be read: it ends at byte"):
        list(run.batches(0, batch_rows=16))


@pytest.mark.parametrize("options", ALL, ids=lambda options: "-".join(options.values()))
def test_a_filter_reads_the_index_of_a_shard_once_for_all_groups_and_epochs(runs, monkeypatch, options):
    _, stored = runs(**options)
    loaded = Counter()
    for kind in (PickleShard, SafetensorsShard):

        def noted(shard, load=kind._load_index):
            loaded[shard.url] += 1
            return load(shard)

        monkeypatch.setattr(kind, "_load_index", noted)
    run = gleaner_reader.open(stored.folder)
    assert len(list(run.batches(0, batch_rows=64, buffer_rows=200, exclude_positions=[0], epochs=2))) > 10
    assert set(loaded.values()) == {1} and len(loaded) == len(run.shards)


def test_batches_are_jax_arrays_on_request(runs):
    import jax.numpy as jnp

    run, stored = runs(**ALL[1])
    batch = next(run.batches(0, batch_rows=16, as_="jax", dtype="bfloat16"))
    assert isinstance(batch, jnp.ndarray) and batch.dtype == jnp.bfloat16 and batch.shape == (16, 16)


def test_a_single_shard_gives_batches(tmp_path):
    stored = store_run(tmp_path, streams=(0,), shards=1)
    shard = gleaner_reader.open(tmp_path / "tpu_0/shard_0001.safetensors")
    batches = as_rows(shard.batches(2, batch_rows=20, drop_last=False))
    assert as_set(np.concatenate(batches)) == as_set(stored.rows("resid_post.2"))

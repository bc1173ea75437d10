"""Batches in torch's DataLoader: each row once for any number of workers, and a new order in every loop."""

import os
import sys

import numpy as np
import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
for name in ("worker/support", "reader"):
    sys.path.insert(0, os.path.join(os.path.dirname(HERE), name))
import environment  # noqa: F401  where the packages are
import gleaner_reader
from stored_run import store_run

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader, IterableDataset

LIMIT_S = 600  # of a worker that hangs


@pytest.fixture(scope="module", params=["safetensors", "safetensors.zst", "pkl.gz"])
def stored(request, tmp_path_factory):
    return store_run(tmp_path_factory.mktemp("run"), request.param, "fp32", count=60)


def rows_of(loader):
    return np.concatenate([batch.numpy().reshape(-1, 16) for batch in loader])


def as_list(rows):
    return sorted(row.tobytes() for row in rows)


def a_loader(dataset, workers, **options):
    return DataLoader(dataset, batch_size=None, num_workers=workers, timeout=LIMIT_S if workers else 0, **options)


@pytest.mark.parametrize(("workers", "start"), [(0, None), (1, "fork"), (3, "fork"), (2, "spawn")])
def test_each_row_comes_once_and_every_loop_has_its_order(stored, workers, start):
    batches = gleaner_reader.open(stored.folder).batches(2, batch_rows=32, drop_last=False, as_="torch")
    loader = a_loader(batches, workers, multiprocessing_context=start)
    loops = [rows_of(loader) for _ in range(2 if start == "spawn" else 3)]
    for rows in loops:
        assert as_list(rows) == as_list(stored.rows("resid_post.2"))
    assert not np.array_equal(loops[0], loops[1]) and not np.array_equal(loops[-2], loops[-1])


def test_workers_that_stay_begin_a_whole_epoch_after_a_loop_that_was_left(stored):
    batches = gleaner_reader.open(stored.folder).batches(2, batch_rows=8, drop_last=False, as_="torch")
    loader = a_loader(batches, 2, persistent_workers=True)
    for _ in loader:
        break
    first, second = rows_of(loader), rows_of(loader)
    assert as_list(first) == as_list(second) == as_list(stored.rows("resid_post.2"))
    assert not np.array_equal(first, second)


def test_a_fork_after_the_first_batch_begins_a_whole_epoch(stored):
    batches = gleaner_reader.open(stored.folder).batches(2, batch_rows=8, drop_last=False, as_="torch", buffer_rows=64)
    next(batches)
    assert as_list(rows_of(a_loader(batches, 2))) == as_list(stored.rows("resid_post.2"))
    with pytest.raises(ValueError, match="only they know their places"):
        batches.state()


class Wrapped(IterableDataset):
    """A dataset of a person, which makes its batches in each worker."""

    def __init__(self, folder):
        self.folder = folder

    def __iter__(self):
        yield from gleaner_reader.open(self.folder).batches(2, batch_rows=32, drop_last=False, as_="torch")


def test_batches_of_a_dataset_that_makes_them_in_each_worker_come_once(stored):
    assert as_list(rows_of(a_loader(Wrapped(stored.folder), 3))) == as_list(stored.rows("resid_post.2"))


def test_a_layer_is_a_dataset_of_rows(stored):
    layer = gleaner_reader.open(stored.folder).layer(2, as_="torch")
    rows = rows_of(DataLoader(layer, batch_size=64, shuffle=True, num_workers=2, timeout=LIMIT_S))
    assert as_list(rows) == as_list(stored.rows("resid_post.2"))


def test_a_share_too_small_for_a_batch_is_named(stored):
    run = gleaner_reader.open(stored.folder)
    size = run.num_rows // 3
    with pytest.raises(ValueError, match="no batch of .* of share . of 5 .*fewer workers"):
        rows_of(a_loader(run.batches(2, batch_rows=size, as_="torch"), 5))

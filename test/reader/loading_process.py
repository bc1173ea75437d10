"""Loops of training code in forked processes: `python loading_process.py FOLDER`, a folder with two stored runs.

A fork needs a process without JAX. Each function of CASES returns the facts that a test compares, as JSON.
"""

import json
import os
import pickle
import sys
import threading

import a_torch
import gleaner_reader
from gleaner_reader.format import files
from gleaner_reader.format.files import LocalFile

FOLDER = sys.argv[1]


def a_run(name="plain"):
    return gleaner_reader.open(os.path.join(FOLDER, name))


def batches_of(name="plain", **options):
    return a_run(name).batches(2, **({"batch_rows": 8, "drop_last": False, "buffer_rows": 40} | options))


def texts(batches):
    """The rows in their order."""
    return [row.tobytes().hex() for batch in batches for row in batch]


def error_of(call):
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def loops_of_a_loader():
    found = {}
    for name, workers in (("plain", 1), ("plain", 3), ("pickled", 8)):
        batches = batches_of(name)
        found[f"{name} {workers}"] = [texts(a_torch.loop(batches, workers)[0]) for _ in range(2)]
    return found


def loops_of_workers_that_stay():
    left, *whole = a_torch.loop(batches_of(), 2, loops=3, take=1)
    return [len(left), *map(texts, whole)]


def a_dataset_of_a_person():
    class Wrapped(a_torch.IterableDataset):
        def __iter__(self):
            yield from batches_of()

    return texts(a_torch.loop(Wrapped(), 3)[0])


def pickled_for_the_workers():
    class Spawned(a_torch.IterableDataset):
        data = pickle.dumps(batches_of())

        def __iter__(self):
            return iter(pickle.loads(self.data))

    return texts(a_torch.loop(Spawned(), 3)[0])


def a_fork_while_the_next_rows_are_read():
    """The thread that prefetches holds the lock of its shard in the parent."""
    batches, read = batches_of("pickled"), LocalFile.read
    parent, reading, go_on = os.getpid(), threading.Event(), threading.Event()

    def slow(file, begin, end):
        if os.getpid() == parent and threading.current_thread() is not threading.main_thread():
            reading.set()
            go_on.wait()
        return read(file, begin, end)

    next(batches)
    prefetched = batches._groups._next
    prefetched[1].result()
    LocalFile.read = slow
    try:
        while batches._groups._next is prefetched:
            next(batches)
        reading.wait()
        loaded = texts(a_torch.loop(batches, 2)[0])
        alone = error_of(lambda: a_torch.in_processes([lambda: next(batches)]))
    finally:
        go_on.set()
        LocalFile.read = read
    return [loaded, alone, len(texts(batches)) > 0, error_of(batches.state)]


def a_fork_within_a_layer():
    arrays = iter(a_run().layer(2))
    next(arrays)
    return error_of(lambda: a_torch.in_processes([lambda: next(arrays)]))


def a_layer_in_workers():
    class Wrapped(a_torch.IterableDataset):
        def __iter__(self):
            return iter(a_run().layer(2))

    return [error_of(lambda: a_torch.loop(Wrapped(), 2)), len(a_torch.loop(Wrapped(), 1)[0])]


def named_shares():
    shares = [batches_of(share=(number, 3)) for number in range(3)]
    parts = a_torch.in_processes([lambda share=share: texts(share) for share in shares])
    next(shares[0])
    both = error_of(lambda: a_torch.in_processes([lambda: next(shares[0])]))
    return [[text for part in parts for text in part], both]


def shares_of_workers_of_two_machines():
    return [texts(a_torch.loop(batches_of(share=(number, 2)), 2)[0]) for number in range(2)]


def refusals():
    used, few = batches_of(), batches_of(batch_rows=300, buffer_rows=None, drop_last=True)
    a_torch.loop(used, 2)
    begun = batches_of()
    next(begun)
    resumed = batches_of(state=begun.state())
    (endless,) = a_torch.loop(batches_of("pickled", epochs=None), 8, take=1)
    return [
        error_of(used.state),
        error_of(lambda: a_torch.loop(few, 4)),
        error_of(lambda: a_torch.loop(resumed, 2)),
        len(endless),
        error_of(lambda: batches_of(share=(2, 2))),
    ]


def clients():
    """Whether a fork has its own client of Cloud Storage."""
    os.environ["STORAGE_EMULATOR_HOST"] = "http://127.0.0.1:9"
    own = files._client()
    (is_shared,) = a_torch.in_processes([lambda: files._client() is own])
    return [is_shared, files._client() is own]


CASES = [
    loops_of_a_loader,
    loops_of_workers_that_stay,
    a_dataset_of_a_person,
    pickled_for_the_workers,
    a_fork_while_the_next_rows_are_read,
    a_fork_within_a_layer,
    a_layer_in_workers,
    named_shares,
    shares_of_workers_of_two_machines,
    refusals,
    clients,
]

if __name__ == "__main__":
    a_torch.install()
    print(json.dumps({case.__name__: case() for case in CASES}))

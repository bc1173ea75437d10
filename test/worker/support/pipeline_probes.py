"""Probes of a running extraction: objects that are alive, and threads that are left."""

import gc
import threading
import weakref

import pytest

PREFIX = "activations/my-run/tpu_7/"


@pytest.fixture
def no_thread_is_left():
    def ours():
        return {thread for thread in threading.enumerate() if "process_request" not in thread.name}

    before = ours()
    yield
    assert ours() <= before


class Alive:
    """Counts the results of a function that are alive at the same time."""

    def __init__(self, monkeypatch, name, part=lambda made: made):
        from gleaner_worker.extract import extract as extract_module  # imports JAX, and fast tests need no JAX

        self._made, self.most, self.all = {}, 0, 0
        make = getattr(extract_module, name)

        def counting(*arguments):
            made = make(*arguments)
            self._made[self.all] = None
            weakref.finalize(part(made), self._made.pop, self.all)
            self.all += 1
            self.most = max(self.most, len(self._made))
            return made

        monkeypatch.setattr(extract_module, name, counting)

    def now(self):
        gc.collect()
        return len(self._made)

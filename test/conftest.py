"""Hooks for the tests of the worker and of the reader."""

import gc
import os
import re

import pytest


def pytest_configure(config):
    """Gives each process of the tests one core: the threads of XLA and their caches move less, which saves a seventh.

    Draws the same examples at each run, all of them in the tier long."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if hasattr(os, "sched_setaffinity"):  # macOS lacks it
        cores = sorted(os.sched_getaffinity(0))
        number = int(worker.removeprefix("gw")) if worker else os.getpid()
        os.sched_setaffinity(0, {cores[number % len(cores)]})
    if kept := os.environ.get("GLEANER_TEST_CACHE"):  # its tables of Unicode take seconds
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = os.path.join(kept, "hypothesis")
    if worker is None and getattr(config.option, "numprocesses", None):
        return  # this process runs no test, and an import of hypothesis takes a second
    import hypothesis

    tier = config.option.markexpr
    examples = 20 if "not slow" in tier else 40 if "not long" in tier else 100
    hypothesis.settings.register_profile("gleaner", deadline=None, derandomize=True, max_examples=examples)
    hypothesis.settings.load_profile("gleaner")


def pytest_ignore_collect(collection_path, config):
    """The tier fast imports no file whose tests are all slow: such files import JAX, which takes a second."""
    if "not slow" not in config.option.markexpr or collection_path.suffix != ".py":
        return None
    text = collection_path.read_text(encoding="utf-8")
    return bool(re.search(r"^pytestmark = .*pytest\.mark\.(slow|long)", text, re.MULTILINE)) or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Moves all cases of `sample(n)` but n of them to the tier long."""
    cases = {}
    for item in items:
        if mark := item.get_closest_marker("sample"):
            cases.setdefault(item.function, (mark.args[0], []))[1].append(item)
    for count, its in cases.values():
        chosen = {len(its) * n // count for n in range(count)}
        for index, item in enumerate(its):
            if index not in chosen:
                item.add_marker("long")


def pytest_collection_finish():
    """Excludes the imported modules from garbage collection, which would visit every object of JAX again and again."""
    gc.collect()
    gc.freeze()

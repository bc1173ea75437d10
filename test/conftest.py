"""Hooks for the tests of the worker and of the reader."""

import pytest


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

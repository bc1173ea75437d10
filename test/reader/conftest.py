"""Fixtures of the reader's tests. Run with the environment that test/worker/requirements.lock describes:

ENV/bin/python -m pytest test/reader
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "worker", "support"))
import pytest

import environment  # noqa: F401  (where the packages are, and where bytecode goes)
from shuffled_runs import runs  # noqa: F401


@pytest.fixture
def storage():
    from fake_storage import serving

    with serving() as fake:
        yield fake

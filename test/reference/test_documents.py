"""The Python of the pages about the reader, with torch."""

import os
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
for name in ("worker/support", "reader"):
    sys.path.insert(0, os.path.join(os.path.dirname(HERE), name))
import environment  # noqa: F401  where the packages are

pytest.importorskip("torch")
from test_reader_documents import test_the_blocks_of_a_page_run_one_after_the_other  # noqa: F401

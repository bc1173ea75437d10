"""The Python of the pages about the reader runs as it stands.

Without torch, jax takes its place, and the blocks of torch alone wait for test/reference.
"""

import importlib.util
import os
import re

import pytest

import gleaner_reader
from stored_run import store_run

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HAS_TORCH = importlib.util.find_spec("torch") is not None


def blocks_of(page: str) -> list[str]:
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        return re.findall(r"^```python\n(.*?)^```", file.read(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["README.md", "worker-startup/gleaner_reader/README.md"])
def test_the_blocks_of_a_page_run_one_after_the_other(tmp_path, page):
    store_run(tmp_path, layers=(4, 12), d_model=4, count=400)
    names = {"rank": 0, "world_size": 2}
    blocks = blocks_of(page)
    assert blocks
    for block in blocks:
        if "torch.utils" in block and not HAS_TORCH:
            continue
        if HAS_TORCH:
            import torch.utils.data

            names["torch"] = torch
        here, count = re.subn(r'"gs://[^"]+"', repr(str(tmp_path)), block)
        assert count == block.count("gleaner_reader.open(")
        exec(compile(here if HAS_TORCH else here.replace('"torch"', '"jax"'), page, "exec"), names)
    assert isinstance(names["run"], gleaner_reader.Run)
    assert names["batch"].shape == (4096, 4)

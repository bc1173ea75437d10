"""The Python of the pages about the reader, and the examples of its docstrings, run as they stand.

Without torch, jax takes its place, and the blocks of torch alone wait for test/reference.
"""

import doctest
import importlib.util
import json
import os
import re

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

import gleaner_reader
from gleaner_reader.run.verify import verify
from stored_run import store_run, summarise

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HAS_TORCH = importlib.util.find_spec("torch") is not None


def blocks_of(page: str) -> list[str]:
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        return re.findall(r"^```python\n(.*?)^```", file.read(), re.MULTILINE | re.DOTALL)


def save_tokenizer(folder, count):
    words = WordLevel({f"t{number}": number for number in range(count)}, unk_token="t0")
    Tokenizer(words).save(str(folder / "tokenizer.json"))


@pytest.mark.parametrize("page", ["README.md", "worker-startup/gleaner_reader/README.md"])
def test_the_blocks_of_a_page_run_one_after_the_other(tmp_path, page):
    store_run(tmp_path, layers=(4, 12), d_model=4, count=400, keep=True)
    (tmp_path / "model.json").write_text(json.dumps({"name": str(tmp_path)}))
    save_tokenizer(tmp_path, 1300)
    names = {"rank": 0, "world_size": 2}
    blocks = blocks_of(page)
    assert blocks
    for block in blocks:
        if "torch.utils" in block and not HAS_TORCH:
            continue
        if HAS_TORCH:
            import torch.utils.data

            names["torch"] = torch
        here, count = re.subn(r'"gs://[^"]+"', repr(str(tmp_path)), block.replace('"label"', '"n"'))
        assert count == block.count("gleaner_reader.open(")
        exec(compile(here if HAS_TORCH else here.replace('"torch"', '"jax"'), page, "exec"), names)
    assert isinstance(names["run"], gleaner_reader.Run)
    assert names["batch"].shape == (4096, 4)


PUBLIC = [
    *(vars(gleaner_reader)[name] for name in gleaner_reader.__all__ if name not in ("MissingPackage", "ShardError")),
    *(vars(gleaner_reader.export)[name] for name in gleaner_reader.export.__all__),
    *(gleaner_reader.Run.layer, gleaner_reader.Run.batches, gleaner_reader.Run.sample, gleaner_reader.Run.index),
    *(gleaner_reader.Run.rows, gleaner_reader.Run.table, gleaner_reader.Run.top, gleaner_reader.Run.features),
    *(gleaner_reader.Run.status, gleaner_reader.Run.wait, gleaner_reader.Shard.read, verify),
]


@pytest.mark.parametrize("documented", [each for each in PUBLIC if callable(each)], ids=lambda each: each.__qualname__)
def test_the_example_in_a_docstring_of_the_reader_runs(tmp_path, monkeypatch, documented):
    store_run(tmp_path / "run", layers=(4, 12), d_model=8, keep=True)
    summarise(tmp_path / "run")
    (tmp_path / "my-model").mkdir()
    save_tokenizer(tmp_path / "my-model", 400)
    monkeypatch.chdir(tmp_path)
    places = {'"gs://my-bucket/activations/my-run"': '"run"', '"my-model"': '"./my-model"'}
    text = re.sub("|".join(places), lambda match: places[match[0]], documented.__doc__)
    exports = {name: vars(gleaner_reader.export)[name] for name in gleaner_reader.export.__all__}
    names = {"gleaner_reader": gleaner_reader, "run": gleaner_reader.open("run"), "np": np, "json": json} | exports
    example = doctest.DocTestParser().get_doctest(text, names, documented.__qualname__, None, 0)
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0

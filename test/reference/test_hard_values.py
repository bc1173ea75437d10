"""Values of `gleaner streams create` beside those of pyarrow, for Parquet files of nested types."""

import json
import os
import re
import subprocess

import pytest

pytest.importorskip("pyarrow")
import pyarrow.parquet as pq
from hard_values import FIXTURES, expected, random_table

ROOT = os.path.dirname(os.path.dirname(FIXTURES))
TABLES = 150


def exact(line: str) -> object:
    """The value of a line, with kinds of numbers and the order of keys, without zeros at the end of a second."""
    line = re.sub(r"(\d\d:\d\d:\d\d\.\d*?[1-9])0+(Z?\")", r"\1\2", line)
    return json.loads(line, parse_float=lambda text: repr(float(text)), object_pairs_hook=list)


def test_the_fixture_has_the_values_of_pyarrow():
    with open(os.path.join(FIXTURES, "hard-values.jsonl")) as file:
        stored = [json.loads(line) for line in file]
    assert stored == expected(pq.read_table(os.path.join(FIXTURES, "hard-values.parquet")))


def test_random_tables_have_the_values_of_pyarrow(tmp_path):
    tables = [random_table(seed) for seed in range(TABLES)]
    for seed, (table, options) in enumerate(tables):
        pq.write_table(table, tmp_path / f"{seed:03}.parquet", **options)
    script = os.path.join(ROOT, "test", "reference", "create_each.ts")
    node = os.path.join(ROOT, "node_modules", ".bin", "node")
    subprocess.run([node, script, tmp_path], check=True)
    for seed, (table, _) in enumerate(tables):
        with open(tmp_path / f"{seed:03}" / "stream_000.jsonl") as file:
            lines = file.read().removesuffix("\n").split("\n")
        assert [exact(line) for line in lines] == [exact(json.dumps(row)) for row in expected(table)], f"table {seed}"

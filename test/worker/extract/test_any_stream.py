"""Streams of random bytes and records: every line gives its samples or a reject."""

import gzip
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from build import a_spec
from gleaner_worker.records.samples.sample import Reject
from gleaner_worker.records.samples.samples import read_samples
from gleaner_worker.records.samples.tokenize_lines import make_sample_settings

pytestmark = pytest.mark.slow

junk = st.binary(max_size=60) | st.text(max_size=30).map(lambda text: json.dumps({"text": text}).encode())
values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 700) | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["role", "content", "train"]), inner, max_size=3)
    ),
    max_leaves=6,
)
names = st.sampled_from(["text", "prompt", "messages", "tokens", "train", "test", "tools", "a"])
objects = st.dictionaries(names, values, max_size=4).map(lambda value: json.dumps(value).encode())
tasks = st.lists(st.lists(st.integers(0, 10), max_size=2), max_size=2).map(
    lambda grid: json.dumps({"train": [{"input": grid, "output": [[1]]}], "test": [{"input": [[2]]}]}).encode()
)
streams = st.lists(junk | objects | tasks, max_size=8).map(b"\n".join) | st.binary(max_size=300)


@given(
    streams,
    st.booleans(),
    st.sampled_from([1, 3]),
    st.sampled_from([{}, {"field": "a"}, {"template": "{{ text }}{% for x in tokens %}{{ x * 3 }}{% endfor %}"}]),
    st.sampled_from(["all", "last", "0:2", [1]]),
    st.sampled_from([[], ["a", "text"]]),
)
def test_any_bytes_give_samples_or_rejects_in_order_without_an_error(
    tiny_folder, tmp_path_factory, data, is_zipped, predictions, how, tokens, keep
):
    path = tmp_path_factory.mktemp("stream") / "stream"
    data = data if data[:2] != b"\x1f\x8b" else b"x" + data
    path.write_bytes(gzip.compress(data) if is_zipped else data)
    spec = a_spec(record=how | {"predictions_per_task": predictions}, tokens=tokens, keep=keep, exclude_special=True)
    items = list(read_samples(str(path), "x", make_sample_settings(tiny_folder, spec, 600, 32)))
    body = data.removeprefix(b"\xef\xbb\xbf")
    lines = body.count(b"\n") + (not body.endswith(b"\n") and body != b"")
    assert [n for item in items for n in range(item.index, item.last + 1)] == list(range(lines * predictions))
    for item in items:
        if isinstance(item, Reject):
            written = json.loads(json.dumps(item.record()).encode("ascii"))
            assert written["line"] == item.index // predictions + 1
            assert written["reason"].encode("utf-8")
        else:
            assert item.token_ids.dtype == np.int32 and 0 <= item.token_ids.min() and item.token_ids.max() < 600
            assert 0 < len(item.positions) <= len(item.token_ids) <= 32
            assert json.loads(item.kept or "{}").keys() <= set(keep)

"""Samples and rejects of a stream that a test writes: `read_items` is the fixture."""

import json

import pytest

from build import a_spec
from gleaner_worker.records.samples.samples import read_samples
from gleaner_worker.records.samples.tokenize_lines import make_sample_settings


@pytest.fixture
def read_items(tiny_folder, tmp_path):
    """read_items(lines, **spec) -> the samples and rejects of a stream of these lines."""

    def run(lines, folder=tiny_folder, vocab_size=600, **spec):
        path = tmp_path / "stream"
        path.write_bytes(
            b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines)
        )
        return list(read_samples(str(path), "x", make_sample_settings(folder, a_spec(**spec), vocab_size, 1024)))

    return run

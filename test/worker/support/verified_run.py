"""A run to verify: `stored` is finished in the fake bucket, `verify` gives its report, other functions damage it."""

import hashlib
import io
import json

import numpy as np
import pytest
import zstandard

from build import BUCKET, a_stream, a_work, bucket, put_manifest, run_extract, shard_gb, text_lines
from encoded_shards import parse_tensors
from fake_storage import serving
from gleaner_reader.format.checksums import as_text, crc32c
from gleaner_worker.shards.encode import encode_tensors
from gleaner_worker.shards.shard_bytes import bytes_of
from gleaner_worker.shards.zstd_seekable import compress
from gleaner_worker.verify.verify_run import verify_run

SPEC = {"shard_size_gb": shard_gb(500)}
PREFIX = "activations/my-run/tpu_7/"
LINES = [*text_lines(40), "junk", json.dumps({"text": "last"})]


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory, tiny_models, tiny_folder):
    """The bucket of a finished run. No test changes it."""
    with serving() as storage:
        run_extract(a_work(a_stream(storage, LINES), **SPEC), tiny_models(), str(tmp_path_factory.mktemp("finished")))
        put_manifest(storage, model=tiny_folder, **SPEC)
    return storage


@pytest.fixture
def stored(storage, finished_run):
    """The finished run, to change before verify()."""
    storage.load(finished_run)
    return storage


@pytest.fixture
def verify(storage, tmp_path, tiny_folder):
    """verify(**spec) -> (the report, its problems as text). A run without a manifest gets one of this spec."""

    def run(unanchored=True, **spec):
        if not storage.names(BUCKET, "activations/my-run/manifest.json"):
            put_manifest(storage, **({"model": tiny_folder} | spec))
        report = verify_run(bucket(), "my-run", str(tmp_path), lambda _: None, unanchored=unanchored)
        return report, "\n".join([*report["problems"], *(p for s in report["streams"] for p in s["problems"])])

    return run


@pytest.fixture
def finds(verify):
    """finds(*problems) -> the report and the problems of a run that has these problems."""

    def run(*expected, **options):
        report, problems = verify(**options)
        assert not report["ok"]
        assert [text for text in expected if text not in problems] == [], problems
        return report, problems

    return run


def rewrite(storage, name, change=lambda tensors: None, inside=None, signed=False, **metadata):
    """Changes the tensors of a safetensors shard and their checksums; custom metadata stay, except for `metadata`.

    inside: changes of the header. signed: the metadata state the digests of the new bytes.
    """
    data = storage.data(BUCKET, PREFIX + name)
    is_packed = name.endswith(".zst")
    tensors, stated = parse_tensors(unpacked(data) if is_packed else data)
    tensors = {key: values.copy() for key, values in tensors.items()}
    change(tensors)
    tensors = {key: np.ascontiguousarray(values) for key, values in tensors.items()}
    stated["checksums"] = json.dumps({key: as_text(crc32c(bytes_of(values))) for key, values in tensors.items()})
    stated |= {key: value for key, value in metadata.items() if key in stated} | (inside or {})
    data = encode_tensors(tensors, stated).read()
    if is_packed:
        data = b"".join(compress([np.frombuffer(data, np.uint8)], threads=1))
    if signed:
        metadata |= {"crc32c": as_text(crc32c(data)), "sha256": hashlib.sha256(data).hexdigest()}
    storage.put(BUCKET, PREFIX + name, data, storage.metadata(BUCKET, PREFIX + name) | metadata)


def unpacked(data):
    return zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data), read_across_frames=True).read()


def rot(storage, name):
    """Changes the first byte of an object, but not its checksum."""
    kept = storage.objects[BUCKET, name]
    kept["data"] = bytes([kept["data"][0] ^ 1]) + kept["data"][1:]

"""Layers, rows and samples as they were stored, in every format and type."""

import subprocess
import sys
from unittest.mock import MagicMock

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import gleaner_reader
from encoded_shards import parse_tensors
from environment import WORKER
from gleaner_reader import ShardError
from gleaner_reader.export import to_saelens
from stored_run import store_run

pytestmark = pytest.mark.slow

CASES = [
    ("safetensors", "bf16", {}),
    ("safetensors", "fp16", {"sites": ("resid_pre", "mlp_out"), "tokens": slice(2, 9, 3), "keep": True}),
    ("safetensors", "fp32", {"tokens": slice(-1, None)}),
    ("safetensors", "int8", {"tokens": "mean", "keep": True}),
    ("safetensors.zst", "bf16", {"tokens": slice(None, None, -1)}),
    ("safetensors.zst", "int8", {"sites": ("resid_post", "attn_out")}),
    ("pkl.gz", "fp32", {}),
    ("pkl.gz", "fp16", {"tokens": slice(2, 9, 3), "keep": True}),
    ("pkl.gz", "fp32", {"tokens": "mean"}),
]
NATIVE = {"bf16": ml_dtypes.bfloat16, "fp16": np.float16, "fp32": np.float32, "int8": np.float32}


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{case[1]}-{'-'.join(map(str, case[2].values()))}")
def stored(request, tmp_path):
    file_format, dtype, options = request.param
    made = store_run(tmp_path, file_format, dtype, count=30, **options)
    made.dtype, made.file_format = dtype, file_format
    return made


def test_every_layer_is_read_as_it_was_stored(stored):
    run = gleaner_reader.open(stored.folder)
    for name, expected in stored.layers.items():
        site, _, layer = name.partition(".")
        view = run.layer(int(layer), site)
        assert view.shape == stored.rows(name).shape
        for array, values in zip(view, expected, strict=True):
            assert array.dtype == NATIVE[stored.dtype]
            assert np.array_equal(array.astype(np.float32), values)


def test_any_rows_are_read_in_the_requested_order(stored):
    run = gleaner_reader.open(stored.folder)
    name = next(iter(stored.layers))
    expected, view = stored.rows(name), run.layer(int(name[-1]), name[:-2], dtype="float32")
    numbers = np.random.default_rng(0).integers(-len(expected), len(expected), 50)
    assert np.array_equal(view[numbers], expected[numbers])
    assert np.array_equal(view[5:40:7], expected[5:40:7])
    assert np.array_equal(view[40:5:-7], expected[40:5:-7])
    assert np.array_equal(view[-1], expected[-1])
    assert view[[]].shape == (0, 16)
    for wrong in (len(expected), -len(expected) - 1):
        with pytest.raises(IndexError, match=f"there is no row {wrong}; there are {len(expected)}"):
            view[wrong]
    with pytest.raises(TypeError, match="rows are chosen by"):
        view[[0.5]]


def test_every_sample_is_read_with_its_rows_tokens_positions_and_kept_fields(stored):
    run = gleaner_reader.open(stored.folder)
    assert run.num_samples == len(stored.samples)
    for (stream, index), expected in list(stored.samples.items())[::11]:
        sample = run.sample(stream, index, dtype="float32")
        assert (sample.stream, sample.index) == (stream, index)
        assert list(sample.activations) == list(expected["activations"])
        for name, values in expected["activations"].items():
            assert np.array_equal(sample.activations[name], values)
        assert sample.kept == expected["kept"]
        if stored.file_format != "pkl.gz":
            assert sample.token_ids.tolist() == expected["token_ids"].tolist()
        if expected["positions"] is None:
            assert sample.positions is None
        else:
            assert sample.positions.tolist() == expected["positions"].tolist()


def test_checksums_are_compared_with_the_values_on_request(stored):
    run = gleaner_reader.open(stored.folder)
    name = next(iter(stored.layers))
    layer = run.layer(int(name[-1]), name[:-2], verify=True, dtype="float32")
    for array, values in zip(layer, stored.layers[name], strict=True):
        assert np.array_equal(array, values)


def test_layers_are_read_as_jax_arrays(stored):
    run = gleaner_reader.open(stored.folder)
    name = next(iter(stored.layers))
    array = next(iter(run.layer(int(name[-1]), name[:-2], as_="jax")))
    assert isinstance(array, jnp.ndarray)
    assert array.dtype == {"bf16": jnp.bfloat16, "fp16": jnp.float16}.get(stored.dtype, jnp.float32)
    assert np.array_equal(np.asarray(array, np.float32), stored.layers[name][0])


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (lambda run: run.layer(1), "layer is 1; .* has layers 0, 2"),
        (lambda run: run.layer("0"), "layer is '0'"),
        (lambda run: run.layer(0, "resid_pre"), "site is 'resid_pre'; .* has resid_post"),
        (lambda run: run.layer(0, as_="tensorflow"), "as_ is 'tensorflow', known are numpy, torch, jax"),
        (lambda run: run.layer(0, dtype="float64"), "dtype is 'float64', known are float32, float16, bfloat16"),
        (lambda run: run.sample(0, 5, layers=[0, 99]), "layer is 99; .* has layers 0, 2"),
        (lambda run: run.sample(0, 5, layers=[-1]), "layer is -1; .* has layers 0, 2"),
        (lambda run: run.sample(0, 5, site="resid_pots"), "site is 'resid_pots'; .* has resid_post"),
        (lambda run: run.sample(3, 0), "there is no stream 3 in .*; it has 0, 7"),
        (lambda run: run.sample(0, 3), "sample 3 of stream 0 was rejected; rejects.jsonl"),
        (lambda run: run.sample(0, 1000), "sample 1000 of stream 0 is not here: the shards hold samples 0 to 119"),
        (lambda run: run.sample(0, -1), "sample -1 of stream 0 is not here"),
    ],
)
def test_an_unknown_layer_site_or_sample_is_refused_with_the_known_values(tmp_path, asked, says):
    store_run(tmp_path)
    with pytest.raises((ValueError, LookupError), match=says):
        asked(gleaner_reader.open(tmp_path))


def test_a_site_must_be_named_where_a_run_has_several(tmp_path):
    store_run(tmp_path, sites=("resid_pre", "resid_post"))
    with pytest.raises(ValueError, match="site is None; .* has resid_pre, resid_post: pass one of them as site"):
        gleaner_reader.open(tmp_path).layer(0)


ALONE = """
import sys
for name in ("ml_dtypes", "jax", "torch", "zstandard", "google", "datasets", "safetensors"):
    sys.modules[name] = None
sys.modules["gleaner_worker"] = None
sys.path.insert(0, sys.argv[1])
import gleaner_reader, numpy as np
run = gleaner_reader.open(sys.argv[2])
total = sum(float(array.sum(dtype=np.float64)) for array in run.layer(0, verify=True))
sample = run.sample(7, 61)
batches = sum(len(batch) for batch in run.batches(0, batch_rows=32, drop_last=False))
print(next(iter(run.layer(0))).dtype, total, sample.token_ids.tolist(), batches)
for ask in (lambda: gleaner_reader.open("gs://b/x"), lambda: run.layer(0, as_="torch"), lambda: run.layer(0, as_="jax"),
            lambda: run.layer(0, dtype="bfloat16"), lambda: gleaner_reader.open(sys.argv[3]).metadata,
            lambda: gleaner_reader.export.to_saelens(run, "x", 0)):
    try:
        ask()
    except ImportError as error:
        print(error)
"""


def test_the_reader_works_with_numpy_and_google_crc32c_alone(tmp_path):
    stored = store_run(tmp_path / "run")
    store_run(tmp_path / "zst", "safetensors.zst", shards=1)
    arguments = [WORKER, stored.folder, str(tmp_path / "zst/tpu_0/shard_0001.safetensors.zst")]
    done = subprocess.run([sys.executable, "-c", ALONE, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, *refused = done.stdout.splitlines()
    total = sum(float(array.sum(dtype=np.float64)) for array in stored.layers["resid_post.0"])
    rows = len(stored.rows("resid_post.0"))
    assert first == f"float32 {total} {stored.samples[7, 61]['token_ids'].tolist()} {rows}"
    packages = ["google-cloud-storage", "torch", "jax", "ml_dtypes", "zstandard", "datasets"]
    assert [line.partition("pip install ")[2] for line in refused] == packages


def test_a_damaged_layer_is_found_when_it_is_verified(tmp_path):
    store_run(tmp_path)
    path = tmp_path / "tpu_0/shard_0001.safetensors"
    shard = gleaner_reader.open(path)
    data = bytearray(path.read_bytes())
    data[shard.header.tensors["resid_post.2"].begin + 7] ^= 1
    path.write_bytes(data)
    shard.read(2)
    shard.read(0, verify=True)
    with pytest.raises(ShardError, match=f"{path} is damaged: resid_post.2 has the checksum"):
        shard.read(2, verify=True)
    run = gleaner_reader.open(tmp_path)
    last = run.num_rows - 1
    assert np.array_equal(run.layer(2, verify=True)[[last]], run.layer(2)[[last]])
    assert np.array_equal(run.layer(0, verify=True)[:], run.layer(0)[:])
    for rows in (-1 - last, [last, 0], slice(2, 4)):
        with pytest.raises(ShardError, match=f"{path} is damaged: resid_post.2 has the checksum"):
            run.layer(2, verify=True)[rows]


@pytest.mark.parametrize("dtype", ["bf16", "fp32", "int8"])
def test_a_value_beyond_float16_is_refused_instead_of_becoming_infinite(tmp_path, monkeypatch, dtype):
    store_run(tmp_path / "run", dtype=dtype)
    path = tmp_path / "run/tpu_0/shard_0001.safetensors"
    data = bytearray(path.read_bytes())
    tensors, _ = parse_tensors(memoryview(data))
    tensors["resid_post.2.scale" if dtype == "int8" else "resid_post.2"][3] = -1e6
    path.write_bytes(data)
    run = gleaner_reader.open(tmp_path / "run")
    assert np.isfinite(run.layer(2, dtype="float32")[:]).all()
    assert run.layer(0, dtype="float16")[:].dtype == np.float16
    monkeypatch.setattr(gleaner_reader.export.saelens, "import_datasets", MagicMock())
    for ask, name in (
        (lambda: run.layer(2, dtype="float16")[:], "rows"),
        (lambda: run.layer(2, dtype="float16", as_="jax")[3], "rows"),
        (lambda: to_saelens(run, str(tmp_path / "out"), 2, dtype="float16"), "blocks.2.hook_resid_post"),
    ):
        with pytest.raises(ValueError, match=f"Failed to convert {name} to float16: .*; ask for float32"):
            ask()

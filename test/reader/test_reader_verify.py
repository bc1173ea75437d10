"""A run is verified by its files alone: every byte of every shard, and the digest of all shards."""

import json
import subprocess

import pytest

from forged import forged
from gleaner_reader.__main__ import main
from gleaner_reader.digest import digest_of, run_digest
from gleaner_reader.files import open_folder
from gleaner_reader.spec_hash import hash_of_spec
from gleaner_reader.verify import verify
from stored_run import put_in_bucket, state_digest, store_run, summarise

# The digest of the run, by the tools of a shell.
DIGEST = """
digest_of() { local digest= line
  while read -r line; do digest=$(printf '%s%s\\n' "$digest" "$line" | sha256sum | cut -d ' ' -f 1); done
  printf %s "$digest"
}
for stream in tpu_0 tpu_7; do
  echo "$(cd $stream && sha256sum shard_* | digest_of)  $stream"
done | digest_of
"""


@pytest.fixture
def stored(tmp_path):
    store_run(tmp_path / "my-run", count=12)
    summarise(tmp_path / "my-run")
    return tmp_path / "my-run"


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_a_run_is_verified_on_a_disk_and_in_a_bucket_with_one_digest(stored, storage, capsys):
    digest = subprocess.run(["bash", "-c", DIGEST], cwd=stored, capture_output=True, check=True, text=True).stdout
    put_in_bucket(storage, str(stored), "b", "activations/my-run")
    for where in (str(stored), "gs://b/activations/my-run"):
        found = verify(open_folder(where))
        assert (found.problems, found.digest, found.shards) == ((), digest, 6)
    assert main(["verify", str(stored), "--digest", digest]) == 0
    assert f"digest: {digest}\nverified: {stored}" in capsys.readouterr().out
    assert main(["verify", str(stored), "--digest", "0" * 64]) == 1
    assert "its publisher states 000" in capsys.readouterr().out


def test_each_changed_file_is_a_problem(stored, capsys):
    flip(stored / "tpu_0/shard_0002.safetensors", -1)
    (stored / "tpu_7/shard_0003.safetensors").unlink()
    (stored / "manifest.json").write_text(json.dumps({"spec": {"model": "other"}, "result": {"shards": 6}}))
    assert main(["verify", str(stored)]) == 1
    printed = capsys.readouterr().out
    assert "tpu_0/shard_0002.safetensors has" in printed and "its metadata.json states" in printed
    assert "stream 7 lacks shard_0003.safetensors" in printed
    assert printed.count("was made with another spec") == 5
    assert f"NOT verified: {stored}" in printed


def test_an_unreadable_shard_hides_no_other_problem(stored, capsys):
    for name in ("tpu_0/shard_0001.safetensors", "tpu_7/shard_0003.safetensors"):
        (stored / name).write_bytes(b"cut short")
    assert main(["verify", str(stored)]) == 1
    printed = capsys.readouterr().out
    assert printed.count("has 9 bytes of CRC-32C") == 2 and f"NOT verified: {stored}" in printed


def test_a_spec_has_the_hash_of_the_control_plane():
    # By specHash of shared/contracts/spec.ts.
    text = """{"spec": {"z":1e-7,"model":"ä\u2028\\u0001\\"","b":{"9":1e+21,"10":0.5,"a":[0.00001,-3,null,true]},
        "\uff5e":100000000000000000000,"\U0001f600":2}}"""
    assert hash_of_spec(text.encode()) == "a68866138b035dbced16b89974e59c69f5cc25cac0469e8a4fd0dc9a338257e3"


def test_a_changed_spec_in_the_manifest_is_a_problem(stored):
    manifest = json.loads((stored / "manifest.json").read_text())
    manifest["spec"] = {"model": "other"}
    (stored / "manifest.json").write_text(json.dumps(manifest))
    found = verify(open_folder(str(stored))).problems
    assert len(found) == 7 and f"and states {manifest['spec_hash']}" in found[-1]


@pytest.mark.parametrize("text", [None, "[", '{"shards": [3]}', "{}"])
def test_a_stream_without_stated_checksums_is_a_problem(stored, text):
    path = stored / "tpu_0/metadata.json"
    path.unlink() if text is None else path.write_text(text)
    assert any("metadata.json" in problem for problem in verify(open_folder(str(stored))).problems)


def test_the_last_shard_of_another_attempt_is_right_where_its_own_checksums_hold(stored):
    path = stored / "tpu_0/metadata.json"
    summary = json.loads(path.read_text())
    summary["shards"][-1]["crc32c"] = "AAAAAA=="
    path.write_text(json.dumps(summary))
    assert verify(open_folder(str(stored))).problems == ()
    flip(stored / "tpu_0/shard_0003.safetensors", -1)
    assert len(verify(open_folder(str(stored))).problems) == 1


def test_a_shard_of_the_stated_size_and_crc32c_with_other_bytes_is_a_problem(stored, capsys):
    digest = verify(open_folder(str(stored))).digest
    state_digest(stored, digest)
    assert main(["verify", str(stored)]) == 0
    last = stored / "tpu_0/shard_0003.safetensors"
    last.write_bytes(forged(last.read_bytes()))
    assert main(["verify", str(stored)]) == 1
    assert f"and its manifest states {digest}" in capsys.readouterr().out
    summarise(stored)  # the forger states the SHA-256 of the forged bytes
    problems = verify(open_folder(str(stored))).problems
    assert len(problems) == 1 and f"and its manifest states {digest}" in problems[0]


def test_streams_count_in_the_order_of_their_ids():
    shards = {999: [("a", "shard_0001.safetensors")], 1000: [("b", "shard_0001.safetensors")]}
    parts = [(digest_of(shards[stream]), f"tpu_{stream}") for stream in (1000, 999)]
    assert run_digest(shards) == digest_of(parts)

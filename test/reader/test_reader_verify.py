"""A run is verified by its files alone: every byte of every shard, and the digest of all shards."""

import json
import os
import shutil
import subprocess

import pytest

from forged import forged
from gleaner_reader.__main__ import main
from gleaner_reader.format.digest import digest_of, run_digest
from gleaner_reader.format.files import open_folder
from gleaner_reader.format.spec_hash import hash_of_manifest, hash_of_spec
from gleaner_reader.run.verify import verify
from stored_run import MANIFEST, a_plan, encode, put_in_bucket, some_rows, store_run, summarise

# The digest of the run, by the tools of a shell. The manifest has whole numbers and sorted keys alone.
DIGEST = """
digest_of() { local digest= line
  while read -r line; do digest=$(printf '%s%s\\n' "$digest" "$line" | sha256sum | cut -d ' ' -f 1); done
  printf %s "$digest"
}
{ for stream in tpu_0 tpu_7; do
    echo "$(cd $stream && sha256sum shard_* metadata.json | digest_of)  $stream"
  done
  sha256sum model.json
  own=$(sed -E 's/, "digest": "[0-9a-f]+"//; s/([:,]) /\\1/g' manifest.json | tr -d '\\n' | sha256sum)
  echo "${own%% *}  manifest.json"
} | digest_of
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
    manifest = json.loads((stored / "manifest.json").read_text())
    (stored / "manifest.json").write_text(json.dumps({key: manifest[key] for key in sorted(manifest)}))
    result = subprocess.run(["bash", "-c", DIGEST], cwd=stored, capture_output=True, check=True, text=True).stdout
    put_in_bucket(storage, str(stored), "b", "activations/my-run")
    for where in (str(stored), "gs://b/activations/my-run"):
        found = verify(open_folder(where))
        assert (found.problems, found.digest, found.shards) == ((), result, 6)
    assert main(["verify", str(stored), "--digest", result]) == 0
    assert f"digest: {result}\nverified: {stored}\n" in capsys.readouterr().out
    assert main(["verify", str(stored), "--digest", "0" * 64]) == 1
    assert "its publisher states 000" in capsys.readouterr().out


def test_a_run_without_a_digest_to_compare_with_is_unanchored_and_accepted_by_an_option_alone(stored, capsys):
    (stored / "tpu_0/rejects.jsonl").write_text("{}")
    for options, status in ([], 1), (["--digest", ""], 1), (["--unanchored"], 0):
        assert main(["verify", str(stored), *options]) == status
        printed = capsys.readouterr().out
        assert f"\nunanchored: {stored}\n" in printed and "\nverified" not in printed
        assert "not covered by the digest: tpu_0/rejects.jsonl\n" in printed and "--digest DIGEST" in printed


def rewrite(file, /, **changes):
    """A damage: other values in a JSON file. None removes a key."""

    def damage(folder):
        old = json.loads((folder / file).read_text()) | changes
        (folder / file).write_text(json.dumps({key: value for key, value in old.items() if value is not None}))

    return damage


def rewrite_result(**changes):
    def damage(folder):
        result = json.loads((folder / "manifest.json").read_text())["result"] | changes
        rewrite("manifest.json", result={key: value for key, value in result.items() if value is not None})(folder)

    return damage


def other_values(folder):
    """Other activations with right checksums in the header of their shard."""
    plan = a_plan(2, 12, 12, False)
    rows, scale, _ = some_rows(plan, ["resid_post"], [0, 2], 16, "bf16", seed=9)
    facts = {"stream": "000", "spec_hash": MANIFEST["spec_hash"]}
    shard = encode(plan, rows, scale, [0, 2], "safetensors", **facts).read()
    (folder / "tpu_0/shard_0002.safetensors").write_bytes(shard)


def link(name):
    """A damage: the entry lies elsewhere, and a link leads there."""

    def damage(folder):
        shutil.move(folder / name, folder.parent / "elsewhere")
        (folder / name).symlink_to(folder.parent / "elsewhere")

    return damage


def pipe(folder):
    os.mkfifo(folder / "tpu_0/rejects.jsonl")


def a_forged_last_shard(folder):
    last = folder / "tpu_0/shard_0003.safetensors"
    last.write_bytes(forged(last.read_bytes()))


DAMAGES = {
    "a flipped bit": lambda folder: flip(folder / "tpu_0/shard_0002.safetensors", -1),
    "a shard that is cut short": lambda folder: (folder / "tpu_0/shard_0001.safetensors").write_bytes(b"cut short"),
    "a shard with the size and CRC-32C of another": a_forged_last_shard,
    "other values": other_values,
    "a missing shard": lambda folder: (folder / "tpu_0/shard_0002.safetensors").unlink(),
    "a further stream": lambda folder: shutil.copytree(folder / "tpu_0", folder / "tpu_1"),
    "a missing stream": lambda folder: shutil.rmtree(folder / "tpu_7"),
    "exchanged shards": lambda folder: shutil.copy(
        folder / "tpu_7/shard_0002.safetensors", folder / "tpu_0/shard_0002.safetensors"
    ),
    **{
        f"another {key} of a stream": rewrite("tpu_0/metadata.json", **{key: value})
        for key, value in {
            **{"total_samples": 31, "total_tokens": 301, "stats": {"resid_post.0": {"norm": 9.0}}, "layers": [5]},
            **{"dataset_path": "gs://b/datasets/other/stream_000.jsonl", "model_path": "other", "new": 1},
        }.items()
    },
    **{
        f"a metadata.json of {text!r}": lambda folder, text=text: (folder / "tpu_0/metadata.json").write_text(text)
        for text in ("", "[", '{"shards": [3]}', "{}")
    },
    "no metadata.json": lambda folder: (folder / "tpu_0/metadata.json").unlink(),
    "an empty model.json": lambda folder: (folder / "model.json").write_text("{}"),
    "a missing model.json": lambda folder: (folder / "model.json").unlink(),
    "another model": rewrite("model.json", name="other"),
    "no result": rewrite("manifest.json", result=None),
    "a result that is null": lambda folder: (folder / "manifest.json").write_text(
        json.dumps(json.loads((folder / "manifest.json").read_text()) | {"result": None})
    ),
    "a result of no shards": rewrite_result(shards=None),
    "a result of other shards": rewrite_result(shards=7),
    "a result of other samples": rewrite_result(samples=99),
    "another run": rewrite("manifest.json", run="other"),
    "another spec": rewrite("manifest.json", spec={"model": "other"}),
    "another spec of that hash": rewrite("manifest.json", spec={"a": 1}, spec_hash=hash_of_spec(b'{"spec": {"a": 1}}')),
    "no manifest": lambda folder: (folder / "manifest.json").unlink(),
    "a linked shard": link("tpu_0/shard_0002.safetensors"),
    "a linked manifest": link("manifest.json"),
    "a linked stream": link("tpu_7"),
    "a pipe": pipe,
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_or_forged_run_is_never_verified(name, stored, capsys):
    digest = verify(open_folder(str(stored))).digest
    DAMAGES[name](stored)
    assert main(["verify", str(stored), "--unanchored"]) == 1  # without forged sums, no digest from elsewhere is needed
    printed = "".join(capsys.readouterr())
    assert ("problem: " in printed) != ("symbolic links and special files are not verified" in printed)
    # As it is, also without the digest of the manifest, and with every sum in the folder made again.
    for forge in (lambda folder: None, rewrite_result(digest=None), rewrite("manifest.json", result=None), summarise):
        try:
            forge(stored)
        except (OSError, ValueError, KeyError, TypeError):  # this damage leaves nothing to forge
            continue
        assert main(["verify", str(stored), "--digest", digest]) == main(["verify", str(stored)]) == 1
        assert "\nverified" not in capsys.readouterr().out


def test_a_summary_that_states_other_places_of_tensors_is_a_problem(stored, capsys):
    path = stored / "tpu_0/metadata.json"
    summary = json.loads(path.read_text())
    summary["shards"][1]["header_bytes"] += 8
    path.write_text(json.dumps(summary))
    assert main(["verify", str(stored), "--unanchored"]) == 1
    assert "shard_0002.safetensors has its tensors elsewhere than its metadata.json" in capsys.readouterr().out


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


def test_a_spec_has_the_hash_of_the_control_plane():
    # By specHash of shared/contracts/spec/spec.ts.
    text = """{"spec": {"z":1e-7,"model":"ä\u2028\\u0001\\"","b":{"9":1e+21,"10":0.5,"a":[0.00001,-3,null,true]},
        "\uff5e":100000000000000000000,"\U0001f600":2}}"""
    assert hash_of_spec(text.encode()) == "a68866138b035dbced16b89974e59c69f5cc25cac0469e8a4fd0dc9a338257e3"


def test_a_manifest_has_the_digest_of_the_control_plane():
    # By manifestText of shared/contracts/spec/manifest.ts, and a comparison that was added later.
    text = (
        '{"reference":{"at":"later"},"schema":"gleaner/1","run":"r","spec":{"b":1,"a":[1,null]},"spec_ha'
        'sh":"x","placement":{"z":0.5},"result":{"streams":1,"stats":{"resid_post.10":{"mean":1e-7,"norm'
        '":0.1},"resid_post.9":{"mean":1e+21}},"versions":{"9":[],"10":["ä"]},"digest":"08f7b4b70eb69463'
        '5a744a3449448684ab2787f0762563ad8935f7c3aaee9cb7"}}'
    )
    digest = digest_of(
        [("a" * 64, "tpu_0"), ("b" * 64, "model.json"), (hash_of_manifest(text.encode()), "manifest.json")]
    )
    assert digest == json.loads(text)["result"]["digest"]


def test_the_last_shard_of_another_attempt_is_right_where_its_own_checksums_hold(stored):
    path = stored / "tpu_0/metadata.json"
    summary = json.loads(path.read_text())
    summary["shards"][-1]["crc32c"] = "AAAAAA=="
    path.write_text(json.dumps(summary))
    digest = verify(open_folder(str(stored))).digest
    rewrite_result(digest=digest)(stored)
    assert verify(open_folder(str(stored))).problems == ()
    flip(stored / "tpu_0/shard_0003.safetensors", -1)
    problems = verify(open_folder(str(stored))).problems
    assert len(problems) == 2 and problems[1].endswith(f"its manifest states {digest}")


def test_streams_count_in_the_order_of_their_ids():
    shards = {999: [("a", "shard_0001.safetensors")], 1000: [("b", "shard_0001.safetensors")]}
    parts = [(digest_of(shards[stream]), f"tpu_{stream}") for stream in (1000, 999)]
    files = [("c", "model.json"), ("d", "manifest.json")]
    assert run_digest(shards, files) == digest_of([*parts, *files])

"""The verification of a run: a correct run passes, and every problem is found and named."""

import json
import queue
import subprocess
import sys
from functools import partial

import pytest

from arc_tasks import TASK
from build import BUCKET, SPEC_HASH, a_stream, bucket, outputs, put_manifest, run_extract
from gleaner_reader.format.files import open_folder
from gleaner_reader.run.verify import verify as verify_files
from gleaner_worker.verify.__main__ import Progress
from gleaner_worker.verify.verify_run import verify_run
from verified_run import LINES, PREFIX, SPEC
from waiting import HANG_S

pytestmark = pytest.mark.slow


def test_a_correct_run_is_verified(stored, verify):
    report, problems = verify()
    assert report["ok"], problems
    shards = [name for name in outputs(stored) if name.startswith("shard_")]
    assert (report["samples"], report["stored_once"], report["rejected"], report["shards"]) == (42, 41, 1, len(shards))
    assert report["missing"] == report["doubled"] == report["different"] == 0
    assert report["bytes"] == sum(len(outputs(stored)[name]) for name in shards)
    found = verify_files(open_folder(f"gs://{BUCKET}/activations/my-run"))
    assert found.shards == len(shards)
    first, *others = found.problems
    assert first == "its manifest has no result: the run has not completed"
    assert all("spec" in problem for problem in others)  # the manifest of this fixture states a hash of its own


def test_each_shard_names_the_code_that_made_it(stored):
    summary = json.loads(stored.data(BUCKET, PREFIX + "metadata.json"))
    for name in [name for name in outputs(stored) if name.startswith("shard_")]:
        said = stored.metadata(BUCKET, PREFIX + name)
        assert said["bundle"] == "none"
        assert said["environment"] == summary["environment"] and len(said["environment"]) == 64
        assert said["jax_version"] == summary["versions"]["jax"]


def test_a_run_whose_shards_do_not_name_their_code_is_verified(stored, verify):
    for name in [name for name in outputs(stored) if name.startswith("shard_")]:
        said = stored.metadata(BUCKET, PREFIX + name)
        kept = {key: said[key] for key in said if key not in ("bundle", "environment", "jax_version")}
        stored.put(BUCKET, PREFIX + name, stored.data(BUCKET, PREFIX + name), kept)
    report, problems = verify()
    assert report["ok"], problems


def test_a_changed_stream_is_found(stored, finds):
    a_stream(stored, [*LINES[:5], json.dumps({"text": "another"}), *LINES[6:]])
    finds("was made from other content of datasets/my-run/stream_007.jsonl")


def test_a_stream_without_a_record_is_reported_as_empty(storage, verify, tiny_folder):
    storage.put(BUCKET, "datasets/my-run/stream_007.jsonl", b"")
    put_manifest(storage, model=tiny_folder, **SPEC)
    report, problems = verify()
    assert (report["ok"], report["samples"]) == (False, 0)
    assert "stream_007.jsonl is empty: it holds no record" in problems
    assert "not finished" not in problems


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("absent", None, "1 samples missing, the first at line 41"),
        ("empty", b"", "1 samples missing"),
        ("twice", b'{"line": 41, "sample_idx": 40, "reason": "x"}\n' * 2, "1 samples doubled, the first at line 41"),
        ("not JSON", b"junk\n", "rejects.jsonl line 1 is not a record"),
        ("no such line", b'{"line": 99, "sample_idx": 98, "reason": "x"}\n', "rejects.jsonl line 1 is not a record"),
        (
            "a line that is good",
            b'{"line": 1, "sample_idx": 0, "reason": "x"}\n',
            "1 samples doubled, the first at line 1",
        ),
    ],
)
def test_wrong_rejects_are_found(stored, finds, name, text, problem):
    if text is None:
        stored.delete(BUCKET, PREFIX + "rejects.jsonl")
    else:
        stored.put(BUCKET, PREFIX + "rejects.jsonl", text)
    _, problems = finds(problem)
    assert f"{PREFIX}rejects.jsonl" in problems or name == "twice"


def test_a_wrong_or_missing_summary_is_found(stored, verify, finds):
    summary = json.loads(stored.data(BUCKET, PREFIX + "metadata.json"))
    for change in ({"total_samples": 7}, {"shards": summary["shards"][1:]}, {"total_tokens": 0}):
        stored.put(BUCKET, PREFIX + "metadata.json", json.dumps(summary | change).encode())
        finds("metadata.json")
    stored.delete(BUCKET, PREFIX + "metadata.json")
    assert "metadata.json is missing" in verify()[1]


def test_a_second_stream_of_the_same_number_and_shards_without_a_stream_are_found(stored, finds):
    a_stream(stored, ["x"], name="datasets/my-run/stream_007.jsonl.gz")
    stored.put(BUCKET, "activations/my-run/tpu_9/shard_0001.safetensors", b"x")
    stored.put(BUCKET, "datasets/my-run/notes.txt", b"no stream")
    stored.put(BUCKET, "activations/my-run-2/tpu_7/shard_0001.safetensors", b"another run")
    report, problems = finds(
        "stream_007.jsonl.gz has the same number as datasets/my-run/stream_007.jsonl",
        "activations/my-run/tpu_9/ holds 1 objects, but no stream of that number",
    )
    assert report["stored_once"] == 41
    assert "notes" not in problems and "my-run-2" not in problems


def test_the_command_prints_json_and_sets_its_exit_status(stored, forks):
    command = partial(forks.command, "gleaner_worker.verify")
    right = command("--bucket", BUCKET, "--run", "my-run", "--unanchored")
    assert right.returncode == 0, right.stderr
    assert (json.loads(right.stdout)["ok"], json.loads(right.stdout)["anchored"]) == (True, False)
    stored.delete(BUCKET, PREFIX + "metadata.json")
    wrong = command("--bucket", BUCKET, "--run", "my-run", "--quiet")
    assert (wrong.returncode, wrong.stderr) == (1, "")
    assert json.loads(wrong.stdout)["ok"] is False and "metadata.json is missing" in wrong.stdout
    unknown = command("--bucket", BUCKET, "--run", "no-such-run", "--quiet")
    assert (unknown.returncode, unknown.stderr) == (2, "")
    assert "no-such-run/manifest.json: there is no such object" in json.loads(unknown.stdout)["problems"][0]


def test_a_verification_that_waits_for_a_word_ends_without_one():
    args = [sys.executable, "-m", "gleaner_worker.verify", "--bucket", "b", "--run", "r", "--when-told"]
    result = subprocess.run(args, input="", capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (2, ""), result.stderr


def test_commands_without_computation_start_without_jax():
    """JAX takes seconds to import."""
    code = "import sys, gleaner_worker.verify.__main__, gleaner_worker.model.tiny; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_default_run_is_verified_with_its_own_streams_only(storage, tmp_path, tiny_models, tiny_folder):
    resource = a_stream(storage, LINES, name="datasets/stream_007.jsonl")
    a_stream(storage, ["x"], name="datasets/other-run/stream_007.jsonl")
    from build import a_work_answer, parse_work

    answer = a_work_answer(resource, run="default", **SPEC)
    answer["work"]["output_prefix"] = "activations/tpu_7/"
    run_extract(parse_work(answer["lease"], answer["work"]), tiny_models(), str(tmp_path))
    manifest = {
        "schema": "gleaner/1",
        "run": "default",
        "spec": answer["work"]["spec"] | {"model": tiny_folder},
        "spec_hash": SPEC_HASH,
    }
    storage.put(BUCKET, "activations/manifest.json", json.dumps(manifest).encode())
    report = verify_run(bucket(), "default", str(tmp_path), lambda _: None, unanchored=True)
    assert report["ok"], report
    assert len(report["streams"]) == 1


def test_the_progress_of_a_long_verification_names_stream_shards_and_time():
    said = queue.Queue()
    progress = Progress("my-run", said.put)
    now = progress._started + 65
    assert progress.line(now) == "Verifying my-run, 65 s"
    progress.update({"stream": "002", "streams_done": 1, "streams": 8, "shards": 0})
    assert progress.line(now) == "Verifying my-run, stream 002 (1 of 8 streams done), 65 s"
    progress.update({"shards_done": 3, "shards": 40})
    assert "stream 002 (1 of 8 streams done), 3 of its 40 shards read, 65 s" in progress.line(now)
    progress.start(0.01)
    assert said.get(timeout=HANG_S).startswith("Verifying my-run, stream 002")


def test_a_summary_with_false_statistics_is_found(stored, verify):
    name = PREFIX + "metadata.json"
    summary = json.loads(stored.data(BUCKET, name))
    summary["shards"][0]["stats"]["resid_post.0"]["mean"] = 0.5
    stored.put(BUCKET, name, json.dumps(summary).encode())
    assert "lists other statistics or tensors of" in verify()[1]
    del summary["stats"]["resid_post.1"]
    stored.put(BUCKET, name, json.dumps(summary).encode())
    assert "does not list finite statistics of exactly resid_post.0, resid_post.1, resid_post.2" in verify()[1]


@pytest.mark.long
def test_each_sample_of_a_line_is_counted(storage, extract, verify, finds):
    spec = {"record": {"predictions_per_task": 3}, "max_seq_length": 1024}
    lines = [json.dumps(TASK | {"task_id": str(n)}) for n in range(4)]
    extract([*lines[:2], "junk", *lines[2:]], **spec)
    report, problems = verify(**spec)
    assert report["ok"], problems
    assert (report["samples"], report["stored_once"], report["rejected"]) == (15, 12, 3)
    reject = json.loads(storage.data(BUCKET, PREFIX + "rejects.jsonl"))
    assert reject | {"reason": ""} == {"line": 3, "sample_idx": 6, "samples": 3, "reason": ""}
    one = {key: reject[key] for key in reject if key != "samples"}
    for text, problem in (
        ("", "has 3 samples missing, the first at line 3 (sample 6)"),
        (one | {"sample_idx": 7}, "rejects.jsonl lacks 2 samples that cannot be stored, the first is at line 3"),
        (one | {"samples": 9}, "rejects.jsonl lists 6 that can be stored, the first is at line 4 (sample 9)"),
        (one | {"samples": 10}, "is not a record of a rejected line"),
        (one | {"samples": 0}, "is not a record of a rejected line"),
        (one | {"line": 7}, "is not a record of a rejected line"),
    ):
        storage.put(BUCKET, PREFIX + "rejects.jsonl", (text and json.dumps(text)).encode())
        finds(problem)

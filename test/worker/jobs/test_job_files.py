"""Files that a job leaves: its artifacts, its result, and hostile files."""

import os
import sys

import pytest

from build import BUCKET
from gleaner_worker.jobs import artifacts as artifacts_module
from gleaner_worker.jobs import job_result
from gleaner_worker.jobs.prepared_code import PreparedCode
from job_attempts import FOLDER, RAN, needs_root, start

pytestmark = [needs_root, pytest.mark.slow]


def run(jobs, script, **order):
    return jobs.run(command=["bash", "-c", script], **order)


def artifacts(jobs):
    return [name.removeprefix(f"{FOLDER}artifacts/") for name in jobs.storage.names(BUCKET, f"{FOLDER}artifacts/")]


def test_the_result_of_a_command_is_the_text_of_its_file(jobs):
    ending = run(jobs, 'echo hello; echo -n "done: $JOB_ID" > "$JOB_RESULT"')
    assert (ending["outcome"], ending["result"], ending["has_artifacts"]) == ("completed", "done: j1", False)
    assert jobs.output == "hello\n"
    assert run(jobs, "printf 'a\\xffb' > $JOB_RESULT")["result"] == "a\ufffdb"
    assert run(jobs, "true")["result"] is None


def test_a_command_as_text_runs_in_bash_and_its_failure_names_the_last_line(jobs):
    ending = jobs.run(command="echo one && { echo two; exit 9; }")
    assert (ending["cause"], ending["exit_code"], ending["error"]) == ("exit", 9, "The process exited with 9: two")


def test_artifacts_of_a_failed_job_are_stored_below_the_folder_of_the_attempt(jobs):
    ending = run(jobs, "cd $JOB_ARTIFACTS; mkdir -p a/b; echo 1 > x; echo 2 > a/b/y.txt; : > empty; exit 1")
    assert (ending["outcome"], ending["has_artifacts"]) == ("failed", True)
    assert artifacts(jobs) == ["a/b/y.txt", "empty", "x"]
    assert jobs.storage.data(BUCKET, f"{FOLDER}artifacts/a/b/y.txt") == b"2\n"


HOSTILE = {
    "file-link": "ln -s /etc/passwd file-link",
    "folder-link": "ln -s /etc folder-link",
    "pipe": "mkfifo pipe",
    "socket": "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"socket\")'",
    "line": "echo 1 > $'line\\nbreak'",
    "bytes": "echo 1 > $'bytes\\xff'",
}


def test_unsafe_artifacts_are_left_out_and_reported(jobs):
    script = "; ".join(f"(cd $JOB_ARTIFACTS; {make})" for make in HOSTILE.values())
    assert run(jobs, f"{script}; echo 1 > $JOB_ARTIFACTS/a")["outcome"] == "completed"
    assert artifacts(jobs) == ["a"]
    reports = [line for line in jobs.output.splitlines() if "[gleaner] artifact left out: " in line]
    assert len(reports) == len(HOSTILE)
    assert [name for name in HOSTILE if not any(name in line for line in reports)] == []


def test_a_folder_that_is_too_deep_is_left_out_of_the_artifacts(jobs):
    script = "cd $JOB_ARTIFACTS; for _ in {1..60}; do mkdir bad; cd bad; done; echo 1 > x; echo 1 > $JOB_ARTIFACTS/a"
    assert run(jobs, script)["outcome"] == "completed"
    assert artifacts(jobs) == ["a"]
    assert "[gleaner] artifact left out: 'bad/bad/" in jobs.output and "too deep" in jobs.output


def test_a_settled_artifact_is_stored_while_the_job_runs_and_its_changes_as_further_versions(jobs, monkeypatch):
    monkeypatch.setattr(artifacts_module, "_LOOK_S", 0.02)
    monkeypatch.setattr(artifacts_module, "_SETTLED_S", 0.1)
    script = "cd $JOB_ARTIFACTS; exec 3> log; echo 1 >&3; echo 1 > done"
    runner = jobs.runner(command=f"{script}; until [ -e ../go ]; do sleep 0.02; done; echo 2 >> done")
    wait = start(runner, lambda: artifacts(jobs))
    assert artifacts(jobs) == ["done"], "a process has the other file open for writing"
    (jobs.home / "jobs" / "j1-e2" / "go").touch()
    wait()
    names = [name.removeprefix(FOLDER) for name in jobs.storage.names(BUCKET, f"{FOLDER}artifacts")]
    assert names == ["artifacts/done", "artifacts/log", "artifacts_2/done"]
    assert jobs.storage.data(BUCKET, f"{FOLDER}artifacts_2/done") == b"1\n2\n"


def test_links_and_pipes_count_towards_the_limit_of_artifacts(jobs, monkeypatch):
    monkeypatch.setattr(artifacts_module, "_MAX_ARTIFACTS", 3)
    run(jobs, "cd $JOB_ARTIFACTS; for n in 1 2 3 4 5 6 7 8 9; do ln -s x $n; done")
    assert "more than 3 files" in jobs.output and jobs.output.count("artifact left out") == 4


def test_artifacts_over_the_limits_are_left_out(jobs, monkeypatch):
    monkeypatch.setattr(artifacts_module, "_MAX_ARTIFACTS", 3)
    run(jobs, "cd $JOB_ARTIFACTS; touch {1..9}")
    assert len(artifacts(jobs)) == 3 and "more than 3 files" in jobs.output
    monkeypatch.setattr(artifacts_module, "_MAX_ARTIFACT_BYTES", 10)
    run(jobs, "cd $JOB_ARTIFACTS; echo 12345678901 > big")
    assert artifacts(jobs) == [] and "more than 10 bytes" in jobs.output


def test_a_file_of_another_user_is_no_artifact_of_the_job(jobs, monkeypatch):
    """A hard link to a file of the agent, where the kernel permits it."""
    runner = jobs.runner(command=["true"])
    end = artifacts_module.Artifacts.end

    def plant(self):
        os.link(jobs.home / "host-secret", f"{self._path}/planted")
        return end(self)

    monkeypatch.setattr(artifacts_module.Artifacts, "end", plant)
    runner.run()
    assert artifacts(jobs) == [] and "'planted': it belongs to another user" in jobs.output


RESULTS = {
    "a link to the secret": ("ln -s ../../host-secret $JOB_RESULT", "it is not a regular file"),
    "a pipe": ("mkfifo $JOB_RESULT", "it is not a regular file"),
}


@pytest.mark.parametrize(("script", "reason"), RESULTS.values(), ids=RESULTS)
def test_a_result_that_is_no_regular_file_fails_the_job(jobs, script, reason):
    ending = run(jobs, script)
    assert (ending["outcome"], ending["cause"]) == ("failed", "result")
    assert ending["error"].startswith(f"Failed to read the result: {reason}")


def test_a_huge_result_goes_to_the_bucket_up_to_its_limit(jobs, monkeypatch):
    ending = run(jobs, "head -c 2000000 /dev/zero > $JOB_RESULT")
    assert ending["result_object"] == f"{FOLDER}result.txt"
    assert len(jobs.storage.data(BUCKET, f"{FOLDER}result.txt")) == 2_000_000
    monkeypatch.setattr(job_result, "_MAX_STORED_RESULT_BYTES", 1_000_000)
    ending = run(jobs, "head -c 2000000 /dev/zero > $JOB_RESULT")
    hint = "write it as a file to JOB_ARTIFACTS"
    assert (ending["cause"], ending["error"]) == (
        "result",
        "The result has 2000000 bytes; the limit is 1000000; " + hint,
    )


REPORTS = ["ln -s /etc/passwd report", "echo '[' > report", 'echo \'{"cause": "budget", "error": "x"}\' > report']


@pytest.mark.parametrize("script", REPORTS)
def test_a_forged_report_is_no_cause(jobs, script):
    ending = run(jobs, f"{script}; exit 2")
    assert (ending["cause"], ending["error"]) == ("exit", "The process exited with 2")


def test_the_folder_of_a_job_is_removed_with_any_content(jobs):
    script = "cd $TMPDIR; mkdir locked; touch locked/x; chmod 0 locked; mkdir -p $(printf 'd/%.0s' {1..900})"
    assert run(jobs, script)["outcome"] == "completed"
    assert [name for name in os.listdir(jobs.home / "jobs") if name.startswith("j1")] == []


def test_a_job_without_source_and_config_file_runs_in_its_own_folder(jobs):
    assert run(jobs, 'echo "[$JOB_CONFIG]"; pwd; echo $HOME')["outcome"] == "completed"
    folder = f"{jobs.home}/jobs/j1-e2"
    assert jobs.output == f"[]\n{folder}\n{folder}/home\n"


def test_a_job_reads_the_config_file_of_its_preparation_and_has_no_copy_of_it(jobs, tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("steps: 3\n")
    path.chmod(0o644)
    prepared = PreparedCode(sys.executable, None, RAN, {"JOB_CONFIG": str(path)}, (str(path),))
    environment = {"config_file": {"name": "run.yaml", "text": "steps: 3\n"}}
    command = ["bash", "-c", 'cat "$JOB_CONFIG"; ls']
    ending = jobs.runner(prepare=lambda order: prepared, command=command, environment=environment).run()
    folders = "artifacts\ncheckpoint\nhome\npackages\nprograms\ntmp\n"
    assert (ending["outcome"], jobs.output) == ("completed", f"steps: 3\n{folders}")

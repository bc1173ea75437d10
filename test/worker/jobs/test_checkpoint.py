"""The checkpoint folder of jobs: what an attempt stores, and what the next one finds."""

import hashlib
import json
import os
import re
import signal
from pathlib import Path

import pytest

from build import BUCKET, bucket
from gleaner_worker.jobs import output as output_module
from gleaner_worker.jobs.checkpoint import folder as folder_module
from gleaner_worker.jobs.checkpoint import watch as watch_module
from gleaner_worker.jobs.checkpoint.folder import has_writer, scan
from gleaner_worker.jobs.checkpoint.manifest import Manifest, Piece, StoredFile, parse_manifest
from gleaner_worker.jobs.checkpoint.restore import Unusable, _union
from gleaner_worker.jobs.runner import JobRunner
from job_attempts import ONE_SLICE, an_order, needs_root, start
from waiting import HANG_S, until

pytestmark = [needs_root, pytest.mark.slow]

JOB = "checkpoints/j1/"


class Attempts:
    """The attempts of one job. `versions` are those that the control plane knows, the newest last."""

    def __init__(self, jobs):
        self.jobs, self.epoch = jobs, 0
        self.versions: list[dict] = []
        self.outputs: list[str] = []  # stored before each version was known
        self.problems: list[str] = []
        self.limits = {"max_gb": 100, "max_files": 10_000, "every_s": 0.1}

    def order(self, hosts=1, host=0):
        restored = [
            {"at": f"version {number}", "label": v["label"], "restore_s": HANG_S, "parts": v["parts"]}
            for number, v in enumerate(self.versions)
        ]
        checkpoint = {"bucket": BUCKET, "folder": JOB, "versions": restored[::-1][:2]} | self.limits
        where = {"host": host, "hosts": hosts, "addresses": ["127.0.0.1"] * hosts}
        return {"checkpoint": checkpoint, "fence_s": HANG_S, "slice": ONE_SLICE | where}

    def runner(self, command, epoch=None, host=0, hosts=1, **changes):
        self.epoch = epoch or self.epoch + 1

        def report(version, problem):
            if problem:
                self.problems.append(problem)
            if version:
                self.outputs.append(self.output())
                name = f"{JOB}epoch_{self.epoch}/host_{host}/{version['version']:06d}/manifest.json"
                self.versions.append(version | {"parts": {str(host): {"object": name, "digest": version["digest"]}}})

        order = an_order(command=command, folder=f"jobs/j1/epoch_{self.epoch}/", **self.order(hosts, host) | changes)
        home, jobs = str(self.jobs.home), self.jobs
        return JobRunner(order, self.epoch, home, bucket(), jobs.prepare, jobs.user, report=report)

    def run(self, command, **changes):
        return self.runner(command, **changes).run()

    def run_hosts(self, *scripts):
        """The first attempt, with a host for each script. Its versions become one."""
        for host, script in enumerate(scripts):
            self.run(script, epoch=1, host=host, hosts=len(scripts))
        parts = {host: part for version in self.versions for host, part in version["parts"].items()}
        self.versions = [self.versions[0] | {"parts": parts}]

    def manifest(self, host):
        """The manifest of this host in the newest version."""
        return parse_manifest(self.jobs.storage.data(BUCKET, self.versions[-1]["parts"][host]["object"]), JOB)

    @property
    def home(self):
        return self.jobs.home / "jobs" / f"j1-e{self.epoch}"

    def output(self, host=""):
        storage, folder = self.jobs.storage, f"jobs/j1/epoch_{self.epoch}/{host}output/"
        return b"".join(storage.data(BUCKET, name) for name in storage.names(BUCKET, folder)).decode()


@pytest.fixture
def attempts(jobs, monkeypatch):
    for name, value in (("_LOOK_S", 0.02), ("_SCAN_S", 0.1), ("_ALIVE_S", 0.2)):
        monkeypatch.setattr(watch_module, name, value)
    return Attempts(jobs)


TREE = "find . -type f -print0 | sort -z | xargs -0 -r sha256sum; find . -type l -printf '%p %l\\n'; ls -R"
LIST = f"cd $JOB_CHECKPOINT; {TREE}"


def test_the_next_attempt_finds_the_folder_as_a_good_end_left_it(attempts):
    made = "mkdir -p a/b c; head -c 70000000 /dev/zero > a/b/zeros; echo é > 'a/é \"x'; : > empty; ln -s a/b link"
    assert attempts.run(f"cd $JOB_CHECKPOINT; {made}; chmod 750 empty; {TREE}")["outcome"] == "completed"
    before = attempts.output()
    attempts.run(f"{LIST}; stat -c %a empty; echo more > c/more; rm empty")
    lines = attempts.output().splitlines()
    assert lines[0].startswith("[gleaner] checkpoint of version 0 restored in ")
    assert lines[1:] == [*before.splitlines(), "750"]
    stored = attempts.jobs.storage.names(BUCKET, f"{JOB}epoch_2/")
    assert [name.rsplit("/", 1)[1] for name in stored] == ["000000-0000", "manifest.json"], "only the new file"
    attempts.run(LIST)
    assert "c/more" in attempts.output() and "./empty" not in attempts.output()


def test_a_quiet_folder_is_stored_while_the_job_runs_and_an_unchanged_one_only_once(attempts):
    runner = attempts.runner("cd $JOB_CHECKPOINT; echo 1 > step; sleep 1000")
    wait = start(runner, lambda: attempts.versions)
    runner.request("flush")
    wait()
    assert len(attempts.versions) == 1
    attempts.run("cat $JOB_CHECKPOINT/step")
    assert "\n1\n" in attempts.output()


WRITER = """
import os, signal, time
folder = os.environ["JOB_CHECKPOINT"]
with open(f"{folder}/good.tmp", "w") as file:
    file.write("whole")
os.rename(f"{folder}/good.tmp", f"{folder}/good")
while not os.path.exists(os.environ["HOME"] + "/go"):
    time.sleep(0.02)
with open(f"{folder}/half", "w") as file:
    file.write("half of")
    file.flush()
    END
"""


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), signal.SIGKILL)", "os._exit(3)", "time.sleep(1000)"])
def test_an_end_in_the_middle_of_a_save_leaves_the_version_before(attempts, end):
    runner = attempts.runner(["python3", "-c", WRITER.replace("END", end)])
    wait = start(runner, lambda: attempts.versions)
    (attempts.home / "home" / "go").touch()
    if "sleep" in end:
        until((attempts.home / "checkpoint" / "half").exists)
        runner.request("flush")
    wait()
    attempts.run("cd $JOB_CHECKPOINT; ls; cat good")
    assert attempts.output().splitlines()[1:] == ["good", "whole"]


def test_a_program_names_its_moments(attempts):
    script = """cd $JOB_CHECKPOINT
    save() { echo $1 > step; echo "step $1" > .save.tmp; mv .save.tmp .save; while [ -e .save ]; do sleep 0.02; done; }
    save 1; save 2; echo broken > step; exit 0"""
    attempts.run(script)
    assert [version["label"] for version in attempts.versions] == ["step 1", "step 2"]
    attempts.run("cat $JOB_CHECKPOINT/step")
    assert attempts.output().splitlines()[0].startswith("[gleaner] checkpoint of version 1 (step 2) restored")
    assert attempts.output().splitlines()[1:] == ["2"]


def test_the_output_before_a_version_is_stored_before_it_is_known(attempts, monkeypatch):
    monkeypatch.setattr(output_module, "EVERY_S", 1000)
    for _ in range(2):
        attempts.run("echo x >> $JOB_CHECKPOINT/file")
    assert re.fullmatch(r"\[gleaner\] checkpoint of version 0 restored in .* s\n", attempts.outputs[1])


def test_a_signal_leaves_time_for_a_last_version(attempts):
    end = "trap 'echo last > step; exit 0' TERM"
    runner = attempts.runner(f"cd $JOB_CHECKPOINT; {end}; touch $HOME/ready; while :; do sleep 0.05; done")
    wait = start(runner, (attempts.home / "home" / "ready").exists)
    runner.request("cancel")
    wait()
    attempts.run("cat $JOB_CHECKPOINT/step")
    assert attempts.output().splitlines()[1:] == ["last"]


def test_a_damaged_version_is_told_and_the_one_before_is_restored(attempts):
    for number in (1, 2, 3):
        attempts.run(f"head -c {number} /dev/zero > $JOB_CHECKPOINT/x")
    [damaged] = [n for n in attempts.jobs.storage.names(BUCKET, f"{JOB}epoch_3/") if n.endswith("-0000")]
    attempts.jobs.storage.put(BUCKET, damaged, b"abc")
    assert attempts.run("stat -c %s $JOB_CHECKPOINT/x")["outcome"] == "completed"
    assert attempts.output().splitlines()[-1] == "2" and "has other bytes than were stored" in attempts.problems[0]
    attempts.versions = attempts.versions[2:3]
    ending = attempts.run("true")
    assert (ending["outcome"], ending["cause"]) == ("failed", "checkpoint")


def test_a_folder_over_its_limits_is_named_and_the_last_version_stays(attempts):
    attempts.run("echo 1 > $JOB_CHECKPOINT/x")
    attempts.limits["max_files"] = 3
    runner = attempts.runner("cd $JOB_CHECKPOINT; touch 1 2 3 4; sleep 1000")
    wait = start(runner, lambda: attempts.problems)
    runner.request("flush")
    wait()
    assert attempts.problems == ["it has over 3 files: raise checkpoint.max_files, or keep fewer"]
    assert len(attempts.versions) == 1 and f"checkpoint: {attempts.problems[0]}" in attempts.output()


def test_a_planted_manifest_changes_nothing(attempts):
    attempts.run("echo mine > $JOB_CHECKPOINT/x")
    [name] = [n for n in attempts.jobs.storage.names(BUCKET, JOB) if n.endswith("manifest.json")]
    attempts.jobs.storage.put(BUCKET, name, json.dumps({"files": {}, "folders": {}, "links": {}}).encode())
    ending = attempts.run("true")
    assert ending["cause"] == "checkpoint" and "is not the manifest that was stored" in ending["error"]


def a_file(name="checkpoints/j1/epoch_1/host_0/000001/000000-0000"):
    return {"mode": 0o600, "mtime_ns": 1, "pieces": [{"object": name, "size": 1, "sha256": "0" * 64}]}


@pytest.mark.parametrize(
    "raw",
    [
        {"files": {"../x": a_file()}},
        {"files": {"/etc/x": a_file()}},
        {"files": {"x": a_file("checkpoints/j2/epoch_1/host_0/000001/000000-0000")}},
        {"files": {"x": a_file("checkpoints/j1/own/x")}},
        {"files": {"x": a_file("checkpoints/j1/epoch_1/host_0/../../../j2/1")}},
        {"files": {"x": {}}},
        [],
    ],
)
def test_a_manifest_names_paths_in_the_folder_and_objects_of_the_job_alone(raw):
    data = json.dumps({"files": {}, "folders": {}, "links": {}} | raw if isinstance(raw, dict) else raw).encode()
    with pytest.raises(ValueError, match="no path|no object|no manifest"):
        parse_manifest(data, JOB)


def test_the_hosts_of_an_attempt_find_the_files_of_all_and_store_their_own(attempts):
    files = [f"echo {host} > {name}; echo {name} > both" for host, name in enumerate(("zero", "one"))]
    attempts.run_hosts(*(f"cd $JOB_CHECKPOINT; {each}" for each in files))
    attempts.run("cd $JOB_CHECKPOINT; grep . *; echo 2 > two", host=1, hosts=2)
    assert attempts.output("host_1/").splitlines()[1:] == ["both:one", "one:1", "zero:0"]
    assert sorted(attempts.manifest("1").files) == ["both", "one", "two"]


def test_one_host_keeps_what_the_hosts_of_a_larger_attempt_left(attempts):
    script = "cd $JOB_CHECKPOINT; mkdir of{0}; echo {0} > of{0}/file; ln -s of{0} link{0}"
    attempts.run_hosts(script.format(0), script.format(1))
    attempts.run("echo new > $JOB_CHECKPOINT/new")
    attempts.run("cd $JOB_CHECKPOINT; cat new link0/file link1/file")
    assert attempts.output().splitlines()[1:] == ["new", "0", "1"]


def test_a_host_names_no_folder_or_link_of_another_host(attempts):
    attempts.run_hosts("cd $JOB_CHECKPOINT; mkdir step_1; ln -s step_1 latest", "true")
    attempts.run("readlink $JOB_CHECKPOINT/latest; echo 1 > $JOB_CHECKPOINT/own", host=1, hosts=2)
    manifest = attempts.manifest("1")
    assert (list(manifest.files), manifest.folders, manifest.links) == (["own"], {}, {})


def test_a_process_that_a_new_source_ends_in_the_middle_of_a_save_gets_another_attempt(attempts):
    runner = attempts.runner("cd $JOB_CHECKPOINT; echo 1 > x; sleep 1000")
    wait = start(runner, lambda: attempts.versions)
    runner.restart(attempts.jobs.prepare())
    assert wait()["ending"]["outcome"] == "drained"


def test_a_file_of_one_host_never_lies_below_a_link_of_another():
    file = StoredFile(0o600, 1, (Piece("x", 1, "0" * 64),))
    with pytest.raises(Unusable):
        _union([Manifest(links={"a": "b"}), Manifest(files={"a/x": file}, folders={"a": 0o700})])


def test_a_lost_lease_stores_nothing_more(attempts, monkeypatch):
    monkeypatch.setattr(watch_module, "_SCAN_S", HANG_S)
    runner = attempts.runner("trap 'exit 0' TERM; echo 1 > $JOB_CHECKPOINT/x; while :; do sleep 0.05; done")
    wait = start(runner, (attempts.home / "checkpoint" / "x").exists)
    runner.request("stop")
    assert "error" in wait() and attempts.jobs.storage.names(BUCKET, JOB) == []


def test_a_scan_leaves_out_what_is_no_file_of_the_job(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "out").symlink_to("/etc/passwd")
    (tmp_path / "up").symlink_to("../x")
    (tmp_path / "in").symlink_to("sub/../file")
    (tmp_path / "file").write_text("x")
    (tmp_path / ".save").write_text("label")
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))).write_text("x")
    found = scan(str(tmp_path), os.geteuid(), ".save", 100)
    assert found is not None and set(found.files) == {"file"} and found.links == {"in": "sub/../file"}
    assert set(found.left_out) == {"pipe", "out", "up", "\udcff"}
    theirs = scan(str(tmp_path), os.geteuid() + 1, ".save", 100)
    assert theirs is not None and theirs.files == {}


def test_a_writer_is_seen_also_through_a_mapping(tmp_path):
    import mmap

    path = tmp_path / "file"
    path.write_bytes(b"x" * 4096)
    with open(path, "rb") as reader:
        fd = reader.fileno()
        assert has_writer(fd) is False
        with open(path, "r+b") as file:
            assert has_writer(fd) is True
            mapped = mmap.mmap(file.fileno(), 4096)
        assert has_writer(fd) is True
        mapped.close()
        assert has_writer(fd) is False
    assert signal.getsignal(signal.SIGIO) == signal.SIG_IGN


def test_a_file_that_is_swapped_for_a_link_is_not_followed(tmp_path):
    root, secret = tmp_path / "root", tmp_path / "secret"
    root.mkdir()
    (root / "x").write_text("x")
    found = scan(str(root), os.geteuid(), "", 100)
    secret.write_text("secret")
    (root / "x").unlink()
    (root / "x").symlink_to(secret)
    assert found is not None
    assert not folder_module.link_file(str(root), "x", str(tmp_path / "copy"), found.files["x"], os.geteuid())
    assert hashlib.sha256(secret.read_bytes()).hexdigest() not in str(os.listdir(root))

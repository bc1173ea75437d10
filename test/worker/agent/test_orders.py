"""Orders of heartbeats: commands of people on this host, and new versions of the pool's source."""

import contextlib
import os
import signal
import sys
import threading
from collections import deque
from types import SimpleNamespace

import pytest

from build import BUCKET, bucket
from gleaner_worker.agent.orders import Orders
from gleaner_worker.jobs.prepared_code import SourceFailed
from gleaner_worker.jobs.user import FIRST_UID, NotIsolated, find_job_user
from job_attempts import UV_CACHE, a_host, commands_of, needs_root, processes_of
from source_preparation import NOTHING
from waiting import HANG_S, until

pytestmark = [needs_root, pytest.mark.slow]


class Api:
    """Answers as worker-api does, and keeps the ends of commands."""

    def __init__(self):
        self.execs: dict[str, dict] = {}
        self.ends: dict[str, tuple] = {}
        self.answer = {"action": "source", "version": 0, "source": None, "environment": NOTHING}

    def exec(self, exec_id, give_up_after_s):
        found = self.execs.get(exec_id)
        return {"action": "exec", "exec": found} if found else {"action": "none"}

    def exec_end(self, exec_id, outcome, exit_code, error, give_up_after_s):
        assert exec_id not in self.ends
        self.ends[exec_id] = (outcome, exit_code, error)

    def source(self, give_up_after_s):
        return self.answer


class Host:
    def __init__(self, storage, home):
        self.storage, self.api, self.env = storage, Api(), a_host(home)
        self.identity = SimpleNamespace(home=str(home), git_host=None)
        self.orders = self.make(lambda: find_job_user(self.env))

    def make(self, find_user):
        return Orders(self.identity, self.api, lambda lease: bucket(), find_user)

    def follow(self, *exec_ids):
        """Follows an answer to a heartbeat that names these commands."""
        self.orders.follow({"execs": list(exec_ids), "source_version": 0})

    def add(self, exec_id, *argv, **changes):
        """Gives worker-api a command."""
        order = {"id": exec_id, "argv": list(argv), "shell": False, "timeout_s": HANG_S}
        order |= {"folder": f"execs/{exec_id}/tpu-us-central1-a-0/0/", "source": None, "environment": NOTHING}
        self.api.execs[exec_id] = order | changes

    def exec(self, exec_id, *argv, **changes):
        self.add(exec_id, *argv, **changes)
        for _ in range(3):  # heartbeats name a command until its end is known
            self.follow(exec_id)
        return self.end(exec_id), self.output(exec_id)

    def end(self, exec_id):
        until(lambda: exec_id in self.api.ends)
        return self.api.ends[exec_id]

    def output(self, exec_id):
        names = self.storage.names(BUCKET, f"execs/{exec_id}/")
        return b"".join(self.storage.data(BUCKET, name) for name in names).decode()

    def update(self, version, source=None, **environment):
        """Gives the pool a new version. Returns the final report of the version."""
        answer = {"version": version, "source": source, "environment": NOTHING | environment}
        self.api.answer |= answer
        self.orders.follow({"execs": [], "source_version": version})
        until(lambda: (r := self.orders.report()) and r["version"] == version and r["status"] != "preparing")
        return self.orders.report()


@pytest.fixture
def host(storage, tmp_path, monkeypatch):
    monkeypatch.setenv("UV_CACHE_DIR", UV_CACHE)
    yield Host(storage, tmp_path / "home")
    for pid in processes_of(tmp_path / "home"):  # of a preparation that a test left
        with contextlib.suppress(ProcessLookupError):  # it can end by itself
            os.kill(pid, signal.SIGKILL)


def test_a_command_runs_once_as_the_job_user_and_its_output_is_stored(host):
    end, output = host.exec("e1", "sh", "-c", 'echo "$@"; echo err >&2; id -u; exit 3', "$HOME; id", "a", "*")
    *lines, uid = sorted(output.splitlines(), key=str.isdigit)
    assert (end, sorted(lines)) == (("exited", 3, None), ["a *", "err"]) and int(uid) >= FIRST_UID


def test_a_shell_command_runs_in_a_shell(host):
    assert host.exec("e1", "echo $((6 * 7)) | tr 4 5", shell=True)[1] == "52\n"


def test_the_shared_memory_of_a_command_is_smaller_than_the_memory_of_its_host(host):
    (_, code, _), text = host.exec("e1", "df", "-B1", "--output=size", "/dev/shm")
    assert code == 0 and int(text.split()[-1]) < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.mark.long
def test_a_command_that_leaves_a_deep_folder_ends_with_its_exit_code(host, tmp_path):
    code = "import os\nfor _ in range(3000):\n os.mkdir('d')\n os.chdir('d')"
    assert host.exec("e1", sys.executable, "-c", code)[0] == ("exited", 0, None)
    until(lambda: not list((tmp_path / "home" / "jobs").glob("exec-*")))


def test_a_command_ends_at_its_timeout(host):
    assert host.exec("e1", "sleep", "1000", timeout_s=0.5)[0][0] == "timeout"


def test_a_command_reads_no_secret_of_the_host(host):
    end, output = host.exec("e1", "cat", f"{host.identity.home}/host-secret")
    assert end[1] != 0 and "5e5e" not in output


def test_a_command_that_worker_api_reports_as_ended_is_not_run(host):
    host.follow("gone")
    until(lambda: list(host.orders._commands._ended) == ["gone"])
    assert host.api.ends == {}


def test_a_command_that_an_earlier_agent_began_does_not_run_again(host, tmp_path):
    begun = tmp_path / "home" / "execs"
    begun.mkdir()
    (begun / "e1").touch()
    end, output = host.exec("e1", "echo", "again")
    assert end[0] == "refused" and "restarted" in end[2] and output == ""
    until(lambda: not (begun / "e1").exists())


def test_a_host_without_isolation_refuses_a_command_with_its_reason(host):
    def refuse():
        raise NotIsolated("Failed to isolate jobs: the agent runs without root")

    host.orders = host.make(refuse)
    assert host.exec("e1", "id")[0] == ("refused", None, "Failed to isolate jobs: the agent runs without root")


def test_a_new_version_is_prepared_and_reported(host, server):
    commit = server.commit({"main.py": "one"})
    report = host.update(1, {"repo": server.repo, "branch": "main"})
    assert (report["status"], report["ran"]["commit"], report["error"]) == ("ready", commit, None)
    assert host.orders.changed.is_set()


def test_a_version_that_fails_is_reported_and_the_next_one_is_prepared(host, server):
    server.commit({"main.py": "one"})
    report = host.update(1, {"repo": server.repo, "branch": "nowhere"})
    assert report["status"] == "failed" and "refs/heads/nowhere" in report["error"]
    assert host.update(2, {"repo": server.repo, "branch": "main"})["status"] == "ready"


def test_only_a_job_of_an_older_pool_version_restarts_with_the_new_version(host, server):
    server.commit({"main.py": "one"})
    restarted = []
    for version, of_job in ((1, 0), (2, None), (3, 3)):  # the third job began with the new version
        runner = SimpleNamespace(
            order={"source_version": of_job}, restart=lambda prepared, number=version: restarted.append(number)
        )
        host.orders.attach(runner)
        host.update(version, {"repo": server.repo, "branch": "main"})
        host.orders.detach()
    assert restarted == [1]


def test_a_version_that_fails_restarts_no_job(host, server):
    restarted = threading.Event()
    host.orders.attach(SimpleNamespace(order={"source_version": 0}, restart=lambda _: restarted.set()))
    host.update(1, {"repo": server.repo, "branch": "nowhere"})
    assert not restarted.is_set()


def test_a_command_runs_while_a_new_version_is_in_preparation(host, tmp_path):
    host.update(1, setup_script="true")
    host.api.answer |= {"version": 2, "environment": NOTHING | {"setup_script": "sleep 1000"}}
    host.orders.follow({"execs": [], "source_version": 2})
    until(lambda: host.orders.report()["version"] == 2)
    end, output = host.exec(
        "e1", "python", "-c", "import sys; print(sys.prefix)", environment=host.api.answer["environment"]
    )
    assert end == ("exited", 0, None) and f"{tmp_path}/home/jobs/environments" in output
    assert host.orders.report()["status"] == "preparing"


def test_a_command_that_this_host_cannot_start_is_refused_with_the_reason(host, tmp_path):
    (tmp_path / "home" / "jobs").write_text("in the way")
    end, _ = host.exec("e1", "id")
    assert end[0] == "refused" and end[2].startswith("Failed to run the command: FileExistsError: ")
    until(lambda: os.listdir(tmp_path / "home" / "execs") == [])


def test_the_end_of_a_command_is_reported_again_after_a_lost_report(host):
    report, lost = host.api.exec_end, iter([True, False])

    def lose_the_first(*arguments):
        if next(lost):
            raise OSError("no answer")
        report(*arguments)

    host.api.exec_end = lose_the_first
    host.add("e1", "sh", "-c", "exit 4")
    host.follow("e1")
    until(lambda: not host.orders._commands._running)
    host.orders = host.make(lambda: find_job_user(host.env))  # another agent
    host.follow("e1")
    assert host.end("e1") == ("exited", 4, None)


def test_a_command_that_runs_is_known_after_many_other_commands(host):
    commands = host.orders._commands
    commands._ended = deque(maxlen=2)
    host.add("e1", "sleep", "1000")
    host.follow("e1", *(f"gone-{number}" for number in range(5)))
    until(lambda: commands._running == {"e1"} and "sleep 1000" in commands_of(host.identity.home))
    assert len(commands._ended) == 2
    host.follow("e1")
    for pid in processes_of(host.identity.home):
        os.kill(pid, signal.SIGTERM)
    assert host.end("e1") == ("exited", 128 + signal.SIGTERM, None)


def fail(*_):
    raise OSError("a fault of the test")


@pytest.mark.parametrize("step", ["remove", "json.dump"])
def test_the_end_of_a_command_is_reported_after_a_failed_clean_up_or_a_failed_write(host, monkeypatch, step):
    host.add("e1", "sh", "-c", "exit 4")
    with monkeypatch.context() as patch:
        patch.setattr(f"gleaner_worker.agent.host_commands.{step}", fail)
        host.follow("e1")
        until(lambda: not host.orders._commands._running)
    assert host.api.ends == {}
    host.follow("e1")
    assert host.end("e1") == ("exited", 4, None)


@pytest.mark.long
def test_the_preparation_of_a_job_ends_when_its_lease_is_lost(host):
    order = {"source": None, "environment": NOTHING | {"setup_script": "sleep 1000"}, "source_version": None}
    runner = SimpleNamespace(order=order, ended=threading.Event())
    host.orders.attach(runner)
    threading.Thread(
        target=lambda: (until(lambda: "sleep 1000" in commands_of(host.identity.home)), runner.ended.set())
    ).start()
    with pytest.raises(SourceFailed) as failed:
        host.orders.prepare(order)
    assert failed.value.cause == "machine"


def test_a_command_runs_in_the_source_of_the_pool(host, server):
    server.commit({"main.py": "print('from the source')"})
    source = {"repo": server.repo, "branch": "main"}
    end, output = host.exec("e1", "python", "main.py", source=source)
    assert (end, output) == (("exited", 0, None), "from the source\n")

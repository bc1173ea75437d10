"""Models from a hub: the real huggingface_hub against a hub on loopback."""

import functools
import json
import logging
import os
import subprocess
import threading

import pytest

from build import BUCKET, a_spec, bucket
from fake_hub import FakeHub
from gleaner_worker.failures import Failure, LeaseLost
from gleaner_worker.model import download, model_cache
from gleaner_worker.model.hub import Hub, is_endpoint, is_hub_id, own_hub
from gleaner_worker.model.model_lock import find_run_model
from gleaner_worker.model.model_source import find_model

pytestmark = pytest.mark.slow

REPO = "an-org/a-model"
TOKEN = "hf_TokenOfTheTestThatNobodyMaySee"
USED = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]


@pytest.fixture
def hub(monkeypatch, storage):
    monkeypatch.setattr(download, "FIRST_WAIT_S", 0.02)
    for name in ("HF_TOKEN", "HF_ENDPOINT", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    fake = FakeHub()
    yield fake
    fake.close()


def files_of(folder, **changes):
    files = {}
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), "rb") as file:
            files[name] = file.read()
    return files | changes


def find(hub, home, model=REPO, revision=None, token=None, weights=True, check=lambda: None):
    where = Hub(hub.url(), lambda: token)
    return find_model(model, str(home), bucket(check), revision=revision, hub=where, weights=weights)


def kept(home):
    return {name for name in os.listdir(home / "models") if not name.endswith(".lock")}


def test_a_model_comes_whole_at_the_commit_of_its_branch_and_nothing_else_does(hub, tmp_path, tiny_folder):
    files = files_of(tiny_folder)
    others = {
        "README.md": b"#",
        "modeling.py": b"import os",
        "pytorch_model.bin": b"pickled",
        "consolidated.safetensors": b"the same weights again",
        "generation_config.json": b"{}",
        "onnx/model.safetensors": b"elsewhere",
        "../../escaped.safetensors": b"x",
        "/etc/config.json": b"x",
    }
    commit = hub.put(REPO, files | others)
    found = find(hub, tmp_path)
    assert (found.revision, found.name, sorted(found.files)) == (commit, REPO, USED)
    assert sorted(os.listdir(found.folder)) == USED
    assert files_of(found.folder) == files
    fetched = {path.rpartition("/")[2] for path in hub.asked(method="GET") if "/resolve/" in path}
    assert fetched == set(USED)
    assert all(commit in path for path in hub.asked() if "/resolve/" in path)
    assert not any("telemetry" in path for path in hub.asked())
    assert find_model(tiny_folder, "", None).fingerprint == found.fingerprint


def test_without_weights_only_the_small_files_come(hub, tmp_path, tiny_folder):
    hub.put(REPO, files_of(tiny_folder))
    found = find(hub, tmp_path, weights=False)
    assert sorted(found.files) == [name for name in USED if name != "model.safetensors"]
    assert (found.fingerprint, found.weights_sha256) == (None, None)
    assert hub.asked("cdn") == []
    assert find(hub, tmp_path).weights_sha256  # what was fetched without weights is not taken for a model


def test_of_several_files_of_weights_those_of_the_index_come(hub, tmp_path, tiny_folder):
    files = files_of(tiny_folder)
    weights = files.pop("model.safetensors")
    names = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    index = json.dumps({"weight_map": {"a": names[0], "b": names[1], "c": names[1]}}).encode()
    split = {names[0]: weights[:1000], names[1]: weights[1000:]}
    hub.put(REPO, files | split | {"model.safetensors.index.json": index, "model.safetensors": weights})
    found = find(hub, tmp_path)
    assert [name for name in sorted(found.files) if name.startswith("model")] == [
        *names,
        "model.safetensors.index.json",
    ]
    assert sorted(path.rpartition("/")[2] for path in hub.asked("cdn")) == names


def test_a_commit_that_is_here_is_not_asked_for_again(hub, tmp_path, tiny_folder):
    commit = hub.put(REPO, files_of(tiny_folder))
    first = find(hub, tmp_path)
    asked = len(hub.requests)
    again = find(hub, tmp_path, revision=commit)
    assert (again.folder, again.files, len(hub.requests)) == (first.folder, first.files, asked)
    by_branch = find(hub, tmp_path, revision="main")
    assert by_branch.folder == first.folder
    assert len(hub.requests) == asked + 1  # which commit it is now


@pytest.mark.parametrize("revision", ["main", "v1.0", "refs/pr/2", None])
def test_a_revision_may_be_a_branch_a_tag_or_a_pull_request(hub, tmp_path, tiny_folder, revision):
    commit = hub.put(REPO, files_of(tiny_folder), branch=revision or "main")
    assert find(hub, tmp_path, revision=revision).revision == commit


def test_a_name_without_an_organisation_is_one_too(hub, tmp_path, tiny_folder):
    commit = hub.put("gpt", files_of(tiny_folder))
    assert find(hub, tmp_path, "gpt").revision == commit


# --- interruptions -------------------------------------------------------------------------------------------------


def once(*faults):
    """Each fault happens to one request of the CDN, in turn."""
    left = list(faults)
    return lambda server, method, path: left.pop(0) if server == "cdn" and left else None


def test_a_download_that_breaks_off_goes_on_where_it_was(hub, tmp_path, tiny_folder):
    files = files_of(tiny_folder)
    hub.put(REPO, files)
    hub.faults = once(("cut", 40_000), ("cut", 30_000))
    assert files_of(find(hub, tmp_path).folder) == files
    ranges = [headers.get("range") for server, _, _, headers in hub.requests if server == "cdn"]
    assert ranges == [None, "bytes=40000-", "bytes=70000-"]
    assert hub.sent == len(files["model.safetensors"])


def test_a_download_that_was_ended_goes_on_with_the_next_process(hub, tmp_path, tiny_folder):
    files = files_of(tiny_folder)
    hub.put(REPO, files)
    hub.faults = once(("slow", 0.01))

    def received():
        return sum(part.stat().st_size for part in tmp_path.glob("models/*/model.safetensors.part"))

    def check():
        if hub.sent > 50_000 and received() > 0:
            raise LeaseLost

    with pytest.raises(LeaseLost):
        find(hub, tmp_path, check=check)
    begin = received()
    assert 0 < begin < len(files["model.safetensors"])
    assert files_of(find(hub, tmp_path).folder) == files
    assert [headers.get("range") for server, _, _, headers in hub.requests if server == "cdn"][-1] == f"bytes={begin}-"


def test_what_an_earlier_attempt_left_may_be_anything(hub, tmp_path, tiny_folder):
    files = files_of(tiny_folder)
    hub.put(REPO, files)
    folder = find(hub, tmp_path).folder
    size = len(files["model.safetensors"])
    for left in (b"x" * 10, b"x" * size, b"x" * (size + 1), b""):
        os.rename(folder, f"{folder}.unfinished")
        os.remove(os.path.join(f"{folder}.unfinished", "model.safetensors"))
        with open(os.path.join(f"{folder}.unfinished", "model.safetensors.part"), "wb") as file:
            file.write(left)
        assert files_of(find(hub, tmp_path).folder) == files


@pytest.mark.parametrize(
    ("where", "status"),
    [("/api/", 503), ("/resolve/", 503), *(("cdn", status) for status in (408, 429, 500, 502, 503, 504))],
)
def test_a_hub_that_is_away_for_a_moment_is_waited_for(hub, tmp_path, tiny_folder, where, status):
    hub.put(REPO, files_of(tiny_folder))
    failed = []

    def fault(server, method, path):
        if (where == server or where in path) and len(failed) < 2:
            failed.append(path)
            return status
        return None

    hub.faults = fault
    assert sorted(find(hub, tmp_path).files) == USED
    assert len(failed) == 2


def test_a_hub_that_stays_away_is_given_up(hub, tmp_path, tiny_folder, monkeypatch):
    monkeypatch.setattr(download, "GIVE_UP_AFTER_S", 2.0)
    hub.put(REPO, files_of(tiny_folder))
    hub.faults = lambda server, method, path: 503 if server == "cdn" else None
    reason = f"Failed to download the model {REPO} from {hub.url()}: it answers 503; let this machine reach it, or copy"
    with pytest.raises(Failure, match=reason) as failure:
        find(hub, tmp_path)
    assert failure.value.kind == "infrastructure"
    with pytest.raises(Failure, match="ConnectError.*let this machine reach it") as failure:
        find_model(REPO, str(tmp_path), None, hub=Hub("http://127.0.0.1:9"))
    assert failure.value.kind == "infrastructure"
    assert all(name.endswith(".unfinished") for name in kept(tmp_path))


def test_a_file_that_only_trickles_in_is_given_up(hub, tmp_path, tiny_folder, monkeypatch):
    monkeypatch.setattr(download, "GIVE_UP_AFTER_S", 2.0)
    hub.put(REPO, files_of(tiny_folder))
    hub.faults = lambda server, method, path: ("slow", 0.5) if server == "cdn" else None
    with pytest.raises(Failure, match="model.safetensors comes too slowly"):
        find(hub, tmp_path)


def test_a_lost_lease_ends_the_waiting(hub, tmp_path, tiny_folder):
    hub.put(REPO, files_of(tiny_folder))
    hub.faults = lambda server, method, path: 503
    asked = []

    def check():
        asked.append(1)
        if len(asked) > 2:
            raise LeaseLost

    with pytest.raises(LeaseLost):
        find(hub, tmp_path, check=check)


def test_when_one_file_fails_the_others_are_given_up_and_the_cause_is_told(hub, tmp_path, tiny_folder):
    files = files_of(tiny_folder)
    names = [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
    index = json.dumps({"weight_map": dict(zip("abc", names, strict=True))}).encode()
    shards = dict.fromkeys(names, bytes(300_000))
    hub.put(REPO, files | shards | {"model.safetensors.index.json": index})

    def fault(server, method, path):
        if server != "cdn":
            return None
        return 418 if path.endswith(names[2]) else ("slow", 0.05)

    hub.faults = fault
    with pytest.raises(Failure, match=rf"Failed to download the model {REPO}: HfHubHTTPError: .*418"):
        find(hub, tmp_path)
    assert hub.sent < 600_000


# --- content ---------------------------------------------------------------------------------------------------------


def test_weights_that_arrive_damaged_are_fetched_again(hub, tmp_path, tiny_folder, caplog):
    files = files_of(tiny_folder)
    hub.put(REPO, files)
    hub.faults = once(("flip", 0))
    assert files_of(find(hub, tmp_path).folder) == files
    assert f"model.safetensors of {REPO} arrived damaged" in caplog.text


def test_weights_that_are_not_what_the_hub_says_are_never_used(hub, tmp_path, tiny_folder):
    hub.put(REPO, files_of(tiny_folder))
    hub.faults = lambda server, method, path: ("flip", 0) if server == "cdn" else None
    with pytest.raises(
        Failure, match="model.safetensors of an-org/a-model: its sha256 is .*, and the hub says "
    ) as failure:
        find(hub, tmp_path)
    assert failure.value.kind == "infrastructure"
    (left,) = kept(tmp_path)
    assert left.endswith(".unfinished")
    assert "model.safetensors" not in os.listdir(tmp_path / "models" / left)


@pytest.mark.parametrize(
    ("where", "body", "reason"),
    [
        ("/api/", b"<html>Sign in to the network", "does not answer as a hub does: JSONDecodeError"),
        ("/api/", b"[]", "does not answer as a hub does"),
        ("/api/", b'{"id": "x"}', "it names no commit"),
        ("/api/", b'{"id": "x", "sha": "main", "siblings": []}', "it names no commit"),
        ("/api/", b'{"id": "x", "sha": "%s", "siblings": [{"rfilename": 3}, 4]}' % (b"a" * 40), "as a hub does"),
    ],
)
def test_an_answer_that_is_none_is_told(hub, tmp_path, tiny_folder, where, body, reason):
    hub.put(REPO, files_of(tiny_folder))
    hub.faults = lambda server, method, path: ("body", body) if where in path else None
    with pytest.raises(Failure, match=reason) as failure:
        find(hub, tmp_path)
    assert failure.value.kind == "infrastructure"


def test_a_hub_that_answers_for_another_commit_is_not_believed(hub, tmp_path, tiny_folder):
    commit = hub.put(REPO, files_of(tiny_folder))
    hub.branches[REPO]["b" * 40] = commit
    with pytest.raises(Failure, match=f"asked for commit {'b' * 40}, it names {commit}"):
        find(hub, tmp_path, revision="b" * 40)


def test_a_file_of_another_commit_is_not_taken(hub, tmp_path, tiny_folder):
    commit = hub.put(REPO, files_of(tiny_folder))
    answer = hub._answer

    def other(server, method, path, headers):
        status, headers, body = answer(server, method, path, headers)
        return status, headers | ({"X-Repo-Commit": "d" * 40} if "tokenizer.json" in path else {}), body

    hub._answer = other
    with pytest.raises(Failure, match=f"tokenizer.json of commit {commit} comes from 'dddd"):
        find(hub, tmp_path)


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "revision", "is_gated", "token", "reason"),
    [
        (
            "an-org/absent",
            None,
            False,
            None,
            "absent .401.: .* shows no such model; correct `model` in run.json, or if it is "
            "private open it to an account, and store a token of it in the secret that GLEANER_HF_TOKEN_SECRET names",
        ),
        ("an-org/absent", None, False, TOKEN, "absent .404.: .*no such model; .* open it to the token's account"),
        ("an-org/closed", None, False, "hf_other", "closed .404.: .* shows no such model"),
        (
            "an-org/closed",
            None,
            True,
            None,
            "closed .401.: it is gated or private; accept its conditions at http.*/an-org/closed "
            "with an account, and store a token",
        ),
        (
            "an-org/closed",
            None,
            True,
            "hf_other",
            "closed .403.: .*accept its conditions at .* with the token's account",
        ),
        (REPO, "v9", False, None, "a-model .404.: it has no revision 'v9'; correct `revision` in run.json"),
        (REPO, "e" * 40, False, None, f"it has no revision '{'e' * 40}'"),
        (REPO, "../../x", False, None, "'../../x' is no revision"),
        (REPO, "a b", False, None, "'a b' is no revision"),
    ],
)
def test_what_a_hub_refuses_is_told_with_what_to_do(
    hub, tmp_path, tiny_folder, model, revision, is_gated, token, reason
):
    hub.put(REPO, files_of(tiny_folder))
    hub.put("an-org/closed", files_of(tiny_folder))
    hub.tokens["an-org/closed"] = {TOKEN}
    hub.is_gated = is_gated
    with pytest.raises(Failure, match=reason) as failure:
        find(hub, tmp_path, model, revision, token)
    assert failure.value.kind == "model"
    assert token is None or token not in str(failure.value)


def test_a_token_that_is_not_valid_is_told(hub, tmp_path, tiny_folder):
    hub.put(REPO, files_of(tiny_folder))
    hub.faults = lambda server, method, path: 401
    with pytest.raises(Failure, match="refuses the token; store a valid one in the secret that") as failure:
        find(hub, tmp_path, token=TOKEN)
    assert failure.value.kind == "model"


@pytest.mark.parametrize(
    ("lacking", "added", "reason"),
    [
        ("config.json", {}, "it has no config.json"),
        ("tokenizer.json", {}, "it has no tokenizer.json: put the tokenizer's own tokenizer.json beside config.json"),
        (
            "tokenizer.json",
            {"tokenizer.model": b"x"},
            "no tokenizer.json, only tokenizer.model: make it once with transformers",
        ),
        (
            "model.safetensors",
            {"pytorch_model.bin": b"x"},
            "pickled weights only .pytorch_model.bin., which are never read",
        ),
        ("model.safetensors", {}, "it has no model.safetensors and no model.safetensors.index.json"),
    ],
)
def test_what_a_model_lacks_is_told_before_its_weights_come(hub, tmp_path, tiny_folder, lacking, added, reason):
    files = files_of(tiny_folder, **added)
    del files[lacking]
    hub.put(REPO, files)
    with pytest.raises(Failure, match=f"Failed to use the model {REPO}: .*{reason}") as failure:
        find(hub, tmp_path)
    assert failure.value.kind == "model"
    assert hub.asked("cdn") == []


# --- the token -------------------------------------------------------------------------------------------------------


def test_the_token_goes_to_the_hub_and_not_where_it_redirects_to(hub, tmp_path, tiny_folder, caplog):
    caplog.set_level(logging.DEBUG)
    hub.put(REPO, files_of(tiny_folder))
    hub.tokens[REPO] = {TOKEN}
    hub.faults = once(503, ("cut", 1000))
    find(hub, tmp_path, token=TOKEN)
    sent = {(server, headers.get("authorization")) for server, _, _, headers in hub.requests}
    assert sent == {("hub", f"Bearer {TOKEN}"), ("cdn", None)}
    assert TOKEN not in caplog.text
    assert "of-the-cdn" not in caplog.text  # the signature that opens the file to whoever has it
    assert TOKEN not in repr(Hub(hub.url(), functools.partial(str, TOKEN)))
    for folder, _, names in os.walk(tmp_path):
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                assert TOKEN.encode() not in file.read()


def test_a_token_that_a_server_sends_back_stays_out_of_the_reason(hub, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(download, "GIVE_UP_AFTER_S", 0.1)
    hub.put(REPO, {"config.json": b"{}"})
    for status in (418, 500):
        hub._answer = lambda *_, status=status: (status, {"X-Error-Message": f"you sent {TOKEN}"}, TOKEN.encode())
        with pytest.raises(Failure) as failure:
            find(hub, tmp_path, token=TOKEN)
        assert TOKEN not in str(failure.value)
        assert failure.value.__suppress_context__ or failure.value.__context__ is None
    assert TOKEN not in caplog.text


def test_without_a_token_none_of_this_machine_is_taken(hub, tmp_path, tiny_folder, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    hub.put(REPO, files_of(tiny_folder))
    find(hub, tmp_path)
    assert {headers.get("authorization") for _, _, _, headers in hub.requests} == {None}


def test_a_person_s_own_settings_count_where_no_hub_is_named(hub, tmp_path, tiny_folder, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("HF_ENDPOINT", hub.url())
    hub.put(REPO, files_of(tiny_folder))
    find_model(REPO, str(tmp_path), bucket())
    assert hub.requests[0][3]["authorization"] == f"Bearer {TOKEN}"
    assert own_hub().endpoint == hub.url()


# --- one model for a run ---------------------------------------------------------------------------------------------


def find_for_run(hub, home, weights=True, token=None, **spec):
    home.mkdir(exist_ok=True)
    return find_run_model(
        a_spec(**({"model": REPO} | spec)), "my-run", str(home), bucket(), Hub(hub.url(), lambda: token), weights
    )


def test_a_run_keeps_the_commit_it_was_begun_with(hub, tmp_path, storage, tiny_folder):
    files = files_of(tiny_folder)
    first = hub.put(REPO, files)
    mine = find_for_run(hub, tmp_path / "one")
    second = hub.put(REPO, files | {"config.json": files["config.json"] + b" "})
    assert hub.branches[REPO]["main"] == second != first
    for home, weights in (("one", True), ("two", True), ("verify", False)):
        found = find_for_run(hub, tmp_path / home, weights)
        assert found.revision == first
        assert found.files["config.json"] == mine.files["config.json"]
    record = json.loads(storage.data(BUCKET, "activations/my-run/model.json"))
    assert record == {
        "schema": "gleaner/1",
        "name": REPO,
        "revision": first,
        "fingerprint": mine.fingerprint,
        "weights_sha256": mine.weights_sha256,
        "tokenizer_sha256": mine.files["tokenizer.json"],
        "files": mine.files,
    }


def test_of_two_workers_that_begin_a_run_at_different_commits_one_gives_way(hub, tmp_path, storage, tiny_folder):
    files = files_of(tiny_folder)
    first = hub.put(REPO, files)
    second = []

    def move(what):  # the branch moves, and another worker is quicker, while this one is about to write
        if "/upload/" in what and not second:
            second.append(hub.put(REPO, files | {"config.json": files["config.json"] + b" "}))
            find_for_run(hub, tmp_path / "two")

    storage.faults = move
    found = find_for_run(hub, tmp_path / "one")
    assert [found.revision] == second != [first]
    assert json.loads(storage.data(BUCKET, "activations/my-run/model.json"))["revision"] == found.revision


def test_many_workers_that_begin_at_once_agree(hub, tmp_path, tiny_folder):
    files = files_of(tiny_folder)
    hub.put(REPO, files)
    moves = threading.Semaphore(3)

    def move(server, method, path):
        if server == "cdn" and moves.acquire(blocking=False):
            hub.put(REPO, files | {"config.json": files["config.json"] + b" " * len(hub.requests)})

    hub.faults = move
    found = {}

    def work(name):
        found[name] = find_for_run(hub, tmp_path / name)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcdef"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    assert len({(model.revision, model.fingerprint) for model in found.values()}) == 1


def test_a_commit_that_run_json_names_must_be_the_run_s(hub, tmp_path, tiny_folder):
    files = files_of(tiny_folder)
    first = hub.put(REPO, files)
    find_for_run(hub, tmp_path / "one")
    assert find_for_run(hub, tmp_path / "one", revision=first).revision == first
    second = hub.put(REPO, files | {"config.json": files["config.json"] + b" "})
    with pytest.raises(Failure, match=f"it was commit {first}, run.json asks for {second}") as failure:
        find_for_run(hub, tmp_path / "one", revision=second)
    assert failure.value.kind == "model"


def test_a_kept_copy_that_the_disk_has_spoilt_is_fetched_again(hub, tmp_path, tiny_folder):
    files = files_of(tiny_folder)
    hub.put(REPO, files)
    folder = find_for_run(hub, tmp_path / "one").folder
    with open(os.path.join(folder, "model.safetensors"), "r+b") as file:
        file.truncate(1000)
    assert files_of(find_for_run(hub, tmp_path / "one").folder) == files


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("Qwen/Qwen2.5-0.5B", True),
        ("gpt2", True),
        ("a/b_c.d-e", True),
        ("a/b/c", False),
        ("a//b", False),
        ("../b", False),
        ("a/..", False),
        ("a/b..c", False),
        ("a--b/c", False),
        ("-a/b", False),
        ("a-/b", False),
        ("a/b.", False),
        ("a/b.git", False),
        ("a/b?x=1", False),
        ("a/b#c", False),
        ("a/b c", False),
        ("a/é", False),
        ("a/b\n", False),
        ("https://h/a/b", False),
        ("x" * 97, False),
        ("", False),
    ],
)
def test_an_id_of_a_hub_is_told_from_anything_else(model, expected):
    assert is_hub_id(model) is expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://huggingface.co", True),
        ("https://mirror.example:8443/hub/", True),
        ("http://127.0.0.1:8080", True),
        ("http://localhost:8080", True),
        ("http://[::1]:8080", True),
        ("http://mirror.example", False),
        ("http://127.0.0.1.example", False),
        ("https://user:password@mirror.example", False),
        ("https://mirror.example?x=1", False),
        ("https://mirror.example#x", False),
        ("https://", False),
        ("https://[", False),
        ("ftp://mirror.example", False),
        ("mirror.example", False),
        ("https://mirror.example/a b", False),
    ],
)
def test_a_token_never_travels_in_the_open(url, expected):
    assert is_endpoint(url) is expected
    if not expected:
        with pytest.raises(Failure, match="it is not an https:// address; correct GLEANER_HF_ENDPOINT"):
            find_model(REPO, "", None, hub=Hub(url, lambda: TOKEN))


def test_a_model_that_does_not_fit_on_the_disk_is_refused_before_it_comes(hub, tmp_path, tiny_folder, monkeypatch):
    hub.put(REPO, files_of(tiny_folder))
    usage = model_cache.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(model_cache.shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(
        Failure, match=rf"Failed to copy the model {REPO}: it needs 0.. GB, .*use a larger boot disk"
    ) as failure:
        find(hub, tmp_path)
    assert failure.value.kind == "infrastructure"
    assert hub.asked("cdn") == []


def test_a_disk_that_fills_up_on_the_way_is_told(hub, tmp_path, tiny_folder):
    files = files_of(tiny_folder)
    hub.put(REPO, files)
    hub.tells_sizes = False  # so that nobody can know before
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=120k", "tmpfs", str(small)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a small disk needs root")
    try:
        with pytest.raises(Failure, match=r"Failed to write .*\.part: the disk is full") as failure:
            find(hub, small)
        assert failure.value.kind == "infrastructure"
        subprocess.run(["mount", "-o", "remount,size=10m", str(small)], check=True)
        assert files_of(find(hub, small).folder) == files
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)

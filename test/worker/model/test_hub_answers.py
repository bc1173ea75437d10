"""Answers of a hub: damaged, false, and refusals."""

import hashlib
import os

import pytest

from build import fails
from gleaner_worker.failures import Failure
from hub_models import REPO, TOKEN, files_of, find, kept, once


def test_weights_of_a_hub_without_redirects_are_compared_with_their_etag(hub, tmp_path, files):
    answer, stated = hub._answer, hashlib.sha256(files["model.safetensors"]).hexdigest()

    def direct(server, method, path, headers):
        if path.endswith("model.safetensors"):
            return 200, {"ETag": f'"{stated}"'}, files["model.safetensors"][::-1]
        return answer(server, method, path, headers)

    hub._answer = direct
    with fails("hub", f"model.safetensors arrived damaged: its sha256 is .*, and the hub states {stated}"):
        find(hub, tmp_path)


def test_weights_with_another_hash_than_the_hub_states_are_never_used(hub, tmp_path, files):
    hub.faults = once(("flip", 0))
    with fails("hub", "an-org/a-model: model.safetensors arrived damaged: its sha256 is .*, and the hub states "):
        find(hub, tmp_path)
    (left,) = kept(tmp_path)
    assert left.endswith(".unfinished")
    assert not [name for name in os.listdir(tmp_path / "models" / left) if name.startswith("model.safetensors")]
    for name in files.keys() - set(os.listdir(tmp_path / "models" / left)):
        # As an end between the last byte and the name leaves it.
        (tmp_path / "models" / left / f"{name}.part").write_bytes(bytes(len(files[name])))
    assert files_of(find(hub, tmp_path).folder) == files


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
def test_a_malformed_answer_of_the_hub_is_reported(hub, tmp_path, files, where, body, reason):
    hub.faults = lambda server, method, path: ("body", body) if where in path else None
    with fails("hub", reason):
        find(hub, tmp_path)


def test_an_answer_for_another_commit_is_refused(hub, tmp_path, files):
    commit = hub.put(REPO, files)
    hub.branches[REPO]["b" * 40] = commit
    with pytest.raises(Failure, match=f"asked for commit {'b' * 40}, it names {commit}"):
        find(hub, tmp_path, revision="b" * 40)


def test_a_file_of_another_commit_is_refused(hub, tmp_path, files):
    commit = hub.put(REPO, files)
    answer = hub._answer

    def other(server, method, path, headers):
        status, headers, body = answer(server, method, path, headers)
        return status, headers | ({"X-Repo-Commit": "d" * 40} if "tokenizer.json" in path else {}), body

    hub._answer = other
    with pytest.raises(Failure, match=f"tokenizer.json of commit {commit} comes from 'dddd"):
        find(hub, tmp_path)


@pytest.mark.parametrize(
    ("model", "revision", "is_gated", "token", "reason"),
    [
        (
            "an-org/absent",
            None,
            False,
            None,
            "absent .401.: .* shows no such model; set `model` to its id, or if it is "
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
        (REPO, "v9", False, None, "a-model .404.: it has no revision 'v9'; set `revision` to one that it has"),
        (REPO, "e" * 40, False, None, f"it has no revision '{'e' * 40}'"),
        (REPO, "../../x", False, None, "'../../x' is not a revision"),
        (REPO, "a b", False, None, "'a b' is not a revision"),
    ],
)
def test_a_refusal_of_the_hub_is_reported_with_the_remedy(
    hub, tmp_path, files, model, revision, is_gated, token, reason
):
    hub.put("an-org/closed", files)
    hub.tokens["an-org/closed"] = {TOKEN}
    hub.is_gated = is_gated
    with fails("model", reason) as failure:
        find(hub, tmp_path, model, revision, token)
    assert token is None or token not in str(failure.value)


def test_an_invalid_token_is_reported(hub, tmp_path, files):
    hub.faults = lambda server, method, path: 401
    with fails("model", "refuses the token; store a valid one in the secret that"):
        find(hub, tmp_path, token=TOKEN)


def test_missing_files_are_reported_before_the_download_of_weights(hub, tmp_path, files):
    del files["tokenizer.json"]
    hub.put(REPO, files)
    with fails("model", f"Failed to use the model {REPO}: it has no tokenizer.json: put the "):
        find(hub, tmp_path)
    assert hub.asked("cdn") == []

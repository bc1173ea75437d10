"""The address at which the process of a job finds its tokens, as Google's clients ask for them, and the storage."""

import json
import re
import sys
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta

import pytest
from google.auth import compute_engine
from google.cloud import storage as gcs

from build import BUCKET
from gleaner_worker.failures import LeaseLost
from gleaner_worker.jobs.bucket_address import BucketAccess
from gleaner_worker.jobs.user import find_job_user
from gleaner_worker.storage.lease_credentials import LeaseCredentials
from job_attempts import needs_root

ACCOUNT = "/computeMetadata/v1/instance/service-accounts/default"
FLAVOR = {"Metadata-Flavor": "Google"}
EMAIL = "gleaner-job@p"


class Attempt:
    """An attempt with its lease. worker-api gives numbered tokens of `life_s`, or raises `error`."""

    def __init__(self):
        self.given, self.life_s, self.error, self.is_over = 0, 3600.0, None, False
        self.credentials = LeaseCredentials(self.token)

    def token(self):
        if self.error:
            raise self.error
        self.given += 1
        end = (datetime.now(UTC) + timedelta(seconds=self.life_s)).isoformat()
        return {"action": "token", "access_token": f"token-{self.given}", "expires_at": end}

    def check(self):
        if self.is_over:
            raise LeaseLost

    def serve(self, storage=None):
        return BucketAccess(self.credentials, "p", storage).serve(self.check)


@pytest.fixture
def attempt():
    return Attempt()


@pytest.fixture
def host(attempt):
    with attempt.serve() as variables:
        yield variables["GCE_METADATA_HOST"]


def ask(host, path="", headers=FLAVOR):
    """The status, the headers and the text of an answer."""
    request = urllib.request.Request(f"http://{host}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, ""


# google-auth pings the root, then reads the account and the token. tensorstore (google_auth_provider.cc) does the
# same with GCE_METADATA_ROOT, and asks for the token by the address of the account, as gcloud does.
@pytest.mark.parametrize(
    ("path", "kind", "answer"),
    [
        ("", "application/text", "computeMetadata/"),
        ("/computeMetadata/v1/project/project-id", "application/text", "p"),
        (f"{ACCOUNT}/email", "application/text", EMAIL),
        (f"{ACCOUNT}/?recursive=true", "application/json", f'"email": "{EMAIL}", "scopes": ["https://'),
        (f"{ACCOUNT}/token", "application/json", '"access_token": "token-1"'),
        (f"/computeMetadata/v1/instance/service-accounts/{EMAIL}/token", "application/json", '"expires_in": 3'),
    ],
)
def test_the_address_answers_what_clients_ask(host, path, kind, answer):
    status, headers, text = ask(host, path)
    assert (status, headers["Metadata-Flavor"], headers["Content-Type"]) == (200, "Google", kind)
    assert answer in text


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        (f"{ACCOUNT}/identity?audience=a", FLAVOR, 404),
        ("/computeMetadata/v1/instance/attributes/gleaner-ticket", FLAVOR, 404),
        ("/computeMetadata/v1/instance/service-accounts/other@p/token", FLAVOR, 404),
        ("/computeMetadata/v1/universe/universe-domain", FLAVOR, 404),
        (f"{ACCOUNT}/token", {}, 403),
        (f"{ACCOUNT}/token", FLAVOR | {"X-Forwarded-For": "10.0.0.1"}, 403),
    ],
)
def test_the_address_answers_nothing_else(attempt, host, path, headers, status):
    assert ask(host, path, headers)[0] == status
    assert attempt.given == 0


def test_a_guessed_path_finds_nothing(host):
    place, _, secret = host.partition("/")
    for guess in ("", "/", f"/{'0' * 32}", f"/{secret[:-1]}", f"/{secret}0"):
        assert ask(place + guess, f"{ACCOUNT}/token")[0] == 404


def test_a_token_is_renewed_five_minutes_before_its_end(attempt, host):
    def token():
        return json.loads(ask(host, f"{ACCOUNT}/token")[2])

    attempt.life_s = 299
    assert (token()["access_token"], token()["access_token"]) == ("token-1", "token-2")
    attempt.life_s = 360
    token()
    assert token()["access_token"] == "token-3"
    assert 300 < token()["expires_in"] <= 360
    # A token that is still good outlives a worker-api that is away; a client has no use for one that is over.
    attempt.credentials.expiry -= timedelta(seconds=200)
    attempt.error = OSError("away")
    assert token()["access_token"] == "token-3"
    attempt.credentials.expiry -= timedelta(seconds=200)
    assert ask(host, f"{ACCOUNT}/token")[0] == 503


def test_an_attempt_that_has_lost_its_lease_gets_no_token_from_a_good_one_either(attempt, host):
    assert ask(host, f"{ACCOUNT}/token")[0] == 200
    attempt.is_over = True
    assert ask(host, f"{ACCOUNT}/token")[0] == 403
    attempt.is_over, attempt.life_s = False, 10
    attempt.credentials.forget()
    assert ask(host, f"{ACCOUNT}/token")[0] == 200
    attempt.error = LeaseLost()
    assert ask(host, f"{ACCOUNT}/token")[0] == 403


def test_clients_with_a_token_and_without_reach_the_storage_of_a_local_cloud_past_the_end_of_a_token(
    attempt, storage, monkeypatch
):
    given = []
    storage.refuses = lambda headers: given.append(headers["Authorization"])
    attempt.life_s = 2.0
    with attempt.serve(storage.url) as variables:
        for name in ("STORAGE_EMULATOR_HOST", "GCE_METADATA_HOST", "GCE_METADATA_IP"):
            monkeypatch.setenv(name, variables[name])
        monkeypatch.setattr("google.auth.compute_engine._metadata._GCE_METADATA_HOST", variables["GCE_METADATA_HOST"])
        for client in (gcs.Client("p"), gcs.Client("p", compute_engine.Credentials())):
            blob = client.bucket(BUCKET).blob("checkpoints/j1/own/a", chunk_size=1 << 18)
            blob.upload_from_string(b"x" * (1 << 19))  # resumable, in two pieces
            assert blob.download_as_bytes() == b"x" * (1 << 19)
        # A client would use the closed connection again.
        assert ask(variables["GCE_METADATA_HOST"], f"/storage/v1/b/{BUCKET}/o")[1]["Keep-Alive"] is None
    assert client._credentials.token.startswith("token-") and set(given) <= {
        f"Bearer token-{n}" for n in range(attempt.given + 1)
    }
    assert attempt.given > 3
    with pytest.raises(urllib.error.URLError):
        ask(variables["GCE_METADATA_HOST"])


PRINT = """import gleaner_reader, importlib.util, json, os
print(json.dumps([dict(os.environ), gleaner_reader.__file__, importlib.util.find_spec("gleaner_worker") is None]))"""


def run(jobs, attempt, has_network=True, **order):
    order |= {"command": [sys.executable, "-c", PRINT], "own_url": "gs://c/checkpoints/j1/own"}
    more = {"access": BucketAccess(attempt.credentials, "p", "http://127.0.0.1:9")}
    runner = jobs.runner(user=lambda: find_job_user(jobs.env, has_network=has_network), more=more, **order)
    assert runner.run()["outcome"] == "completed", jobs.output
    return json.loads(jobs.output)


@needs_root
@pytest.mark.slow
def test_a_job_finds_its_folder_its_inputs_and_the_reader_and_no_worker(jobs, attempt):
    inputs = ["gs://b/activations/my-run/", "gs://b/models/m/"]
    found, reader, has_no_worker = run(jobs, attempt, inputs=inputs)
    assert found["JOB_CHECKPOINT_URL"] == "gs://c/checkpoints/j1/own"
    assert [json.loads(found["JOB_INPUTS"]), found["JOB_INPUT_0"], found["JOB_INPUT_1"]] == [inputs, *inputs]
    assert re.fullmatch(r"127\.0\.0\.1:\d+/[0-9a-f]{32}", found["GCE_METADATA_HOST"])
    assert found["STORAGE_EMULATOR_HOST"] == f"http://{found['GCE_METADATA_ROOT']}"
    assert reader.startswith(f"{jobs.home}/jobs/j1-e2/packages/") and has_no_worker
    # A package of the source goes before that of the worker.
    (jobs.stand_in / "gleaner_reader.py").touch()
    assert run(jobs, attempt)[1] == str(jobs.stand_in / "gleaner_reader.py")


@needs_root
@pytest.mark.slow
def test_a_job_without_a_network_has_no_address(jobs, attempt):
    found = run(jobs, attempt, has_network=False)[0]
    assert (found["JOB_CHECKPOINT_URL"], found["JOB_INPUTS"]) == ("", "[]")
    assert not {"GCE_METADATA_HOST", "STORAGE_EMULATOR_HOST", "JOB_INPUT_0"} & found.keys()

"""The scenarios of Google's retry conformance tests for Cloud Storage, for the calls of the worker's Bucket."""

from dataclasses import dataclass

import google.auth.exceptions
import pytest
from google.api_core import exceptions as api

from faulty_storage import FaultyStorage
from gleaner_worker.failures import Failure
from gleaner_worker.storage import objects, retry
from gleaner_worker.storage.upload_content import BytesContent

pytestmark = pytest.mark.slow

KIB = 1024
PASSING = [
    ["return-503", "return-503"],
    ["return-reset-connection", "return-reset-connection"],
    ["return-reset-connection", "return-503"],
]
# After 401 the client renews its credentials. Anonymous credentials, as in this test, cannot be renewed.
REFUSED = "Anonymous credentials cannot be refreshed"
SUCCESSES = ("succeeds", "finds its own object")
OPERATIONS = {"list": "list", "head": "get", "create": "insert", "overwrite": "insert"}


@dataclass(frozen=True)
class Case:
    scenario: str
    call: str
    instructions: list[str]
    end: str = "succeeds"  # one of SUCCESSES, or a part of the error
    size: int = 300 * KIB

    def __str__(self):
        end = self.end if self.end in SUCCESSES else "fails"
        return f"{self.scenario}: {self.call} {end} after {', '.join(self.instructions)}"


CASES = [
    *[Case("1 idempotent", call, list_) for call in ("list", "head", "download") for list_ in PASSING],
    Case("1 idempotent", "read", PASSING[0]),
    *[Case("2 precondition", "create", list_) for list_ in PASSING],
    Case("2 precondition", "create", ["return-503-after-commit"], "finds its own object"),
    Case("3 no precondition", "overwrite", ["return-503"], "503"),
    Case("3 no precondition", "overwrite", ["return-reset-connection"], "ConnectionError"),
    Case("5 permanent", "create", ["return-400"], "400"),
    Case("5 permanent", "create", ["return-401"], REFUSED),
    Case("6 mixed", "create", ["return-503", "return-400"], "400"),
    Case("6 mixed", "create", ["return-reset-connection", "return-401"], REFUSED),
    # An upload of more than 8 MiB is resumable.
    Case("7 resumable", "create", ["return-reset-connection", "return-503"], size=9 * KIB * KIB),
    Case("7 resumable", "create", ["return-503-after-8192K", "return-408"], size=9 * KIB * KIB),
    Case("8 broken stream", "download", ["return-broken-stream"]),
    Case("8 broken stream", "download", ["return-broken-stream-after-256K"]),
    Case("8 broken stream", "read", ["return-broken-stream"]),
    Case("8 broken stream", "read range", ["return-broken-stream"]),
]


@pytest.fixture(scope="module")
def faulty():
    storage = FaultyStorage()
    yield storage
    storage.close()


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(retry, "FIRST_WAIT_S", 0.01)


def open_bucket(faulty, monkeypatch, url):
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
    return objects.Bucket(objects.make_client("gleaner-local"), faulty.bucket)


def call(bucket, case, name, data, path):
    """Runs the call and returns its result as bytes."""
    match case.call:
        case "list":
            return "".join(info.name for info in bucket.list(name)).encode()
        case "head":
            return bucket.head(name).name.encode()
        case "download":
            bucket.download(name, str(path))
            return path.read_bytes()
        case "read":
            return bucket.read(name)
        case "read range":
            return bucket.read_range(name, bucket.head(name).generation, 0, len(data))
        case "create":
            found = bucket.create(name, BytesContent(data), {"k": "v"}, "text/plain")
            return b"" if found is None else found.name.encode()
        case "overwrite":
            return bucket.overwrite(name, data, "text/plain")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_call_ends_as_the_retry_scenario_states(faulty, monkeypatch, tmp_path, case):
    name = f"scenario/{CASES.index(case)}"
    data = bytes(range(256)) * (case.size // 256)
    direct = open_bucket(faulty, monkeypatch, faulty.direct_url)
    if case.call not in ("create", "overwrite"):
        direct.create(name, BytesContent(data), {}, "text/plain")
    bucket = open_bucket(faulty, monkeypatch, faulty.url)
    operation = OPERATIONS.get(case.call, "download")
    faulty.break_next(operation, case.instructions)

    is_success = case.end in SUCCESSES
    if is_success:
        promised = {"list": name.encode(), "head": name.encode(), "create": b""}.get(case.call, data)
        result = call(bucket, case, name, data, tmp_path / "x")
        assert result == (name.encode() if case.end == "finds its own object" else promised)
        assert direct.read(name) == data
    else:
        with pytest.raises((Failure, api.GoogleAPICallError, OSError, google.auth.exceptions.GoogleAuthError)) as error:
            call(bucket, case, name, data, tmp_path / "x")
        assert case.end in f"{type(error.value).__name__}: {error.value}"
        assert direct.head(name) is None
    assert faulty.left() == []
    requests = len(faulty.seen(operation)) - len(case.instructions)
    if case.size > 8 * KIB * KIB:
        assert requests > 1  # a resumable upload is started, then sent
    else:
        assert requests == (1 if is_success else 0)

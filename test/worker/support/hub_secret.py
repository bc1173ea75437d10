"""The hub's token as a secret: `secrets` is the fake Secret Manager that holds it."""

import pytest

from fake_secrets import FakeSecrets
from gleaner_worker import secret

NAME = "projects/a-project/secrets/hub-token"
TOKEN = "hf_TokenOfTheTestThatNobodyMaySee"


@pytest.fixture
def secrets(monkeypatch, cloud):
    """Secret Manager, and the metadata server that gives the VM its access token."""
    fake = FakeSecrets()
    fake.versions[f"{NAME}/versions/latest"] = TOKEN.encode()
    monkeypatch.setenv("SECRETMANAGER_EMULATOR_HOST", fake.url)
    monkeypatch.setenv("GCE_METADATA_HOST", cloud.host)
    monkeypatch.setattr(secret, "FIRST_WAIT_S", 0.02)
    yield fake
    fake.close()

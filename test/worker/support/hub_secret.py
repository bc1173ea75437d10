"""The tokens of the hub and of git as worker-api gives them: `secrets` answers the requests of an agent."""

import pytest

from gleaner_worker import secret
from gleaner_worker.secret import Secrets

TOKEN = "hf_TokenOfTheTestThatNobodyMaySee"
LEASE = {"run": "my-run", "stream": "007", "epoch": 1}


class Answers:
    def __init__(self):
        self.asked: list[dict | None] = []  # the leases
        self.answer = {"action": "secrets", "secrets": {"hub": TOKEN, "git": TOKEN}}
        self.fault = lambda: None  # an error of the request
        self.reader = Secrets(self._ask)

    def _ask(self, lease):
        self.asked.append(lease)
        if error := self.fault():
            raise error
        return self.answer

    def refuse(self, reason):
        self.answer = {"action": "none", "reason": reason}


@pytest.fixture
def secrets(monkeypatch):
    monkeypatch.setattr(secret, "FIRST_WAIT_S", 0.02)
    return Answers()

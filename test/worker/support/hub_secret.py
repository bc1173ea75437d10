"""The token of the hub or of git: `secrets.read` answers as worker-api does."""

import pytest

from gleaner_worker.failures import Failure

TOKEN = "hf_TokenOfTheTestThatNobodyMaySee"
LEASE = {"run": "my-run", "stream": "007", "epoch": 1}


class Answers:
    def __init__(self):
        self.asked = 0  # times
        self.token: str | None = TOKEN
        self.problem: str | None = None

    def read(self, check):
        self.asked += 1
        if self.problem:
            raise Failure("model", self.problem)
        return self.token


@pytest.fixture
def secrets():
    return Answers()

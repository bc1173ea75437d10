"""The local Cloud Storage behind the fault proxy of test/support, in a process of its own."""

import json
import os
import shutil
import subprocess

_ROOT = os.path.abspath(f"{__file__}/../../../..")


class FaultyStorage:
    def __init__(self):
        node = shutil.which("node", path=os.pathsep.join([f"{_ROOT}/node_modules/.bin", os.environ["PATH"]]))
        command = [node, f"{_ROOT}/test/support/fakes/storage-with-faults.ts"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started = json.loads(self._process.stdout.readline())
        self.url, self.direct_url, self.bucket = started["url"], started["direct_url"], started["bucket"]

    def close(self):
        self._process.communicate()

    def break_next(self, operation: str, instructions: list[str]):
        """Breaks the next requests of the operation. The proxy explains the instructions."""
        self._ask({"operation": operation, "instructions": instructions})

    def left(self) -> list[str]:
        """Instructions that no request has met."""
        return self._ask({})["left"]

    def seen(self, operation: str) -> list[dict]:
        """Requests of the operation since `break_next`."""
        return [seen for seen in self._ask({})["seen"] if seen["operation"] == operation]

    def _ask(self, question: dict) -> dict:
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

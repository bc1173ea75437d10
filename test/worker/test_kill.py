"""An extractor that is killed at its uploads, again and again, ends with the same bytes as one that was left alone."""

import json
import os
import signal
import subprocess
import sys

import pytest

from build import (
    a_stream,
    a_work,
    a_work_answer,
    bucket,
    outputs,
    put_manifest,
    run_extract,
    shard_gb,
    text_lines,
)
from gleaner_worker.verify.run import verify_run

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "extract_process.py")
SPEC = {"shard_size_gb": shard_gb(800)}


class Killer:
    """Kills the process in hand at its nth upload: before the bucket has it, or when it has it but did not say so."""

    def __init__(self, moment):
        self.moment, self.process, self.uploads, self.nth = moment, None, 0, 0

    def __call__(self, what):
        if self.process is None or "/upload/" not in what:
            return None
        self.uploads += 1
        if self.uploads != self.nth:
            return None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        return 503 if self.moment == "before" else ("after", 503)


def one_attempt(killer, resource, model, number, folder):
    """Killed at its first upload, or its second, and so on; true when it got through."""
    killer.uploads, killer.nth = 0, number
    answer = json.dumps(a_work_answer(resource, epoch=number, model=model, **SPEC))
    killer.process = subprocess.Popen(
        [sys.executable, SCRIPT, answer, model, folder],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    out, err = killer.process.communicate()
    assert killer.process.returncode in (0, -signal.SIGKILL), err
    return killer.process.returncode == 0


@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_again_and_again_the_shards_are_the_same(storage, tmp_path, tiny_models, tiny_folder, moment):
    resource = a_stream(storage, [*text_lines(40), "junk"])
    run_extract(a_work(resource, **SPEC), tiny_models(), str(tmp_path))
    undisturbed = outputs(storage)
    assert len(undisturbed) == 5  # three shards, the rejects and the summary
    storage.objects = {key: value for key, value in storage.objects.items() if key[1].startswith("datasets/")}
    storage.faults = killer = Killer(moment)
    attempts = 1
    while not one_attempt(killer, resource, tiny_folder, attempts, str(tmp_path)):
        attempts += 1
        assert attempts < 10
    assert attempts >= 3
    storage.faults = lambda what: None
    assert outputs(storage) == undisturbed
    put_manifest(storage, model=tiny_folder, **SPEC)
    report = verify_run(bucket(), "my-run", str(tmp_path), lambda _: None)
    assert report["ok"], report

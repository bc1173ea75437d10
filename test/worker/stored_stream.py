"""Results of an extraction: the rejects of a stream, and the verdict of verify."""

import json

from build import bucket, outputs, put_manifest
from gleaner_worker.verify.run import verify_run


def rejects(storage):
    text = outputs(storage).get("rejects.jsonl", b"").decode()
    return [json.loads(line) for line in text.splitlines()]


def verified(storage, tmp_path, folder, **spec):
    put_manifest(storage, **({"model": folder} | spec))
    report = verify_run(bucket(), "my-run", str(tmp_path), lambda _: None)
    return report["ok"], report["streams"][0]["problems"] + report["problems"], report

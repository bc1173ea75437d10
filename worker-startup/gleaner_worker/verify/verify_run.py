"""Verifies a whole run: compares every stream with its shards."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable

from gleaner_reader.format.digest import run_digest
from gleaner_reader.format.spec_hash import hash_of_manifest

from ..failures import Failure
from ..model.files.identity import ModelFiles
from ..model.files.model_lock import find_run_model, read_model_lock
from ..model.files.model_source import find_spec_files
from ..model.weights.reduction_weights import read_capture
from ..names import manifest_name, model_name, output_prefix, parse_shard, parse_stream, run_folder
from ..records.samples.tokenize_process import limited_settings
from ..spec.read_spec import parse_spec
from ..spec.spec import Spec
from ..storage.objects import Bucket, ObjectInfo
from .shard_content import Expectation
from .small_objects import read_object
from .stream import COUNTS, unread_stream, verify_stream


def verify_run(
    bucket: Bucket,
    run: str,
    folder: str,
    on_progress: Callable[[dict], None],
    digest: str | None = None,
    unanchored: bool = False,
) -> dict:
    """Returns the report. Raises Failure or OSError when verify itself fails.

    digest: that the run must have. Without it, the manifest states the digest: the control plane alone writes there.
    unanchored: whether a run without either is accepted.
    folder: scratch space for one stream and one shard. on_progress: receives the changed keys of `stream`,
    `streams_done`, `streams`, `shards_done` and `shards`, and each `problem`.
    """
    text = bucket.read(manifest_name(run)) or b""
    spec, spec_hash, result = read_manifest(bucket, run)
    problems: list[str] = []
    files, fingerprint = _find_model(spec, run, folder, bucket, problems)
    capture, _ = read_capture(spec, files)
    config = capture.config
    settings = limited_settings(files.folder, spec, config.vocab_size, config.max_positions)
    expect = Expectation(run, spec, spec_hash, fingerprint, capture, settings)
    streams = list_streams(bucket, run, problems)
    outputs = _list_outputs(bucket, run)
    if not streams:
        name = f"datasets/{run_folder(run)}stream_000.jsonl"
        problems.append(f"run {run} has no streams: the bucket has no object such as {name}")
    for prefix in sorted(set(outputs) - {output_prefix(run, stream) for stream in streams}):
        problems.append(f"{prefix} holds {len(outputs[prefix])} objects, but no stream of that number exists")
    models = {info.metadata.get("model_fingerprint") for infos in outputs.values() for info in infos if info.metadata}
    if len(models - {None}) > 1:
        problems.append(f"the shards of {run} were made with {len(models - {None})} different models")
    results = []
    for number, (stream, info) in enumerate(sorted(streams.items(), key=lambda item: int(item[0]))):
        on_progress({"stream": stream, "streams_done": number, "streams": len(streams), "shards": 0})
        objects = outputs.get(output_prefix(run, stream), [])
        try:
            results.append(verify_stream(expect, bucket, stream, info, objects, folder, on_progress))
        except (Failure, FileNotFoundError) as error:  # of this stream alone; verify continues with the next stream
            results.append(unread_stream(run, stream, info, objects, error))
    found = run_digest(*_entries(bucket, run, outputs, text))
    shards = sum(report["shards"] for report in results)
    # A shard that was stored since the manifest was written belongs to the next result.
    stated = digest or (result.get("digest", "none") if result.get("shards") == shards else None)
    if stated not in (None, found):
        whose = "its publisher" if digest else "the manifest"
        problems.append(f"the digest of the run is {found}, and {whose} states {stated}")
    if stated is None and not unanchored:
        problems.append(
            f"unanchored: the manifest states no digest of these {shards} shards, as that of a completed run does; "
            "wait until the run has completed, give the digest by --digest, or accept the run by --unanchored"
        )
    return report_on(run, results, problems, found, stated is not None)


def _entries(bucket: Bucket, run: str, outputs: dict[str, list[ObjectInfo]], manifest: bytes):
    """What `run_digest` takes. The bytes of each shard have been compared with the SHA-256 in its metadata."""
    streams: dict[int, list[tuple[str, str]]] = {}
    for prefix, infos in outputs.items():
        found = [(parsed[0], info.name, info) for info in infos if (parsed := parse_shard(prefix, info.name))]
        shards = [info for _, _, info in sorted(found, key=lambda shard: shard[:2])]
        if shards:
            summary = next((info for info in infos if info.name == f"{prefix}metadata.json"), None)
            streams[int(prefix.rstrip("/").rpartition("tpu_")[2])] = [
                *((info.metadata.get("sha256", ""), info.name.removeprefix(prefix)) for info in shards),
                (_sha256_of(bucket, summary) or "", "metadata.json"),
            ]
    model = _sha256_of(bucket, bucket.head(model_name(run)))
    return streams, [*([(model, "model.json")] if model else []), (hash_of_manifest(manifest), "manifest.json")]


def _sha256_of(bucket: Bucket, info: ObjectInfo | None) -> str | None:
    """Of a small object; None without one. What is wrong with it is a problem already."""
    data = read_object(bucket, info, []) if info else None
    return None if data is None else hashlib.sha256(data).hexdigest()


def _find_model(
    spec: Spec, run: str, folder: str, bucket: Bucket, problems: list[str]
) -> tuple[ModelFiles, str | None]:
    """The files of the run's model without its weights, and the model's fingerprint where model.json has it."""
    try:
        lock = read_model_lock(bucket, run)
    except Failure as error:
        problems.append(error.reason)
        return find_spec_files(spec, folder, bucket, weights=False), None
    return find_run_model(spec, run, folder, bucket, weights=False), lock.fingerprint if lock else None


def read_manifest(bucket: Bucket, run: str) -> tuple[Spec, str, dict]:
    """The spec, its hash, and the result, which is empty before the end of the run."""
    name = manifest_name(run)
    text = bucket.read(name)
    if text is None:
        raise Failure(
            "stream",
            f"Failed to read gs://{bucket.name}/{name}: there is no such object, so no run of this name was started; "
            "pass the name of a run",
        )
    try:
        manifest = json.loads(text)
        return parse_spec(manifest["spec"]), manifest["spec_hash"], dict(manifest.get("result") or {})
    except (ValueError, KeyError, TypeError) as error:
        raise Failure(
            "stream",
            f"Failed to read gs://{bucket.name}/{name}: it is not a manifest of Gleaner: {error!r}; "
            "pass the name of a run",
        ) from error


def list_streams(bucket: Bucket, run: str, problems: list[str]) -> dict[str, ObjectInfo]:
    streams: dict[str, ObjectInfo] = {}
    for info in bucket.list(f"datasets/{run_folder(run) or 'stream_'}"):
        parsed = parse_stream(info.name)
        if not parsed or parsed[0] != run:
            continue
        first = streams.setdefault(parsed[1], info)
        if first is not info:
            kept, other = sorted((first, info), key=lambda i: i.generation)
            streams[parsed[1]] = kept
            problems.append(
                f"{other.name} has the same number as {kept.name}: its samples are not in this run; "
                "give it a number of its own"
            )
    return streams


def _list_outputs(bucket: Bucket, run: str) -> dict[str, list[ObjectInfo]]:
    """Objects by folder, such as activations/my-run/tpu_7/."""
    root = f"activations/{run_folder(run)}"
    outputs = defaultdict(list)
    for info in bucket.list(f"{root}tpu_"):
        head, slash, rest = info.name.removeprefix(root).partition("/")
        if slash and "/" not in rest and head.removeprefix("tpu_").isdigit():
            outputs[f"{root}{head}/"].append(info)
    return outputs


def report_on(
    run: str, streams: list[dict], problems: list[str], digest: str | None = None, is_anchored: bool = False
) -> dict:
    """The report of a run, from the reports of its streams and the problems of the run itself.

    is_anchored: the digest was compared with a stated one.
    """
    totals = {key: sum(stream[key] for stream in streams) for key in COUNTS}
    ok = not problems and bool(streams) and all(not stream["problems"] for stream in streams)
    facts = {"digest": digest, "anchored": is_anchored}
    return {"run": run, "ok": ok, **facts, **totals, "streams": streams, "problems": problems}

"""metadata.json: the summary of a finished stream, without workers. It extends the seed scripts' fields."""

import importlib.metadata
import json
import platform

from gleaner_reader.format.safetensors_header import LAYOUT

from ..code_identity import locked_digest, worker_bundle
from ..model.model import Model
from ..names import shard_name
from ..spec.work import Work
from .plan import ShardPlan
from .shard_stats import fold_stats

_MIB = 1024 * 1024
_PACKAGES = ("jax", "jaxlib", "numpy", "ml_dtypes", "tokenizers", "safetensors")
# Fields that may differ between two attempts with the same shards.
_CIRCUMSTANCES = ("versions", "code", "environment", "program_settings", "upload")
# Fields of the final shard's bytes. Another attempt may store that shard after this summary, with other last bits.
_FINAL_BYTES = ("crc32c", "sha256", "size_bytes", "file_size_mb", "stats")


def shard_entry(work: Work, model: Model, plan: ShardPlan, size_bytes: int, crc32c: str, sha256: str) -> dict:
    """The summary's entry of a shard, without the facts of its header."""
    name = shard_name(work.output_prefix, plan.number, work.spec.format)
    return {
        "shard_id": plan.number,
        "filename": name.rpartition("/")[2],
        "local_path": None,  # nothing stays on the worker's disk
        "gcs_path": f"gs://{work.bucket}/{name}",
        "file_size_mb": round(size_bytes / _MIB, 2),
        "buffer_size_mb": round(plan.rows * model.row_bytes / _MIB, 2),
        "layers": list(model.layers),
        "samples_per_layer": len(plan.samples),
        "total_samples_in_shard": len(plan.samples),
        "size_bytes": size_bytes,
        "crc32c": crc32c,
        "sha256": sha256,
        "first_sample": plan.first_sample,
        "last_sample": plan.last_sample,
        "tokens": plan.tokens,
        "rows": plan.rows,
        "rejected": plan.rejected,
        "truncated": plan.truncated,
    }


def stream_summary(work: Work, model: Model, entries: list[dict], upload: dict) -> dict:
    """entries: of every shard in order, with the facts of its header. upload: what this attempt's uploads measured."""

    def total(key: str) -> int:
        return sum(entry[key] for entry in entries)

    spec = work.spec
    return {
        "schema": "gleaner/1",
        "run": work.run,
        "worker_id": int(work.stream),
        "dataset_path": f"gs://{work.bucket}/{work.object}",
        "model_path": model.name,
        "total_shards": len(entries),
        "total_samples": total("total_samples_in_shard"),
        "total_tokens": total("tokens"),
        "total_rows": total("rows"),
        "total_rejected": total("rejected"),
        "total_truncated": total("truncated"),
        "shard_size_gb": spec.shard_size_bytes / 1_000_000_000,
        "upload_to_gcs": True,
        "gcs_bucket": work.bucket,
        "gcs_prefix": work.output_prefix.rstrip("/"),
        "spec_hash": work.spec_hash,
        "stream_crc32c": work.crc32c,
        "model_fingerprint": model.fingerprint,
        "dtype": spec.dtype,
        "compute_dtype": spec.compute_dtype,
        "d_model": model.config.d_model,
        "layers": list(model.layers),
        "sites": list(spec.sites),
        "token_selection": spec.tokens if isinstance(spec.tokens, str) else list(spec.tokens),
        "exclude_special": spec.exclude_special,
        "mask": spec.mask,
        "stats": fold_stats([(entry["rows"], entry["stats"]) for entry in entries]),
        "model": model.files.facts,
        "versions": {"python": platform.python_version()}
        | {package: importlib.metadata.version(package) for package in _PACKAGES},
        "code": worker_bundle(),
        "environment": locked_digest(),
        "program_settings": model.tuning.tried,
        "upload": upload,
        "shards": entries,
    }


def same_summary(mine: bytes, theirs: bytes) -> bool:
    """Whether two attempts agree, apart from software, hardware and the bytes of the final shard."""
    try:
        return _without_circumstances(json.loads(mine)) == _without_circumstances(json.loads(theirs))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False


def _without_circumstances(summary: dict) -> tuple[dict, list[dict]]:
    *entries, final = map(_without_layout, summary["shards"])
    final = {key: value for key, value in final.items() if key not in _FINAL_BYTES}
    left_out = (*_CIRCUMSTANCES, "stats", "shards")
    return {key: value for key, value in summary.items() if key not in left_out}, [*entries, final]


def has_final_entry(summary: bytes, final: dict) -> bool:
    """Whether the last entry of the summary is `final`."""
    return _without_layout(json.loads(summary)["shards"][-1]) == _without_layout(final)


def _without_layout(entry: dict) -> dict:
    """The layout follows from the bytes. A summary of an earlier release does not have it."""
    return {key: value for key, value in entry.items() if key not in LAYOUT}

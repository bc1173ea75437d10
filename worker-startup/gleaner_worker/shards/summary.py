"""metadata.json: what a finished stream has, in the seeds' fields and ours. It says nothing of when or by whom."""

from ..model.loaded import Model
from ..names import shard_name
from .plan import ShardPlan
from ..work import Work

_MIB = 1024 * 1024


def shard_entry(work: Work, model: Model, plan: ShardPlan, size_bytes: int, crc32c: str) -> dict:
    name = shard_name(work.output_prefix, plan.number, work.spec.format)
    return {
        "shard_id": plan.number,
        "filename": name.rpartition("/")[2],
        "local_path": None,  # nothing stays on the worker's disk
        "gcs_path": f"gs://{work.bucket}/{name}",
        "file_size_mb": round(size_bytes / _MIB, 2),
        "buffer_size_mb": round(plan.tokens * model.bytes_per_token / _MIB, 2),
        "layers": list(model.layers),
        "samples_per_layer": len(plan.samples),
        "total_samples_in_shard": len(plan.samples),
        "size_bytes": size_bytes,
        "crc32c": crc32c,
        "first_sample": plan.first_sample,
        "last_sample": plan.last_sample,
        "tokens": plan.tokens,
        "rejected": plan.rejected,
        "truncated": plan.truncated,
    }


def stream_summary(work: Work, model: Model, entries: list[dict]) -> dict:
    def total(key: str) -> int:
        return sum(entry[key] for entry in entries)

    return {
        "schema": "gleaner/1",
        "run": work.run,
        "worker_id": int(work.stream),
        "dataset_path": f"gs://{work.bucket}/{work.object}",
        "model_path": model.name,
        "total_shards": len(entries),
        "total_samples": total("total_samples_in_shard"),
        "total_tokens": total("tokens"),
        "total_rejected": total("rejected"),
        "total_truncated": total("truncated"),
        "shard_size_gb": work.spec.shard_size_bytes / 1_000_000_000,
        "upload_to_gcs": True,
        "gcs_bucket": work.bucket,
        "gcs_prefix": work.output_prefix.rstrip("/"),
        "spec_hash": work.spec_hash,
        "stream_crc32c": work.crc32c,
        "model_fingerprint": model.fingerprint,
        "dtype": work.spec.dtype,
        "d_model": model.config.d_model,
        "layers": list(model.layers),
        "shards": sorted(entries, key=lambda entry: entry["shard_id"]),
    }

"""The metadata that identify a shard: equal for every worker and every attempt that makes it from the same plan."""

import hmac

from ..code_identity import code_metadata
from ..spec.work import Work
from .plan import ShardPlan

# Marks a final shard whose metadata.json is from another attempt, which did not store its own final shard. The entry of
# the final shard in metadata.json then has the size, checksum and statistics of that attempt.
OTHER_SUMMARY = {"summary": "of another attempt"}


def shard_identity(work: Work, plan: ShardPlan, model_fingerprint: str) -> dict[str, str]:
    """The identity of the shard of this plan: the same for every worker and every attempt.

    It is stored inside the shard, and in the custom metadata of its object. A stored shard must have the same identity.
    """
    return {
        "schema": "gleaner/1",
        "stream": work.stream,
        "shard": str(plan.number),
        "first_sample": str(plan.first_sample),
        "last_sample": str(plan.last_sample),
        "samples": str(len(plan.samples)),
        "rejected": str(plan.rejected),
        "tokens": str(plan.tokens),
        "rows": str(plan.rows),
        "tokens_sha256": plan.tokens_sha256,
        "spec_hash": work.spec_hash,
        "stream_crc32c": work.crc32c,
        "model_fingerprint": model_fingerprint,
        "format": work.spec.format,
        "final": "true" if plan.final else "false",
    }


def shard_metadata(work: Work, name: str, identity: dict[str, str], crc32c: str, sha256: str) -> dict[str, str]:
    """The custom metadata of the object: its identity, its digests, its lease, and the code that made it."""
    attempt = {"run": work.run, "epoch": str(work.epoch), "stream_generation": str(work.generation)}
    digests = {"crc32c": crc32c, "sha256": sha256, "proof": lease_proof(work, name, sha256)}
    return identity | attempt | code_metadata() | digests


def lease_proof(work: Work, name: str, sha256: str) -> str:
    """Proves to the control plane that the object was stored under this lease: see docs/formats.md."""
    return hmac.digest(work.lease_key.encode(), f"{name}\n{sha256}".encode(), "sha256").hex()


def is_of_lease(work: Work, name: str, metadata: dict[str, str]) -> bool:
    """Whether the object was stored under this lease."""
    return hmac.compare_digest(
        metadata.get("proof", "").encode(), lease_proof(work, name, metadata.get("sha256", "")).encode()
    )


def disagreement(identity: dict[str, str], metadata: dict[str, str]) -> str | None:
    """The contradictions between a stored object's metadata and the plan, as a phrase; None without any."""
    differing = [
        f"{key} {metadata.get(key, 'nothing')} (now {value})"
        for key, value in identity.items()
        if metadata.get(key) != value
    ]
    return ", ".join(differing) or None

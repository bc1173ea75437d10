"""Uploads encoded shards, several at once.

The last shard is the commit point of a stream: every other shard, rejects.jsonl and metadata.json are there before it.
"""

import json
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass

from ..control import Control
from ..failures import Failure
from ..model.model import Model
from ..names import shard_name
from ..objects import Bucket, ObjectInfo
from ..pipeline import Pipeline
from ..upload_content import BytesContent, Content, FileContent
from ..work import Work
from .encode import CONTENT_TYPES
from .existing_shards import ExistingShards
from .plan import ShardPlan
from .rejects import RejectsFile, same_rejects
from .shard_bytes import ShardBytes
from .shard_identity import OTHER_SUMMARY, shard_identity, shard_metadata
from .summary import same_summary, shard_entry, stream_summary, tells_of

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class EncodedShard:
    plan: ShardPlan
    data: ShardBytes
    stats: dict[str, dict[str, float]]


class Uploader:
    """Stores encoded shards from any thread; the final shard waits for all others."""

    def __init__(
        self,
        work: Work,
        model: Model,
        bucket: Bucket,
        control: Control,
        existing: ExistingShards,
        rejects: RejectsFile,
    ):
        self._work, self._model, self._bucket = work, model, bucket
        self._control, self._existing, self._rejects = control, existing, rejects
        self._lock = threading.Lock()
        self._entries: dict[int, dict] = {}  # by shard number, for the shards that the bucket has
        self.is_committed = False

    def skip(self, plan: ShardPlan, info: ObjectInfo) -> None:
        """Counts a shard that the bucket has."""
        self._add(plan, shard_entry(self._work, self._model, plan, info.size_bytes, info.crc32c))

    def store(self, shard: EncodedShard, pipeline: Pipeline) -> None:
        """Returns when the bucket has the shard. Raises Failure when the bucket has another object of its name."""
        plan, work, data = shard.plan, self._work, shard.data
        entry = shard_entry(work, self._model, plan, data.size, data.crc32c) | {"stats": shard.stats}
        metadata = shard_metadata(work, shard_identity(work, plan, self._model.fingerprint), data.crc32c)
        if plan.final:
            pipeline.wait_until(lambda: len(self._entries) == plan.number - 1)
            if not self._store_summary(entry):
                metadata |= OTHER_SUMMARY
        name = shard_name(work.output_prefix, plan.number, work.spec.format)
        found = self._bucket.create(name, data, metadata, CONTENT_TYPES[work.spec.format])
        if found:
            # Stored by another worker of the stream, or by an attempt of ours without an answer: the same plan, the
            # same bytes.
            self._existing.accept(plan, found)
            if found.crc32c != data.crc32c:  # made on other hardware: the summary states the stored bytes
                entry = shard_entry(work, self._model, plan, found.size_bytes, found.crc32c)
        log.info("%s %s", "Found" if found else "Stored", name)
        self._add(plan, entry)
        pipeline.notify()

    def _add(self, plan: ShardPlan, entry: dict) -> None:
        with self._lock:
            self._entries[plan.number] = entry
            self._control.shards_done += 1
            self.is_committed = self.is_committed or plan.final

    def _store_summary(self, final: dict) -> bool:
        """Whether metadata.json then has this final shard, and not that of an attempt that stored none."""
        if os.path.getsize(self._rejects.path) > 0:
            with open(self._rejects.path, "rb") as file:
                data = FileContent(self._rejects.path, file)
                self._create_same("rejects.jsonl", data, "application/x-ndjson", same_rejects)
        entries = [self._entries[number] for number in sorted(self._entries)]
        entries = self._existing.add_stats(entries)
        text = json.dumps(stream_summary(self._work, self._model, [*entries, final]), indent=1) + "\n"
        data = BytesContent(text.encode("ascii"))
        found = self._create_same("metadata.json", data, "application/json", same_summary)
        return found is None or tells_of(found, final)

    def _create_same(
        self, name: str, data: Content, content_type: str, is_same: Callable[[bytes, bytes], bool]
    ) -> bytes | None:
        """Creates the object, or accepts an object of the same content; returns its bytes where they differ."""
        name = self._work.output_prefix + name
        facts = {"spec_hash": self._work.spec_hash, "stream_crc32c": self._work.crc32c}
        found = self._bucket.create(name, data, facts, content_type)
        if not found or found.crc32c == data.crc32c:
            return None
        data.seek(0)
        theirs = self._bucket.read(name) or b""
        if not is_same(data.read(), theirs):
            raise Failure(
                "stream",
                f"Failed to finish {self._work.object}: {name} is there with other content than this stream and spec "
                "make; move it away and retry the stream",
            )
        return theirs

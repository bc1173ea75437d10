"""Uploads encoded shards, several at once.

The last shard is the commit point of a stream: every other shard, rejects.jsonl and metadata.json are stored before it.
"""

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import BinaryIO

from gleaner_reader.format.limits import MAX_SMALL_OBJECT_BYTES
from gleaner_reader.run.formats import read_facts

from ..failures import Failure
from ..model.model import Model
from ..names import shard_name
from ..shards.encode import CONTENT_TYPES
from ..shards.existing_shards import ExistingShards
from ..shards.first_samples import SAMPLES
from ..shards.plan import ShardPlan
from ..shards.rejects import RejectsFile, same_rejects
from ..shards.shard_bytes import ShardBytes
from ..shards.shard_identity import OTHER_SUMMARY, is_of_lease, shard_identity, shard_metadata
from ..shards.summary import has_final_entry, same_summary, shard_entry, stream_summary
from ..spec.work import Work
from ..storage.objects import Bucket, Contradicts, ObjectInfo
from ..storage.upload_content import BytesContent, Content, FileContent, sha256_of
from .pipeline import Pipeline
from .state import ExtractionState
from .upload_streams import UploadStreams

log = logging.getLogger(__name__)

_MAX_REJECT_BYTES = 1 << 20
# Time for which an upload waits until the control plane has set an object of no lease aside, and between two tries.
SET_ASIDE_S = 300
RETRY_S = 5


@dataclass(frozen=True, eq=False)
class EncodedShard:
    """A shard that is ready to upload."""

    plan: ShardPlan
    data: ShardBytes


class Uploader:
    """Stores encoded shards from any thread; the final shard waits for all others."""

    def __init__(
        self,
        work: Work,
        model: Model,
        bucket: Bucket,
        state: ExtractionState,
        existing: ExistingShards,
        rejects: RejectsFile,
        samples: Callable[[], bytes | None],
        streams: UploadStreams,
    ):
        """samples: the content of samples.json. streams: the uploads, which add each piece to the bytes when it is
        sent."""
        self._work, self._model, self._bucket = work, model, bucket
        self._state, self._existing, self._rejects, self._streams = state, existing, rejects, streams
        self._samples = samples
        self._lock = threading.Lock()
        self._entries: dict[int, dict] = {}  # by shard number, for the shards that the bucket has
        self.is_committed = False

    def skip(self, plan: ShardPlan, info: ObjectInfo) -> None:
        """Counts a shard that the bucket has already."""
        sha256 = info.metadata.get("sha256", "")
        self._add(plan, shard_entry(self._work, self._model, plan, info.size_bytes, info.crc32c, sha256))

    def store(self, shard: EncodedShard, pipeline: Pipeline) -> None:
        """Returns when the bucket has the shard. Raises Contradicts where another attempt stored other bytes first."""
        self._store_samples(shard.plan)
        plan, work, data = shard.plan, self._work, shard.data
        facts = read_facts(data.read_range, data.size, work.spec.format)
        sha256 = sha256_of(data)
        entry = shard_entry(work, self._model, plan, data.size, data.crc32c, sha256) | facts
        identity = shard_identity(work, plan, self._model.fingerprint)
        name = shard_name(work.output_prefix, plan.number, work.spec.format)
        metadata = shard_metadata(work, name, identity, data.crc32c, sha256)
        if plan.final:
            pipeline.wait_until(lambda: len(self._entries) == plan.number - 1)
            if not self._store_summary(entry):
                metadata |= OTHER_SUMMARY
        stored = self._create_shard(plan, name, data, metadata, pipeline)
        if stored:
            # An earlier request of this lease, without an answer, stored the shard.
            self._existing.accept(plan, stored)
        log.info("%s %s", "Found" if stored else "Stored", name)
        self._add(plan, entry)
        pipeline.notify()

    def _store_samples(self, plan: ShardPlan) -> None:
        """Creates samples.json before the first shard; the first one stays. Only people read it, so a stream goes on
        without it."""
        try:
            if plan.number == 1 and (content := self._samples()):
                self._create(SAMPLES, BytesContent(content), "application/json")
        except (Failure, CancelledError, MemoryError) as error:  # a drain ends the processes that decode
            log.warning("Failed to store %s of %s: %s", SAMPLES, self._work.object, error)

    def _create_shard(
        self, plan: ShardPlan, name: str, data: Content, metadata: dict[str, str], pipeline: Pipeline
    ) -> ObjectInfo | None:
        """As `Bucket.create`. Waits until the control plane has set an object of no lease aside."""
        content_type = CONTENT_TYPES[self._work.spec.format]
        until = time.monotonic() + SET_ASIDE_S
        while True:
            try:
                stored = self._bucket.create(
                    name, data, metadata, content_type, self._custom_time(), self._streams.sent
                )
                if stored is None or is_of_lease(self._work, name, stored.metadata):
                    return stored
                error, found = None, {"object": name, "found": "no proof of this lease", "made": "the same bytes"}
            except Contradicts as contradiction:
                stored, error, found = contradiction.stored, contradiction, contradiction.contradiction
                if is_of_lease(self._work, name, stored.metadata):
                    # Another plan is the fault of the stream, other bytes are that of a machine.
                    self._existing.accept(plan, stored)
                    raise
            if time.monotonic() > until:
                raise self._contradiction(name, found) from error
            log.warning("%s was written under another lease; waiting until it is set aside", name)
            again = time.monotonic() + RETRY_S
            pipeline.wait_until(lambda at=again: time.monotonic() >= at)

    def _add(self, plan: ShardPlan, entry: dict) -> None:
        with self._lock:
            self._entries[plan.number] = entry
            self._state.shards_done += 1
            self.is_committed = self.is_committed or plan.final

    def _store_summary(self, final: dict) -> bool:
        """Creates rejects.jsonl and metadata.json. Returns whether metadata.json has this attempt's final shard."""
        if os.path.getsize(self._rejects.path) > 0:
            self._store_rejects(self._rejects.path)
        entries = [self._entries[number] for number in sorted(self._entries)]
        entries = self._existing.add_facts(entries)
        summary = stream_summary(self._work, self._model, [*entries, final], self._streams.measured())
        text = json.dumps(summary, indent=1) + "\n"
        data = BytesContent(text.encode("ascii"))
        error = self._create("metadata.json", data, "application/json")
        if error is None:
            return True
        other = error.stored
        theirs = b"" if other.size_bytes > MAX_SMALL_OBJECT_BYTES else self._bucket.read(other.name) or b""
        if not same_summary(data.getvalue(), theirs):
            raise self._contradiction(other.name, error.contradiction)
        return has_final_entry(theirs, final)

    def _store_rejects(self, path: str) -> None:
        with open(path, "rb") as mine:
            error = self._create("rejects.jsonl", FileContent(mine), "application/x-ndjson")
            if error is None:
                return
            other = error.stored
            self._bucket.download(other.name, f"{path}.stored", other.generation)
            mine.seek(0)
            with open(f"{path}.stored", "rb") as theirs:
                if not same_rejects(_lines(mine), _lines(theirs)):
                    raise self._contradiction(other.name, error.contradiction)

    def _create(self, name: str, data: Content, content_type: str) -> Contradicts | None:
        """Creates the object, or returns the error of a stored object whose bytes differ."""
        facts = {"spec_hash": self._work.spec_hash, "stream_crc32c": self._work.crc32c}
        try:
            self._bucket.create(self._work.output_prefix + name, data, facts, content_type, self._custom_time())
        except Contradicts as error:
            return error
        return None

    def _custom_time(self) -> datetime | None:
        return self._work.custom_time(datetime.now(UTC))

    def _contradiction(self, name: str, contradiction: dict[str, str] | None) -> Failure:
        return Failure(
            "stream",
            f"Failed to finish {self._work.object}: {name} exists with content that differs from that of "
            "this stream and spec; the control plane sets it aside, and the stream is tried again",
            contradiction,
        )


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines of the file. A longer line than any reject comes in pieces, which equal no line."""
    return iter(lambda: file.readline(_MAX_REJECT_BYTES), b"")

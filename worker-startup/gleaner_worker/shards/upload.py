"""From computed rows to objects in the bucket, in shard order, beside the computation.

The last shard is the commit point of a stream: rejects.jsonl and metadata.json are there before it.
"""

import json
import os
import queue
import threading
from collections.abc import Iterable, Iterator

from ..control import Control
from ..disk import writing
from ..failures import Failure
from ..model.loaded import Model
from ..names import shard_name
from ..objects import Bucket, ObjectInfo, file_crc32c
from .plan import ShardPlan
from ..records.samples import Reject, Sample
from .shard import ShardInProgress
from .write import CONTENT_TYPES, write_shard
from .stored import StoredShards
from .summary import shard_entry, stream_summary
from ..work import Work, shard_identity, shard_metadata

_SHARDS_IN_MEMORY = 2


class Uploader:
    """Takes finished shards in order and stores them from its own thread; an error there is raised by the next call."""

    def __init__(self, work: Work, model: Model, bucket: Bucket, folder: str, control: Control, stored: StoredShards):
        self._work, self._model, self._bucket, self._folder = work, model, bucket, folder
        self._control, self._stored = control, stored
        self._entries: list[dict] = []
        self._rejects = os.path.join(folder, "rejects.jsonl")
        self._room = threading.Semaphore(_SHARDS_IN_MEMORY)
        self._queue: queue.SimpleQueue[ShardInProgress | None] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._is_abandoned = False
        self._thread = threading.Thread(target=self._run, name="upload", daemon=True)

    def __enter__(self) -> "Uploader":
        self._thread.start()
        return self

    def __exit__(self, error: object, *_: object) -> None:
        self._is_abandoned = error is not None
        self._queue.put(None)

    def note_rejects(self, items: Iterable[Sample | Reject]) -> Iterator[Sample | Reject]:
        """Passes the items on and writes the rejected ones to disk: a stream may have any number of them."""
        with writing(self._rejects), open(self._rejects, "w", encoding="ascii") as file:
            for item in items:
                if isinstance(item, Reject):
                    file.write(json.dumps(item.record()) + "\n")
                yield item

    def skip(self, plan: ShardPlan, stored: ObjectInfo) -> None:
        """Counts a shard that the bucket has."""
        self._entries.append(shard_entry(self._work, self._model, plan, stored.size_bytes, stored.crc32c))

    def wait_for_room(self) -> None:
        """Returns when there is memory for one more shard."""
        while not self._room.acquire(timeout=0.2):
            self._raise_error()
            self._control.check_flush()
        self._raise_error()

    def put(self, shard: ShardInProgress) -> None:
        self._queue.put(shard)

    def finish(self) -> None:
        """Returns when everything put is stored."""
        self._control.phase = "uploading"
        self._queue.put(None)
        self._thread.join()
        self._raise_error()

    def _raise_error(self) -> None:
        if self._error:
            raise self._error

    def _run(self) -> None:
        try:
            while (shard := self._queue.get()) and not self._is_abandoned:
                self._store(shard)
                self._control.shards_done += 1
                del shard
                self._room.release()
        except BaseException as error:  # raised by the next call from the extraction
            self._error = error

    def _store(self, shard: ShardInProgress) -> None:
        plan, work = shard.plan, self._work
        identity = shard_identity(work, plan, self._model.fingerprint)
        path = os.path.join(self._folder, f"shard_{plan.number:04d}")
        write_shard(path, work.spec.format, plan, shard.layers, identity)
        checksum = file_crc32c(path)
        self._entries.append(shard_entry(work, self._model, plan, os.path.getsize(path), checksum))
        if plan.final:
            self._store_summary()
        name = shard_name(work.output_prefix, plan.number, work.spec.format)
        metadata = shard_metadata(work, identity, checksum)
        found = self._bucket.create(name, path, metadata, CONTENT_TYPES[work.spec.format])
        if found:
            # By another holder of the lease, or our own attempt whose answer was lost: the same plan, the same bytes.
            self._stored.accept(plan, found)
        os.unlink(path)

    def _store_summary(self) -> None:
        if os.path.getsize(self._rejects) > 0:
            self._create_same("rejects.jsonl", self._rejects, "application/x-ndjson")
        path = os.path.join(self._folder, "metadata.json")
        with writing(path), open(path, "w", encoding="ascii") as file:
            json.dump(stream_summary(self._work, self._model, self._entries), file, indent=1)
            file.write("\n")
        self._create_same("metadata.json", path, "application/json")

    def _create_same(self, name: str, path: str, content_type: str) -> None:
        """Creates the object, or finds the very same content there."""
        name = self._work.output_prefix + name
        found = self._bucket.create(
            name, path, {"spec_hash": self._work.spec_hash, "stream_crc32c": self._work.crc32c}, content_type
        )
        if found and found.crc32c != file_crc32c(path):
            raise Failure(
                "stream",
                f"Failed to finish {self._work.object}: {name} is there with other content than this stream and spec "
                "make; move it away and retry the stream",
            )

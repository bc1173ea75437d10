"""The shards of one extraction in memory. Their number has a limit for streams of any length.

The limit follows the uploads at once, because each holds its shard until the bucket has it. Uploads are few where few
are enough: 3 or 4 for 1 GB/s, 12 where a connection carries 150 MB/s. All 64 (`upload_streams.MOST`) run only where
each of the last brought more, as on connections of 25 MB/s, and half of a small host's memory ends that before: a v5e-1
of 48 GB has at most 24 shards of 1 GB. So a lower limit would save nothing on a fast network, and time on a slow one.
"""

import os
import threading
from collections.abc import Callable

from ..shards.shard_buffer import ShardBuffer

_NOT_IN_UPLOAD = 2  # shards in computation and encoding
_MEMORY_SHARE = 0.5  # of this machine's memory, for shards


class ShardMemory:
    """Counts a shard from its first row until it is stored. Every method may be called from any thread.

    uploads: the number of uploads at once at this moment.
    """

    def __init__(self, shard_bytes: int, window_shards: int, uploads: Callable[[], int]):
        self._shard_bytes, self._window_shards, self._uploads = shard_bytes, window_shards, uploads
        self._lock = threading.Lock()
        self.count = 0
        self._unencoded: list[ShardBuffer] = []

    @property
    def most(self) -> int:
        """The limit of `count`."""
        return most_shards(self._shard_bytes, self._window_shards, self._uploads())

    @property
    def unencoded(self) -> list[ShardBuffer]:
        """The shards whose rows wait for the encoder."""
        with self._lock:
            return list(self._unencoded)

    def add(self, shard: ShardBuffer) -> None:
        with self._lock:
            self.count += 1
            self._unencoded.append(shard)

    def note_encoded(self, shard: ShardBuffer) -> None:
        with self._lock:
            self._unencoded.remove(shard)

    def note_stored(self) -> None:
        with self._lock:
            self.count -= 1


def most_shards(shard_bytes: int, window_shards: int, uploads: int) -> int:
    """Enough shards to keep every stage busy, as far as they fit into memory; at least two.

    shard_bytes: of one shard in memory. window_shards: the shards that one window fills, which are open together.
    uploads: at once.
    """
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(2, min(_NOT_IN_UPLOAD + uploads + window_shards - 1, int(memory * _MEMORY_SHARE) // max(shard_bytes, 1)))

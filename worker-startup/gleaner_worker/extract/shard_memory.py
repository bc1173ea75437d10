"""The shards of one extraction in memory. Their number has a limit for streams of any length."""

import os
import threading

from ..shards.shard_buffer import ShardBuffer

# Concurrent uploads. A core sends 1.2 GB/s over TLS, so 24 fill a network of 200 Gbit/s; other stages need cores too.
UPLOADS = min(24, max(4, (os.cpu_count() or 1) // 8))
_MAX_SHARDS = 2 + UPLOADS  # two shards in computation and encoding, the others in upload
_MEMORY_SHARE = 0.5  # of this machine's memory, for shards


class ShardMemory:
    """Counts a shard from its first row until it is stored. Every method may be called from any thread."""

    def __init__(self, shard_bytes: int, window_shards: int):
        self.most = most_shards(shard_bytes, window_shards)
        self._lock = threading.Lock()
        self.count = 0
        self._unencoded: list[ShardBuffer] = []

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


def most_shards(shard_bytes: int, window_shards: int) -> int:
    """Enough shards to keep every stage busy, as far as they fit into memory; at least two.

    shard_bytes: of one shard in memory. window_shards: the shards that one window fills, which are open together.
    """
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(2, min(_MAX_SHARDS + window_shards - 1, int(memory * _MEMORY_SHARE) // max(shard_bytes, 1)))

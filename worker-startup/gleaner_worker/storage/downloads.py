"""Bytes that this host has downloaded since its boot: weights and the worker environment. Heartbeats report them."""

import os
import threading

_FILE = "received"
_WAYS = ("nat_bytes", "bucket_bytes", "other_bytes")


class Downloads:
    """Counts bytes by their way: through Cloud NAT, from the bucket of the deployment, and from other buckets.

    A file in `home` keeps the counts over a restart of the agent. startup.sh writes it first. Its line has the
    incarnation and the count of each way. The file of another incarnation counts nothing.
    """

    def __init__(self, home: str, incarnation: int, bucket: str):
        self._path = os.path.join(home, _FILE)
        self._incarnation, self._bucket = incarnation, bucket
        self._lock = threading.Lock()
        self._counts = self._stored()

    def add_from_hub(self, count: int) -> None:
        self._add("nat_bytes", count)

    def add_from_bucket(self, name: str, count: int) -> None:
        self._add("bucket_bytes" if name == self._bucket else "other_bytes", count)

    def report(self) -> dict[str, int]:
        """All bytes since the boot, by way. Stores them first, so no later report of this boot has fewer."""
        with self._lock:
            counts = dict(self._counts)
        try:
            with open(f"{self._path}.new", "w", encoding="ascii") as file:
                file.write(" ".join(map(str, (self._incarnation, *counts.values()))) + "\n")
            os.replace(f"{self._path}.new", self._path)
        except OSError:  # a full disk must not end the heartbeats
            pass
        return counts

    def _add(self, way: str, count: int) -> None:
        with self._lock:
            self._counts[way] += count

    def _stored(self) -> dict[str, int]:
        try:
            with open(self._path, encoding="ascii") as file:
                incarnation, *counts = map(int, file.read(200).split())
        except (OSError, ValueError):
            incarnation, counts = -1, []
        known = incarnation == self._incarnation and len(counts) == len(_WAYS) and min(counts) >= 0
        return dict(zip(_WAYS, counts if known else (0, 0, 0), strict=True))

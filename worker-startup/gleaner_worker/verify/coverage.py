"""The samples that the shards of a stream cover: in order, without a gap, up to the final shard."""

from ..storage.objects import ObjectInfo


class Coverage:
    """The shards so far, in the order of their numbers.

    end: the last sample that they cover. totals: the sums of the numbers in their metadata, by key.
    """

    def __init__(self, prefix: str, keys: tuple[str, ...]):
        self._prefix = prefix
        self._last: tuple[int, ObjectInfo] | None = None
        self.end, self.is_final = -1, False
        self.totals: dict[str, int] = dict.fromkeys(keys, 0)

    @property
    def _next(self) -> int:
        return self._last[0] + 1 if self._last else 1

    def gap_before(self, number: int) -> str | None:
        """The problem that shards before this number are missing."""
        is_second = self._last is not None and number == self._last[0]
        return None if is_second or self.is_final or number == self._next else self._missing(number - 1)

    def add(self, number: int, shard: ObjectInfo, numbers: dict[str, int] | None) -> list[str]:
        """Adds a shard, with the numbers in its metadata if they are valid. Returns phrases about its wrong place."""
        wrong = []
        if self._last and number == self._last[0]:
            wrong.append(f"is shard {number}, as {self._last[1].name} is")
        if numbers:
            if number == self._next and numbers["first_sample"] != self.end + 1:
                first = numbers["first_sample"]
                wrong.append(f"starts at sample {first}, but the shards before it end at sample {self.end}")
            if self.is_final:
                wrong.append("comes after the final shard")
            self.end = max(self.end, numbers["last_sample"])
            self.totals = {key: total + numbers[key] for key, total in self.totals.items()}
            self.is_final = shard.metadata.get("final") == "true"
        self._last = (number, shard)
        return wrong

    def missing_end(self, name: str, samples: int) -> str | None:
        """The problem that the shards do not cover all `samples` of the stream `name`."""
        if samples == 0:
            return f"{name} is empty: it holds no record; drop it again with its records"
        if self.is_final and self.end == samples - 1:
            return None
        missing = "" if self.is_final else f"; {self._missing(self._next)}, and perhaps more shards"
        return f"{name} is not finished: its shards cover {self.end + 1} of its {samples} samples{missing}"

    def _missing(self, last: int) -> str:
        if self._next >= last:
            return f"{self._prefix}shard_{self._next:04d} is missing"
        return f"{self._prefix}shard_{self._next:04d} to shard_{last:04d} are missing"

"""Batches that wait for each other: several devices compute batches of one width at the same time."""

from .shards.shard_buffer import ShardBuffer

# A batch of a shard, by its number.
Part = tuple[ShardBuffer, int]


class BatchQueue:
    """Groups the batches of consecutive shards by their width, one batch for each device."""

    def __init__(self, devices: int):
        self._devices = devices
        self._waiting: dict[int, list[Part]] = {}  # by width

    def add(self, shard: ShardBuffer, number: int) -> list[Part] | None:
        """Returns the group of this batch when every device has a batch, otherwise None."""
        width = shard.batches[number].width
        group = self._waiting.setdefault(width, [])
        group.append((shard, number))
        return self._waiting.pop(width) if len(group) == self._devices else None

    def take_oldest(self, most: int) -> list[list[Part]]:
        """The groups with batches of the oldest shard, narrowest first; none while at most `most` shards wait."""
        numbers = sorted({shard.plan.number for parts in self._waiting.values() for shard, _ in parts})
        if len(numbers) <= most:
            return []
        oldest = {width for width, parts in self._waiting.items() if any(s.plan.number == numbers[0] for s, _ in parts)}
        return [self._waiting.pop(width) for width in sorted(oldest)]

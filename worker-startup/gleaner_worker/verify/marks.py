"""The marks that shards and rejects leave on the samples of a stream: one byte of bits for each sample."""

# A shard stores the sample; a second shard stores it too; a shard stores other content for it.
STORED, STORED_AGAIN, DIFFERENT = 1, 2, 4
# rejects.jsonl lists the sample; rejects.jsonl lists it a second time.
LISTED_REJECT, LISTED_AGAIN = 8, 16
# The stream's line makes a reject; the line makes a truncated sample.
REJECTED, TRUNCATED = 32, 64

_OUTCOMES = ("stored_once", "missing", "doubled", "different", "rejected")


def outcome_of(mark: int) -> str:
    """The count of the report to which a sample with this mark adds."""
    if mark & (STORED_AGAIN | LISTED_AGAIN) or (mark & STORED and mark & LISTED_REJECT):
        return "doubled"
    if mark & STORED:
        return "different" if mark & (DIFFERENT | REJECTED) else "stored_once"
    return "rejected" if mark & LISTED_REJECT and mark & REJECTED else "missing"


def count(marks: bytearray) -> dict[str, int]:
    """The number of samples of each outcome, of truncated samples, and of all samples."""
    counts = {"samples": len(marks)} | dict.fromkeys((*_OUTCOMES, "truncated"), 0)
    for mark in set(marks):
        counts[outcome_of(mark)] += marks.count(mark)
        if mark & TRUNCATED:
            counts["truncated"] += marks.count(mark)
    return counts


def first_of(marks: bytearray, outcome: str) -> int:
    """The index of the first sample with this outcome. Raises StopIteration without any."""
    return next(index for index, mark in enumerate(marks) if outcome_of(mark) == outcome)


def mark_different(marks: bytearray, first_sample: int, last_sample: int) -> None:
    """Marks first_sample..last_sample as stored with other content."""
    span = slice(first_sample, last_sample + 1)
    marks[span] = bytes(mark | STORED | DIFFERENT for mark in marks[span])

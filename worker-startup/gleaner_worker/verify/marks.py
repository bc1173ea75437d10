"""The marks that shards and rejects leave on the samples of a stream: one byte of bits for each sample."""

# A shard stores the sample; a second shard does; a shard stores it with other content.
STORED, STORED_AGAIN, DIFFERENT = 1, 2, 4
# rejects.jsonl lists the sample; it lists it a second time.
LISTED_REJECT, LISTED_AGAIN = 8, 16
# The stream's line makes a reject; it makes a truncated sample.
BAD, CUT = 32, 64


def kind_of(mark: int) -> str:
    """The count of the report that a sample with this mark belongs to."""
    if mark & (STORED_AGAIN | LISTED_AGAIN) or (mark & STORED and mark & LISTED_REJECT):
        return "doubled"
    if mark & STORED:
        return "different" if mark & (DIFFERENT | BAD) else "stored_once"
    return "rejected" if mark & LISTED_REJECT and mark & BAD else "missing"


def count(marks: bytearray) -> dict[str, int]:
    counts = {
        "samples": len(marks),
        "stored_once": 0,
        "missing": 0,
        "doubled": 0,
        "different": 0,
        "rejected": 0,
        "truncated": 0,
    }
    for mark in set(marks):
        counts[kind_of(mark)] += marks.count(mark)
        if mark & CUT:
            counts["truncated"] += marks.count(mark)
    return counts


def first_of(marks: bytearray, kind: str) -> int:
    return next(index for index, mark in enumerate(marks) if kind_of(mark) == kind)


def mark_different(marks: bytearray, first_sample: int, last_sample: int) -> None:
    span = slice(first_sample, last_sample + 1)
    marks[span] = bytes(mark | STORED | DIFFERENT for mark in marks[span])

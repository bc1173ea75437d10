"""Reads the small objects beside the shards; an object that cannot be read becomes a problem of the report."""

from gleaner_reader.format.limits import MAX_SMALL_OBJECT_BYTES

from ..failures import Damaged, Failure, Unreachable
from ..storage.objects import Bucket, ObjectInfo


def unread(error: Exception) -> str:
    """The phrase for an object that cannot be downloaded."""
    if isinstance(error, Damaged):
        return "is damaged: its bytes differ from its checksum"
    return f"cannot be read: {error}"


def read_object(bucket: Bucket, info: ObjectInfo, problems: list[str]) -> bytes | None:
    """The bytes of the object; None where it cannot be downloaded, with the reason added to `problems`."""
    if info.size_bytes > MAX_SMALL_OBJECT_BYTES:
        problems.append(f"{info.name} has {info.size_bytes} bytes; the limit is {MAX_SMALL_OBJECT_BYTES}")
        return None
    try:
        return bucket.read(info.name) or b""
    except Unreachable:
        raise
    except Failure as error:
        problems.append(f"{info.name} {unread(error)}")
        return None

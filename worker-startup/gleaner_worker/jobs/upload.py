"""Uploads of an attempt: its artifacts, and a result that is too long for a document."""

from dataclasses import dataclass

from ..failures import Failure
from ..objects import Bucket
from .left_files import LeftFile, open_left, walk

MOST_RESULT_BYTES = 262_144  # of a document
_MOST_STORED_RESULT_BYTES = 4 << 30
_MOST_ARTIFACTS = 10_000
_MOST_ARTIFACT_BYTES = 200 << 30
_MOST_DEPTH = 32
_MOST_NAMED = 20  # files in the note about those left out
_TEXT = "text/plain; charset=utf-8"


class ResultFailed(Exception):
    """The result cannot be stored."""


@dataclass(frozen=True)
class Result:
    text: str | None = None
    object: str | None = None  # the name of the object with a longer result


def store_result(path: str, uid: int, bucket: Bucket, folder: str) -> Result:
    """Reads the file of the result. Raises ResultFailed with the reason."""
    try:
        with open_left(path, uid) as file:
            data = file.read(MOST_RESULT_BYTES + 1)
            text = data.decode("utf-8", "replace")
            # A replaced byte is longer than the byte.
            if len(data) <= MOST_RESULT_BYTES and len(text.encode()) <= MOST_RESULT_BYTES:
                return Result(text=text)
            file.seek(0)
            content = LeftFile(file)
            if content.size > _MOST_STORED_RESULT_BYTES:
                raise ResultFailed(f"The result has {content.size} bytes; the limit is {_MOST_STORED_RESULT_BYTES}")
            name = f"{folder}result.txt"
            bucket.create(name, content, {}, _TEXT)
            return Result(object=name)
    except FileNotFoundError:
        return Result()
    except ValueError as error:
        raise ResultFailed(f"Failed to read the result: {error}") from error


def store_artifacts(path: str, uid: int, bucket: Bucket, folder: str) -> tuple[int, list[str]]:
    """Uploads each regular file below `path`. Returns their count, and a line for each file left out."""
    stored, left_bytes, problems = 0, _MOST_ARTIFACT_BYTES, []
    try:
        for name, entry, fd in walk(path, _MOST_DEPTH):
            bucket.check()
            try:
                if stored + len(problems) >= _MOST_ARTIFACTS:
                    raise OverflowError(f"more than {_MOST_ARTIFACTS} files")
                if not name.isprintable() or len(folder) + len(name.encode("utf-8", "replace")) > 1000:
                    raise ValueError("its name is too long, or has characters that cannot be printed")
                with open_left(entry, uid, fd) as file:
                    content = LeftFile(file)
                    if content.size > left_bytes:
                        raise OverflowError(f"more than {_MOST_ARTIFACT_BYTES} bytes")
                    bucket.create(f"{folder}artifacts/{name}", content, {}, "application/octet-stream")
                    stored, left_bytes = stored + 1, left_bytes - content.size
            except OverflowError as error:
                problems.append(f"{name!r} and the files after it: {error}")
                break
            except (ValueError, OSError) as error:
                problems.append(f"{name!r}: {error}")
            except Failure as error:
                problems.append(f"{name!r}: {error.reason}")
    except (ValueError, OSError) as error:
        problems.append(str(error))
    return stored, problems


def note_left_out(problems: list[str]) -> bytes:
    """The end of the output, for people who miss an artifact."""
    more = len(problems) - _MOST_NAMED
    lines = problems[:_MOST_NAMED] + ([f"and {more} more"] if more > 0 else [])
    return "".join(f"[gleaner] artifact left out: {line}\n" for line in lines).encode("utf-8", "replace")

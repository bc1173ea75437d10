"""Uploads of an attempt: its artifacts, and a result that is too long for a document."""

from dataclasses import dataclass

from ..failures import Failure
from ..storage.objects import Bucket, Contradicts
from ..storage.untrusted_files import open_untrusted, walk
from ..storage.upload_content import FileContent

MAX_RESULT_BYTES = 262_144  # in a document
_MAX_STORED_RESULT_BYTES = 4 << 30
_MAX_ARTIFACTS = 10_000
_MAX_ARTIFACT_BYTES = 200 << 30
_MAX_DEPTH = 32
_MAX_NAMED = 20  # files in the note about those left out
_TEXT = "text/plain; charset=utf-8"


class ResultFailed(Exception):
    """The result cannot be stored."""


@dataclass(frozen=True)
class Result:
    """The result of a job. Both fields are None without a result."""

    text: str | None = None
    object: str | None = None  # the name of the object with a longer result


def store_result(path: str, uid: int, bucket: Bucket, folder: str) -> Result:
    """Reads the result file, and uploads a result that is too long for a document. Raises ResultFailed."""
    try:
        with open_untrusted(path, uid) as file:
            data = file.read(MAX_RESULT_BYTES + 1)
            text = data.decode("utf-8", "replace")
            # A replacement character is longer than the byte that it replaces.
            if len(data) <= MAX_RESULT_BYTES and len(text.encode()) <= MAX_RESULT_BYTES:
                return Result(text=text)
            file.seek(0)
            content = FileContent(file)
            if content.size > _MAX_STORED_RESULT_BYTES:
                raise ResultFailed(
                    f"The result has {content.size} bytes; the limit is {_MAX_STORED_RESULT_BYTES}; "
                    "write it as a file to JOB_ARTIFACTS"
                )
            name = f"{folder}result.txt"
            bucket.create(name, content, {}, _TEXT)
            return Result(object=name)
    except FileNotFoundError:
        return Result()
    except ValueError as error:
        raise ResultFailed(f"Failed to read the result: {error}; write a regular file to JOB_RESULT") from error


def store_artifacts(path: str, uid: int, bucket: Bucket, folder: str) -> tuple[int, list[str]]:
    """Uploads each regular file below `path`. Returns their count, and a line for each file left out.

    A Failure of the bucket's check, for example at the deadline of a preemption, leaves out the other files. Raises
    Contradicts where another writer stored an artifact of that name.
    """
    stored, left_bytes, problems = 0, _MAX_ARTIFACT_BYTES, []
    try:
        for name, entry, fd in walk(path, _MAX_DEPTH):
            bucket.check()
            try:
                if stored + len(problems) >= _MAX_ARTIFACTS:
                    raise OverflowError(f"more than {_MAX_ARTIFACTS} files")
                if not name.isprintable() or len(folder) + len(name.encode("utf-8", "replace")) > 1000:
                    raise ValueError("its name is too long, or has unprintable characters")
                with open_untrusted(entry, uid, fd) as file:
                    content = FileContent(file)
                    if content.size > left_bytes:
                        raise OverflowError(f"more than {_MAX_ARTIFACT_BYTES} bytes")
                    bucket.create(f"{folder}artifacts/{name}", content, {}, "application/octet-stream")
                    stored, left_bytes = stored + 1, left_bytes - content.size
            except OverflowError as error:
                problems.append(f"{name!r} and the files after it: {error}")
                break
            except (ValueError, OSError) as error:
                problems.append(f"{name!r}: {error}")
            except Contradicts:
                raise
            except Failure as error:
                problems.append(f"{name!r}: {error.reason}")
    except (ValueError, OSError) as error:
        problems.append(str(error))
    except Contradicts:
        raise
    except Failure as error:
        problems.append(f"the other files: {error.reason}")
    return stored, problems


def note_left_out(problems: list[str]) -> bytes:
    """Lines for the end of the output, which name the artifacts that were left out."""
    more = len(problems) - _MAX_NAMED
    lines = problems[:_MAX_NAMED] + ([f"and {more} more"] if more > 0 else [])
    return "".join(f"[gleaner] artifact left out: {line}\n" for line in lines).encode("utf-8", "replace")

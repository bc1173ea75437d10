"""The result of an attempt: in the document of its job, or in the bucket where it is too long."""

from ..storage.objects import Bucket
from ..storage.untrusted_files import open_untrusted
from ..storage.upload_content import FileContent

MAX_RESULT_BYTES = 262_144  # in a document
_MAX_STORED_RESULT_BYTES = 4 << 30
_TEXT = "text/plain; charset=utf-8"


class ResultFailed(Exception):
    """The result cannot be stored."""


def store_result(path: str, uid: int, bucket: Bucket, folder: str) -> dict:
    """Reads the result file. Returns its field of the request `finish`: the text `result`, or the name `result_object`
    where it is too long for a document. Raises ResultFailed."""
    try:
        with open_untrusted(path, uid) as file:
            data = file.read(MAX_RESULT_BYTES + 1)
            text = data.decode("utf-8", "replace")
            # A replacement character is longer than the byte that it replaces.
            if len(data) <= MAX_RESULT_BYTES and len(text.encode()) <= MAX_RESULT_BYTES:
                return {"result": text}
            file.seek(0)
            content = FileContent(file)
            if content.size > _MAX_STORED_RESULT_BYTES:
                raise ResultFailed(
                    f"The result has {content.size} bytes; the limit is {_MAX_STORED_RESULT_BYTES}; "
                    "write it as a file to JOB_ARTIFACTS"
                )
            name = f"{folder}result.txt"
            bucket.create(name, content, {}, _TEXT)
            return {"result_object": name}
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ResultFailed(f"Failed to read the result: {error}; write a regular file to JOB_RESULT") from error

"""The stream that a worker leased, as a file of this machine."""

from .failures import Failure
from .objects import Bucket
from .work import Work


def download_stream(work: Work, bucket: Bucket, path: str) -> None:
    """Copies the generation of the lease. Raises Failure("stream") when the object has another one by now."""
    try:
        bucket.download(work.object, path, work.generation)
    except FileNotFoundError as error:
        raise Failure(
            "stream",
            f"Failed to read {work.object}: generation {work.generation} was overwritten or deleted "
            "while the run was working on it; give the new content a stream or a run of its own",
        ) from error

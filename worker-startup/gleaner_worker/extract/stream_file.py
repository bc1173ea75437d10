"""The leased stream as a file on this machine."""

from ..failures import Failure
from ..storage.objects import Bucket
from ..work import Work


def download_stream(work: Work, bucket: Bucket, path: str) -> None:
    """Downloads the leased generation to `path`. Raises Failure("stream") when it was overwritten or deleted."""
    try:
        bucket.download(work.object, path, work.generation)
    except FileNotFoundError as error:
        raise Failure(
            "stream",
            f"Failed to read {work.object}: generation {work.generation} was overwritten or deleted "
            "while the run was working on it; give the new content a stream or a run of its own",
        ) from error

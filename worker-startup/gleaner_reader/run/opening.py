from ..format.files import open_file, open_folder
from .formats import FORMATS, open_shard
from .run import Run, open_run
from .shard import Shard


def open(where: str) -> Run | Shard:
    """Opens a run by its folder (`activations/RUN`, or the `tpu_N` of one stream), or one shard by its file.

    where: a path of this machine, or gs://BUCKET/…. Raises FileNotFoundError, ShardError or MissingPackage. Warns when
    the run is not complete.
    """
    where = str(where).rstrip("/")
    if where.endswith(tuple(f".{name}" for name in FORMATS)):
        return open_shard(open_file(where))
    return open_run(open_folder(where))

from ..format.files import open_file, open_folder
from .formats import FORMATS, open_shard
from .run import Run, open_run
from .shard import Shard


def open(where: str) -> Run | Shard:
    """Opens a run, or one shard of it. Reads a few headers and no row. Warns if the run is not complete.

    Args:
        where: the folder of a run (`activations/RUN`) or of one of its streams (`tpu_N`), or the file of a shard: a
            path of this machine, or gs://BUCKET/….

    Raises:
        FileNotFoundError: nothing has that name, or the folder has no shards.
        ShardError: a file is damaged, or two shards have the same number.
        MissingPackage: gs:// needs google-cloud-storage.

    >>> run = gleaner_reader.open("gs://my-bucket/activations/my-run")
    >>> run.layers, run.d_model
    ((4, 12), 8)
    """
    where = str(where).rstrip("/")
    if where.endswith(tuple(f".{name}" for name in FORMATS)):
        return open_shard(open_file(where))
    return open_run(open_folder(where))

"""Computes samples of a run with transformers in fp32, and prints the drift of the stored rows as one line of JSON.

    python -m gleaner_worker.reference --bucket B --run RUN --samples N

Exit status: 0, or 2 with the reason on the last line of stderr. Writes nothing to the bucket.
"""

import argparse
import json
import logging
import os
import sys
import tempfile

from gleaner_reader import ShardError
from gleaner_reader.format.errors import printable

from ..failures import Failure
from ..storage.objects import Bucket, make_client
from .compare import Reference, compare_run


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m gleaner_worker.reference", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--bucket", required=True)
    parser.add_argument("--run", required=True)
    parser.add_argument("--samples", type=int, required=True)
    parser.add_argument("--project")
    args = parser.parse_args()
    logging.getLogger().setLevel(logging.ERROR)
    os.environ["HF_HUB_OFFLINE"] = "1"  # the files of the model lie in a folder
    try:
        bucket = Bucket(make_client(args.project), args.bucket)
        with tempfile.TemporaryDirectory(prefix="gleaner-reference-") as folder:
            found = compare_run(bucket, args.run, args.samples, folder, load, say)
        print(json.dumps({"versions": versions()} | found), flush=True)
    except (Failure, ShardError, OSError, ValueError, LookupError) as error:
        say(" ".join(str(error).split()))
        return 2
    return 0


def load(folder: str) -> Reference:
    import transformers

    from . import transformers_model

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model = transformers_model.load(folder)
    return lambda token_ids, names, top_k: transformers_model.run(model, token_ids, names, top_k)


def versions() -> dict[str, str]:
    import torch
    import transformers

    return {module.__name__: module.__version__ for module in (torch, transformers)}


def say(line: str) -> None:
    print(printable(line), file=sys.stderr, flush=True)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)

"""Compiles the program of a run for types of TPU, without a TPU, and prints the figures of each as a line of JSON.

    python -m gleaner_worker.preflight --spec JSON --home FOLDER --accelerators TYPES [--smallest] [--bucket B]

Reads the small files of the model, never its weights. Exit status: 0, or 2 when the model or the accelerator cannot be
used, with the reason on the last line of stderr. Earlier lines report the types, and waits for a hub. A program that
does not fit is a result.
"""

import argparse
import json
import logging
import os
import sys

from gleaner_reader.format.errors import printable

from ..failures import Failure
from ..model.files.hub import own_hub, print_wait
from ..model.files.model_source import find_spec_files, read_rules
from ..model.weights.reduction_weights import read_capture
from ..spec.read_spec import read_spec
from ..storage.objects import Bucket, make_client
from .accelerators import ACCELERATORS


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m gleaner_worker.preflight", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--spec", required=True, help="the complete spec, as JSON")
    parser.add_argument("--home", required=True, help="where the small files of models are kept")
    parser.add_argument("--accelerators", required=True, help="types of TPU, with commas between")
    parser.add_argument(
        "--smallest", action="store_true", help="compile no further type of a generation after one that fits"
    )
    parser.add_argument("--bucket")
    parser.add_argument("--project")
    args = parser.parse_args()
    logging.getLogger().setLevel(logging.ERROR)
    try:
        types = args.accelerators.split(",")
        if unknown := ", ".join(each for each in types if each not in ACCELERATORS):
            raise Failure("model", f"Failed to compile for {unknown}: pass one of {', '.join(ACCELERATORS)}")
        bucket = Bucket(make_client(args.project), args.bucket) if args.bucket else None
        spec = read_spec(args.spec)
        hub = own_hub(print_wait)
        files = find_spec_files(spec, args.home, bucket, hub=hub, weights=False, tokenizer=False)
        capture, _ = read_capture(spec, files)
        rules = read_rules(spec, capture.config, files.folder)
        # JAX takes its settings from the environment when it is imported.
        from .estimate_program import estimate_program

        model: dict = {"model": files.name, "revision": files.revision, "layers": len(capture.layers)}
        if reductions := capture.sizes_of_reductions(spec.compute_dtype):
            model["reductions"] = reductions
        fitting: set[str] = set()
        for accelerator in types:
            generation, *_ = ACCELERATORS[accelerator]
            if args.smallest and generation in fitting:
                continue
            print(f"Compiling {files.name} for {accelerator}", file=sys.stderr, flush=True)
            program = model | estimate_program(spec, capture, accelerator, rules)
            print(json.dumps(program), flush=True)
            if program["fits"]:
                fitting.add(generation)
    except (Failure, OSError) as error:
        print(printable(str(error)), file=sys.stderr, flush=True)
        return 2
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # libtpu's own exit takes seconds

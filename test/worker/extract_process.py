"""An extractor in a process of its own, for tests that kill it: `extract_process.py WORK_ANSWER_JSON MODEL FOLDER`."""

import json
import sys

if __name__ == "__main__":
    import environment  # noqa: F401  (before the rest)
    from build import bucket, parse_work
    from gleaner_worker.control import Control
    from gleaner_worker.extract import extract
    from gleaner_worker.model.loaded import load_model

    answer = json.loads(sys.argv[1])
    work = parse_work(answer["lease"], answer["work"])
    print(extract(work, load_model(work.spec, sys.argv[3], bucket()), bucket(), sys.argv[3] + "/scratch", Control()))

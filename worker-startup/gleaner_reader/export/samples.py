"""samples.jsonl of an export: where each sample is in its rows, and the fields that the run kept of it."""

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..run.run import Run
    from .unfinished import Unfinished

SAMPLES = "samples.jsonl"


def write_samples(run: "Run", unfinished: "Unfinished", context_size: int = 0) -> None:
    """Writes a line of JSON for each stored sample, in the order of storage.

    It has `stream`, `sample` from 0, `rows` (the first one of the run, and the one after the last), `kept` of a run
    that keeps fields, and `line` from 1 and `chunk` from 0 where records are cut or joined. context_size: adds
    `contexts`, numbered over the run like `rows`, if each sample is cut into contexts of so many rows and the rest is
    left out.
    """
    rows = contexts = 0
    with open(unfinished.path(SAMPLES), "w", encoding="ascii") as file:
        for shard in run.shards:
            index = run.index(shard)
            for place, sample in enumerate(index.sample_idx.tolist()):
                begin, end = (rows + index.row_offsets[place : place + 2]).tolist()
                line: dict = {"stream": shard.stream, "sample": sample, "rows": [begin, end]}
                if context_size:
                    line["contexts"] = [contexts, contexts := contexts + (end - begin) // context_size]
                if index.lines is not None and index.chunks is not None:
                    line |= {"line": int(index.lines[place]) + 1, "chunk": int(index.chunks[place])}
                if index.kept:
                    line["kept"] = index.kept[place]
                file.write(json.dumps(line) + "\n")
            rows += shard.num_rows

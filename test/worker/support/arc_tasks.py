"""ARC tasks to test with, and their prompts."""

import json

from build import a_spec
from gleaner_worker.records.chat.arc import make_arc_prompts, parse_task
from gleaner_worker.records.chat.chat import Chat
from gleaner_worker.records.lines.stream import read_lines
from gleaner_worker.records.samples.read_prompts import read_prompts
from gleaner_worker.records.samples.sample import Reject
from gleaner_worker.records.samples.tokenize_lines import make_sample_settings

TASK = {
    "task_id": "t",
    "train": [
        {"input": [[0, 7, 7], [7, 0, 0]], "output": [[7, 7, 7]]},
        {"input": [[0, 2], [3, 4]], "output": [[5, 6], [8, 9]]},
        {"input": [[1]], "output": [[2]]},
    ],
    "test": [{"input": [[1]], "output": [[9]]}, {"input": [[0, 7, 0]], "output": [[4, 4, 4]]}],
}


def encode_task(record):
    """The default prompt for a model without a chat template."""
    return make_arc_prompts(Chat(None, None, {}), None, "output-from-examples-v0").write(parse_task(record))


def read(folder, tmp_path, records, **record):
    path = tmp_path / "stream"
    path.write_text("".join(json.dumps(entry) + "\n" for entry in records))
    settings = make_sample_settings(folder, a_spec(record=record, max_seq_length=100_000), 600, 100_000)
    return [item for batch in read_prompts(read_lines(str(path), "x"), "x", settings.writer, ()) for item in batch]


def prompts(folder, tmp_path, records=(TASK,), **record):
    items = read(folder, tmp_path, records, **record)
    return [item.reason if isinstance(item, Reject) else item.prompt.content for item in items]

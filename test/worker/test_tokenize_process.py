"""Lines tokenised by other processes: the same samples, the same failures, and no process that stays behind."""

import json
import threading

import numpy as np
import pytest

from arc_tasks import TASK
from build import SMALL, a_spec, a_stream, fails, outputs, text_lines
from gleaner_worker.extract.state import ExtractionState
from gleaner_worker.failures import LeaseLost
from gleaner_worker.records.sample_settings import make_sample_settings
from gleaner_worker.records.samples import make_samples, read_documents
from gleaner_worker.records.tokenize_process import TokenizeProcesses
from waiting import HANG_S

pytestmark = pytest.mark.slow

POSITIONS = 1024
RECORDS = [
    {"text": "one two three " * 9},
    {"text": "", "id": 1},
    {"prompt": "é \ud83d\ude00 \ue000", "id": "\u2028"},
    {"tokens": [1, 2, 3]},
    {"tokens": [70_000]},
    {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "there"}]},
    {"text": "x" * 9_000_000},
    TASK,
    "junk",
]
SPECS = {
    "whole samples": {"keep": ["id"]},
    "truncated samples": {"over_long": "truncate", "max_seq_length": 8, "tokens": "max:regex:t?w?o", "mask": "regex:e"},
    "chunks": {"over_long": "chunk", "context_size": 8, "overlap": 2},
    "packed windows": {"over_long": "pack", "context_size": 8},
    "assistant": {"tokens": "assistant"},
    "several samples a line": {"record": {"predictions_per_task": 3}, "max_seq_length": 1024},
    "positions": {"tokens": [0, -1], "exclude_special": True},
}


@pytest.fixture
def processes(chat_folder):
    """processes(count, **spec) -> TokenizeProcesses, which end with the test."""
    made = []

    def make(count=2, folder=chat_folder, **spec):
        made.append(TokenizeProcesses(folder, a_spec(**spec), 600, POSITIONS, count))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def chat_folder(tiny_folder, tmp_path):
    """The tiny model with a chat template that marks what the model wrote."""
    template = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"
    folder = tmp_path / "chat"
    folder.mkdir()
    (folder / "tokenizer.json").write_bytes(open(f"{tiny_folder}/tokenizer.json", "rb").read())
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    return str(folder)


def a_file(tmp_path, records):
    path = tmp_path / "stream"
    path.write_text("".join(record if isinstance(record, str) else json.dumps(record) + "\n" for record in records))
    return str(path)


def items(path, folder, tokenize=None, **spec):
    """The samples and rejects as text."""
    settings = make_sample_settings(folder, a_spec(**spec), 600, POSITIONS)
    with np.printoptions(threshold=1 << 20):
        return [repr(item) for item in make_samples(read_documents(path, "x", settings, tokenize), settings)]


@pytest.mark.sample(1)
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_processes_make_the_samples_that_one_process_makes(tmp_path, chat_folder, processes, spec):
    path = a_file(tmp_path, [*RECORDS, "\n"] * 2)
    expected = items(path, chat_folder, **spec)
    assert items(path, chat_folder, processes(**spec).tokenize, **spec) == expected
    assert len(expected) >= 2 * len(RECORDS)


def test_batches_of_many_lines_keep_their_order(tmp_path, chat_folder, processes):
    path = a_file(tmp_path, [{"text": f"number {n} " * (n % 9)} for n in range(1100)])
    assert items(path, chat_folder, processes(2).tokenize) == items(path, chat_folder)


def test_a_killed_process_is_replaced(tmp_path, chat_folder, processes):
    path = a_file(tmp_path, [{"text": f"number {n}"} for n in range(1100)])
    one, documents = processes(1), []
    for batch in read_documents(path, "x", make_sample_settings(chat_folder, a_spec(), 600, POSITIONS), one.tokenize):
        documents += batch
        one._all[-1].kill()
    assert [document.index for document in documents] == list(range(1100))
    assert len(one._all) > 1


def test_a_process_that_ends_twice_for_a_batch_fails_the_stream_and_names_the_lines(tmp_path, chat_folder, processes):
    path = a_file(tmp_path, [{"text": "a"}, {"text": "b"}])
    with fails("stream", "lines 1 to 2 of x: the process of the tokenizer ended twice"):
        items(path, chat_folder, processes(1, folder="/nowhere").tokenize)


def test_a_template_beyond_its_limits_fails_the_stream_and_keeps_the_process(tmp_path, chat_folder, processes):
    spec = {"record": {"template": "{% if slow %}{{ 'x' * 2000000000 }}{% endif %}a"}}
    slow, quick = a_file(tmp_path, [{"slow": False}, {"slow": True}]), tmp_path / "quick"
    quick.write_text(json.dumps({"slow": False}) + "\n")
    one = processes(1, **spec)
    with fails("stream", "template for line 2 of x: it needs more"):
        items(slow, chat_folder, one.tokenize, **spec)
    assert items(str(quick), chat_folder, one.tokenize, **spec) == items(str(quick), chat_folder, **spec)


def test_processes_end_when_the_reading_ends_early_and_serve_the_next_stream(tmp_path, chat_folder, processes):
    path = a_file(tmp_path, [{"text": f"number {n}"} for n in range(1100)])
    two = processes(2)
    documents = read_documents(path, "x", make_sample_settings(chat_folder, a_spec(), 600, POSITIONS), two.tokenize)
    assert len(next(documents)) == 512
    started = list(two._all)
    documents.close()
    assert started and all(process.returncode is not None for process in started)
    assert items(path, chat_folder, two.tokenize) == items(path, chat_folder)


@pytest.mark.parametrize(("mode", "outcome"), [("drain", "drained"), ("stop", None)])
def test_a_tokenizer_that_hangs_delays_neither_a_drain_nor_a_lost_lease(
    storage, extract, tiny_folder, processes, monkeypatch, mode, outcome
):
    release, control, two = threading.Event(), ExtractionState(), processes(2, tiny_folder)

    def hang(lines, name):
        control.request(mode)
        release.wait(HANG_S)

    monkeypatch.setattr(two, "_ask", hang)
    monkeypatch.setattr(two, "close", release.set)
    stream = a_stream(storage, text_lines(20))
    if outcome:
        assert extract(stream, control, two) == outcome
    else:
        with pytest.raises(LeaseLost):
            extract(stream, control, two)
    assert not outputs(storage)


def test_an_extraction_with_processes_stores_the_same_bytes(storage, extract, tiny_folder, processes):
    spec = {"shard_size_gb": SMALL}
    stream = a_stream(storage, text_lines(100))
    assert extract(stream, **spec) == "completed"
    alone = outputs(storage)
    storage.clear("activations/")
    two = processes(2, tiny_folder, **spec)
    assert extract(stream, processes=two, **spec) == "completed"
    assert outputs(storage) == alone and len(alone) > 5

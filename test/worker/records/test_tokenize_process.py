"""Lines tokenised by other processes: the same samples, the same failures, and no process that stays behind."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from arc_tasks import TASK
from build import SMALL, a_spec, a_stream, fails, outputs, text_lines
from environment import WORKER
from gleaner_worker.extract.state import ExtractionState
from gleaner_worker.failures import LeaseLost
from gleaner_worker.limited import process
from gleaner_worker.records.samples.samples import make_samples, read_documents
from gleaner_worker.records.samples.tokenize_lines import make_sample_settings
from gleaner_worker.records.samples.tokenize_process import limited_settings
from waiting import until

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
def limited(chat_folder):
    """limited(count, **spec) -> settings with processes, which end with the test."""
    made = []

    def make(count=2, folder=chat_folder, **spec):
        made.append(limited_settings(folder, a_spec(**spec), 600, POSITIONS, count))
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


def items(path, settings):
    """The samples and rejects as text."""
    with np.printoptions(threshold=1 << 20):
        return [repr(item) for item in make_samples(read_documents(path, "x", settings), settings)]


def local(folder, **spec):
    return make_sample_settings(folder, a_spec(**spec), 600, POSITIONS)


@pytest.mark.sample(1)
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_processes_make_the_samples_that_one_process_makes(tmp_path, chat_folder, limited, spec):
    path = a_file(tmp_path, [*RECORDS, "\n"] * 2)
    expected = items(path, local(chat_folder, **spec))
    for count in (1, 2):
        assert items(path, limited(count, **spec)) == expected
    assert len(expected) >= 2 * len(RECORDS)


def test_batches_of_many_lines_keep_their_order(tmp_path, chat_folder, limited):
    path = a_file(tmp_path, [{"text": f"number {n} " * (n % 9)} for n in range(1100)])
    assert items(path, limited()) == items(path, local(chat_folder))


def test_a_killed_process_is_replaced(tmp_path, limited):
    path = a_file(tmp_path, [{"text": f"number {n}"} for n in range(4000)])
    documents, killed = [], set()
    for number, batch in enumerate(read_documents(path, "x", limited(1))):
        documents += batch
        if number % 4 == 0:  # a request meets at most one of the kills
            killed |= set(kill_all())
    assert [document.index for document in documents] == list(range(4000))
    assert len(killed) == 2


def test_processes_that_are_killed_again_and_again_fail_as_the_machine(tmp_path, limited, monkeypatch):
    settings, start = limited(1), process._start

    def start_and_kill(opening):
        connection = start(opening)
        until(kill_all)
        return connection

    monkeypatch.setattr(process, "_start", start_and_kill)
    kill_all()
    with fails("infrastructure", "ended twice for another cause than its limits"):
        items(a_file(tmp_path, [{"text": "a"}]), settings)


def kill_all():
    """Kills the processes of this process that work within limits."""
    pids = limited_pids()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return pids


def test_processes_end_with_the_worker_and_see_none_of_its_environment(chat_folder):
    code = (
        "import sys, time; from build import a_spec; from gleaner_worker.records.samples.tokenize_process import *\n"
        f"settings = limited_settings({chat_folder!r}, a_spec(), 600, 64); print(1, flush=True); time.sleep(1000)"
    )
    env = os.environ | {"PYTHONPATH": f"{WORKER}:{Path(__file__).parents[1]}/support", "HF_TOKEN": "secret"}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=env) as worker:
        assert worker.stdout.readline() == b"1\n"
        starter, pids = processes_below(worker.pid), processes_below(*processes_below(worker.pid))
        for pid in starter + pids:
            assert "secret" not in Path(f"/proc/{pid}/environ").read_text()
        (pid,) = processes_below(*pids)
        limits = Path(f"/proc/{pid}/limits").read_text()
        assert (
            "Max open files            3 " in limits and f"Max address space         {process.MEMORY_BYTES} " in limits
        )
        worker.kill()
    until(lambda: not any(os.path.exists(f"/proc/{each}") for each in (*starter, *pids, pid)))


def limited_pids():
    """The processes of this process that work within limits."""
    return processes_below(*processes_below(process._starter.process.pid))


def processes_below(*parents):
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(parent) in parents and state != "Z":
            found.append(int(path.parent.name))
    return found


def test_processes_end_when_the_reading_ends_early_and_serve_the_next_stream(tmp_path, chat_folder, limited):
    path = a_file(tmp_path, [{"text": f"number {n}"} for n in range(1100)])
    two = limited(2)
    documents = read_documents(path, "x", two)
    assert len(next(documents)) == 512
    started = limited_pids()
    documents.close()
    assert started
    until(lambda: not set(started) & set(limited_pids()))
    assert items(path, two) == items(path, local(chat_folder))


@pytest.mark.parametrize(("mode", "outcome"), [("drain", "drained"), ("stop", None)])
def test_a_tokenizer_that_hangs_delays_neither_a_drain_nor_a_lost_lease(
    storage, extract, tiny_folder, limited, monkeypatch, mode, outcome
):
    control, two = ExtractionState(), limited(2, tiny_folder)
    ask = two.processes.ask

    def hang(request):
        control.request(mode)
        for pid in limited_pids():
            os.kill(pid, signal.SIGSTOP)
        return ask(request)

    monkeypatch.setattr(two.processes, "ask", hang)
    stream = a_stream(storage, text_lines(20))
    if outcome:
        assert extract(stream, control, two) == outcome
    else:
        with pytest.raises(LeaseLost):
            extract(stream, control, two)
    assert not outputs(storage)


def test_an_extraction_with_processes_stores_the_same_bytes(storage, extract, tiny_folder, limited):
    spec = {"shard_size_gb": SMALL}
    stream = a_stream(storage, text_lines(100))
    assert extract(stream, **spec) == "completed"
    alone = outputs(storage)
    storage.clear("activations/")
    assert extract(stream, settings=limited(2, tiny_folder, **spec), **spec) == "completed"
    assert outputs(storage) == alone and len(alone) > 5

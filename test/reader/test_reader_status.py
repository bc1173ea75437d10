"""How much of a run is stored: its status, and a wait until it is complete."""

import shutil
import time
from types import SimpleNamespace

import pytest

import gleaner_reader
from gleaner_reader.run import run as run_module
from gleaner_reader.run import status
from stored_run import put_in_bucket, store_run


@pytest.fixture
def growing(tmp_path):
    """A run whose manifest has no result, and whose stream 7 lacks its last shards. finish(): adds them."""
    stored = store_run(tmp_path / "whole/activations/my-run", count=12)
    run = tmp_path / "activations/my-run"
    shutil.copytree(stored.folder, run)
    for name in ("tpu_7/shard_0002.safetensors", "tpu_7/shard_0003.safetensors"):
        (run / name).unlink()
    (run / "manifest.json").write_text("{}")
    datasets = tmp_path / "datasets/my-run"
    datasets.mkdir(parents=True)
    for name in ("stream_000.jsonl", "stream_007.jsonl.gz", "stream_009.jsonl", "run.json"):
        (datasets / name).touch()

    def finish():
        (datasets / "stream_009.jsonl").unlink()
        shutil.copytree(stored.folder, run, dirs_exist_ok=True)

    return run, finish


def opened(folder):
    with pytest.warns(UserWarning, match="is not complete"):
        return gleaner_reader.open(folder)


def test_the_status_counts_what_is_stored_and_follows_the_folder(growing):
    folder, finish = growing
    run = opened(folder)
    found = run.status()
    counts = (found.streams, found.complete_streams, found.shards, found.samples, found.is_complete)
    assert counts == (3, 1, 4, 48, False)
    assert found.size_bytes == sum(file.stat().st_size for file in folder.rglob("shard_*"))
    finish()
    assert run.status().is_complete and run.status().streams == 2 and len(run.shards) == 4


def test_the_status_of_a_run_in_a_bucket_counts_its_dropped_streams(growing, storage):
    folder, _ = growing
    put_in_bucket(storage, str(folder), "a-bucket", "activations/my-run")
    for number in range(5):
        storage.put("a-bucket", f"datasets/my-run/stream_{number:03d}.jsonl", b"")
    assert opened("gs://a-bucket/activations/my-run").status().streams == 5


def test_a_wait_returns_the_complete_run_and_shows_a_bar(growing, capsys, monkeypatch):
    folder, finish = growing
    run, slept = opened(folder), []
    # Other threads of the process sleep too.
    clock = SimpleNamespace(sleep=lambda seconds: (slept.append(seconds), finish()), monotonic=time.monotonic)
    monkeypatch.setattr(run_module, "time", clock)
    complete = run.wait(every_s=7)
    assert slept == [7]
    assert complete.is_complete and len(complete.shards) == 6 and len(run.shards) == 4
    assert "[######..............] 1 of 3 streams, 4 shards, 48 samples" in capsys.readouterr().err
    assert complete.wait() is complete


def test_a_wait_that_takes_too_long_says_what_is_missing(growing, capsys):
    folder, _ = growing
    run = opened(folder)
    with pytest.raises(TimeoutError, match="not complete after 0.1 s: .*no result.*`gleaner status`"):
        run.wait(every_s=0.01, timeout_s=0.1, progress=False)
    assert capsys.readouterr().err == ""
    with pytest.raises(ValueError, match="is the folder of one stream"):
        opened(folder / "tpu_7").wait()


def test_a_bar_replaces_itself_in_a_terminal_and_a_log_gets_a_line_a_minute(capsys, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(status, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=time.sleep))
    for is_terminal in (True, False):
        monkeypatch.setattr("sys.stderr.isatty", lambda is_terminal=is_terminal: is_terminal, raising=False)
        with status.Line(True) as line:
            for number in range(3):
                line.show(f"line {number}")
            now[0] += 61
            line.show("last")
    assert capsys.readouterr().err == "\rline 0\rline 1\rline 2\rlast  \nline 0\nlast\n"


def test_a_run_without_a_shard_opens_to_wait_for_it(tmp_path):
    (tmp_path / "manifest.json").write_text("{}")
    run = opened(tmp_path)
    assert run.status().shards == 0 and "0 shards" in repr(run)
    for ask in (lambda: run.layers, lambda: run.layer(0), lambda: run.batches(0), lambda: run.num_rows):
        with pytest.raises(ValueError, match="there is no shard in .* yet; run = run.wait"):
            ask()


def test_a_notebook_shows_tables_without_the_tags_of_a_manifest(growing):
    folder, finish = growing
    finish()
    manifest = '{"spec": {"model": "<script>alert(1)</script>"}, "result": {"shards": 6, "samples": 3}}'
    (folder / "manifest.json").write_text(manifest)
    run = gleaner_reader.open(folder)
    for text in (run._repr_html_(), run.status()._repr_html_()):
        assert text.startswith("<table>") and "complete" in text and "<script>" not in text
    assert "&lt;script&gt;" in run._repr_html_() and '<progress value="2" max="2">' in run.status()._repr_html_()

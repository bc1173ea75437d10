"""The estimate compared with the worker's own plan of the same streams."""

import gzip
import json
import os
import random

import pytest

from build import BUCKET, a_raw_spec, a_spec, a_stream, bucket
from gleaner_worker.estimate.__main__ import estimate
from gleaner_worker.estimate.blocks import BLOCKS, FileSource, ObjectSource, sample_blocks
from gleaner_worker.estimate.count import Counts, extrapolate
from gleaner_worker.failures import Failure
from sae_folders import LAYERS, D, reduced
from waiting import until

pytestmark = pytest.mark.slow


@pytest.fixture
def model(tiny_folder):
    return tiny_folder


def lines(count, seed=0, bad_every=0):
    chance = random.Random(seed)
    for number in range(count):
        if bad_every and number % bad_every == 0:
            yield "not JSON\n"
        else:
            words = (f"w{chance.randrange(97)}" for _ in range(chance.randrange(5, 80)))
            yield json.dumps({"text": " ".join(words)}) + "\n"


def a_file(folder, name, text):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return FileSource(str(path))


def run(model, sources, tmp_path, sample_bytes, **keys):
    spec = a_spec(**({"model": model, "shard_size_gb": 0.0005, "max_seq_length": 1024} | keys))
    return estimate(spec, sources, str(tmp_path), None, sample_bytes)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "keys", [{}, {"tokens": "last"}, {"tokens": "mean"}, {"layers": [2]}, {"dtype": "int8"}, {"max_seq_length": 64}]
)
def test_an_estimate_from_sampled_blocks_is_close_to_the_exact_counts(model, tmp_path, keys):
    sources = [a_file(tmp_path, f"{n}.jsonl", "".join(lines(1500, n, bad_every=50))) for n in range(2)]
    whole = run(model, sources, tmp_path, 10**9, **keys)
    part = run(model, sources, tmp_path, 120_000, **keys)
    assert whole["exact"] and not part["exact"]
    assert part["sample"]["bytes"] < 130_000 < whole["stream_bytes"] / 3
    assert whole["totals"]["lines"]["estimate"] == 3000
    for name in ("lines", "samples", "tokens", "rows", "shard_bytes", "shards"):
        true, guess = whole["totals"][name]["estimate"], part["totals"][name]
        assert guess["estimate"] == pytest.approx(true, rel=0.06, abs=2), name
        assert guess["low"] <= guess["estimate"] <= guess["high"], name
    assert part["operations"] == pytest.approx(whole["operations"], rel=0.08)
    assert part["computed_tokens"] == pytest.approx(whole["computed_tokens"], rel=0.08)


def test_counts_of_whole_streams_are_exact(model, tmp_path):
    sources = [
        a_file(tmp_path, "a.jsonl", "".join(lines(50, bad_every=10))),
        a_file(tmp_path, "b.jsonl", '{"text": "b"}\n'),
    ]
    totals = run(model, sources, tmp_path, 10**9)["totals"]
    assert [totals[name]["estimate"] for name in ("lines", "samples", "rejected")] == [51, 46, 5]
    assert all(total["low"] == total["estimate"] == total["high"] for total in totals.values())


def test_each_prompt_counts_the_most_tokens_that_the_run_may_generate(model, tmp_path):
    source = [a_file(tmp_path, "a.jsonl", "".join(lines(20)))]
    prompts = run(model, source, tmp_path, 10**9)["totals"]
    found = run(model, source, tmp_path, 10**9, generate={"max_new_tokens": 7, "temperature": 0}, tokens="generated")
    assert found["generated_tokens"] == found["totals"]["rows"]["estimate"] == 7 * 20
    assert found["totals"]["tokens"]["estimate"] == prompts["tokens"]["estimate"] + 7 * 20


def test_the_estimate_has_the_bytes_of_each_reduction(model, sae_folder, tmp_path):
    source = [a_file(tmp_path, "a.jsonl", "".join(lines(20)))]
    assert "reductions" not in run(model, source, tmp_path, 10**9)
    found = run(model, source, tmp_path, 10**9, **reduced(sae_folder), compute_dtype="bf16")
    assert found["reductions"] == [  # 60 features are padded to 128
        {"name": "scope", "bytes_per_token": LAYERS * (8 * 6 + 4), "weight_bytes": LAYERS * 128 * (2 * D + 4)},
        {"name": "probe", "bytes_per_token": 5 * 4, "weight_bytes": 5 * 4 * D},
        {"name": "moments", "bytes_per_sample": 2 * 2 * 4 * D, "weight_bytes": 0},
    ]
    assert found["row_bytes"] == sum(each.get("bytes_per_token", 0) for each in found["reductions"])


def test_about_95_percent_of_the_ranges_hold_the_true_count():
    """A 95 % range over 24 blocks holds the true count a little less often, because the blocks are few."""
    chance, held = random.Random(1), 0
    for _ in range(300):
        rates = [chance.uniform(0.1, 0.4) for _ in range(400)]
        sizes = [chance.randrange(900, 1100) for _ in rates]
        tokens = [round(rate * size) for rate, size in zip(rates, sizes, strict=True)]
        places = chance.sample(range(400), 24)
        blocks = [(Counts(tokens=tokens[place]), sizes[place]) for place in places]
        found = extrapolate(blocks, sum(sizes))["tokens"]
        held += found.low <= sum(tokens) <= found.high
    assert 0.90 <= held / 300 <= 0.99


def test_a_single_block_gives_no_upper_bound(model, tmp_path):
    text = "".join(lines(1500))
    packed = a_file(tmp_path, "s.jsonl.gz", gzip.compress(text.encode()))
    found = run(model, [packed], tmp_path, 24 * 1500)
    assert found["sample"]["blocks"] == 1
    assert found["totals"]["tokens"]["high"] is None
    true = run(model, [a_file(tmp_path, "s.jsonl", text)], tmp_path, 10**9)["totals"]["tokens"]["estimate"]
    assert found["totals"]["tokens"]["estimate"] == pytest.approx(true, rel=0.15)


def test_blocks_are_whole_lines_of_any_length(tmp_path):
    text = "".join(f"{number:05d}{'x' * (number % 7 * 300)}\n" for number in range(500)) + "the end"
    source = a_file(tmp_path, "s.jsonl", text)
    known = set(text.splitlines())
    blocks = sample_blocks([source], blocks=50, size=64)
    assert 30 < len(blocks) <= 50
    for block in blocks:
        assert set(block.data.decode().splitlines()) <= known
        assert block.stream_bytes == len(block.data) > 0


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(60))
def test_no_line_is_in_two_blocks_and_no_range_is_inverted(tmp_path, seed):
    chance = random.Random(seed)
    longest = chance.choice([1, 50, 5_000, 200_000])
    sources, total = [], 0
    for stream in range(chance.randrange(1, 40)):
        text = "".join(f"{stream}.{n}{'x' * chance.randrange(longest)}\n" for n in range(chance.randrange(1, 60)))
        sources.append(a_file(tmp_path, f"{stream}.jsonl", text.removesuffix("\n") if chance.random() < 0.5 else text))
        total += len(text)
    size = chance.randrange(1, max(2, total // BLOCKS))
    blocks = sample_blocks(sources, size=size)
    if blocks is None:  # blocks that would hold all bytes have too few lines to sample
        assert sum(source.read(0, source.size).count(b"\n") for source in sources) < 4 * BLOCKS
        return
    found = [line for block in blocks for line in block.data.splitlines()]
    assert len(found) == len(set(found))
    assert sum(block.stream_bytes for block in blocks) <= total
    parts = [(Counts(lines=len(block.data.splitlines())), block.stream_bytes) for block in blocks]
    lines = extrapolate(parts, total)["lines"]
    assert len(found) <= lines.low <= lines.estimate <= lines.high


class Metered(FileSource):
    """Counts the bytes and the reads of the first two bytes."""

    read_bytes = reads_of_magic = 0

    def read(self, begin, end):
        data = super().read(begin, end)
        self.read_bytes += len(data)
        self.reads_of_magic += (begin, end) == (0, 2)
        return data


def test_a_line_longer_than_all_blocks_is_counted_once(model, tmp_path):
    path = tmp_path / "giant.jsonl"
    path.write_bytes(b'{"text": "' + b"a " * 10_000_000 + b'"}\n{"text": "b"}\n')
    source = Metered(str(path))
    found = run(model, [source], tmp_path, 1_000_000)
    assert found["exact"] and found["sample"] == {"blocks": 1, "lines": 2, "bytes": source.size}
    assert {name: found["totals"][name]["estimate"] for name in ("samples", "rejected")} == {
        "samples": 1,
        "rejected": 1,
    }
    assert source.read_bytes < 3 * source.size


def test_sampling_reads_little_more_than_the_sampled_blocks(tmp_path):
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"".join(b"%d %s\n" % (number, b"x" * 1000) for number in range(20_000)))
    source = Metered(str(path))
    blocks = sample_blocks([source], size=20_000)
    assert len(blocks) == BLOCKS
    assert source.read_bytes < BLOCKS * (20_000 + 16 * 1024 + 10)


def test_sampling_reads_the_first_bytes_of_a_stream_once(tmp_path):
    path = tmp_path / "s.jsonl"
    path.write_bytes((b"x" * 10_000 + b"\n") * 100)
    source = Metered(str(path))
    assert sample_blocks([source], size=100)  # the blocks grow until they hold a line
    assert source.reads_of_magic == 1


def test_a_stream_in_a_bucket_is_read_again_after_a_transient_error(storage):
    name = a_stream(storage, b"0123456789")["name"]
    source = ObjectSource(bucket(), bucket().head(name))
    answers = [503]
    storage.faults = lambda request: answers.pop() if answers else None
    assert (source.read(2, 99), source.read(10, 12), answers) == (b"23456789", b"", [])


def test_a_stream_in_a_bucket_is_read_in_one_generation(storage):
    name = a_stream(storage, b"before")["name"]
    source = ObjectSource(bucket(), bucket().head(name))
    a_stream(storage, b"after")
    with pytest.raises(FileNotFoundError, match=f"Failed to read gs://{BUCKET}/{name}: the object does not exist"):
        source.read(0, 5)


def test_an_estimate_of_a_stream_without_the_right_to_read_it_exits_with_status_3(storage, model, tmp_path, forks):
    name = a_stream(storage, lines(3))["name"]
    storage.faults = lambda request: 403 if "alt=media" in request else None
    arguments = ["--spec", json.dumps(a_raw_spec(model=model)), "--home", str(tmp_path), "--bucket", BUCKET]
    found = forks.command("gleaner_worker.estimate", *arguments, "--prefix", name)
    assert (found.returncode, found.stdout) == (3, "")
    assert found.stderr.startswith(f"Failed to read gs://{BUCKET}/{name}: Forbidden: ")


@pytest.mark.parametrize("module", ["estimate", "preflight"])
def test_a_spec_that_is_not_json_ends_the_command_with_status_2(tmp_path, forks, module):
    which = ["--file", __file__] if module == "estimate" else ["--accelerators", "v5litepod-8"]
    found = forks.command(f"gleaner_worker.{module}", "--spec", "{", "--home", str(tmp_path), *which)
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.startswith("Failed to read the spec: it is not JSON: ")


@pytest.mark.parametrize("module", ["estimate", "preflight"])
def test_a_command_reports_a_wait_for_an_unreachable_hub_on_stderr(tmp_path, forks, module):
    which = ["--file", __file__] if module == "estimate" else ["--accelerators", "v5litepod-8"]
    spec = json.dumps(a_raw_spec(model="an-org/a-model", revision=None))
    command = [f"gleaner_worker.{module}", "--spec", spec, "--home", str(tmp_path), *which]
    where = {"stdout": tmp_path / "stdout", "stderr": tmp_path / "stderr"}
    closed_port = os.environ | {"HF_ENDPOINT": "http://127.0.0.1:9"}
    process = forks.start("forks:run_module", *command, environment=closed_port, **where)
    until(lambda: where["stderr"].exists() and where["stderr"].read_text().endswith("\n"))
    process.kill()
    process.wait()
    line = where["stderr"].read_text()
    assert where["stdout"].read_text() == ""
    assert line == "Waiting for 127.0.0.1:9: ConnectionRefusedError: [Errno 111] Connection refused, try 1\n"


def test_an_estimate_fails_with_the_errors_of_the_worker(model, tmp_path):
    source = a_file(tmp_path, "s.jsonl", '{"text": "a"}\n')
    with pytest.raises(Failure, match="layer"):
        run(model, [source], tmp_path, 10**9, layers=[99])
    with pytest.raises(Failure, match="it is no folder of this machine"):
        run(str(tmp_path / "absent"), [source], tmp_path, 10**9)


@pytest.mark.parametrize(
    "content", [b"", gzip.compress(b"", mtime=0), b"\xef\xbb\xbf"], ids=["empty", "empty gzip", "byte order mark"]
)
def test_an_estimate_names_a_stream_without_lines(model, tmp_path, content):
    sources = [a_file(tmp_path, "a.jsonl", '{"text": "a"}\n'), a_file(tmp_path, "none.jsonl", content)]
    with pytest.raises(Failure, match="/none.jsonl: it has no lines; upload it again"):
        run(model, sources, tmp_path, 10**9)


@pytest.mark.parametrize("sample_bytes", [10**9, 24 * 100])
def test_an_estimate_names_a_damaged_stream(model, tmp_path, sample_bytes):
    packed = bytearray(gzip.compress("".join(lines(1000)).encode()))
    packed[60:70] = b"\xff" * 10
    with pytest.raises(Failure, match="/s.jsonl.gz: its gzip data is damaged"):
        run(model, [a_file(tmp_path, "s.jsonl.gz", bytes(packed))], tmp_path, sample_bytes)


def test_an_estimate_lists_the_reasons_of_rejects(model, tmp_path):
    source = a_file(tmp_path, "s.jsonl", "".join(lines(40, bad_every=4)))
    (first, *_) = run(model, [source], tmp_path, 10**9)["reject_reasons"]
    assert first["samples"] == 10 and "JSON" in first["reason"]


def test_reject_reasons_that_differ_only_in_numbers_are_counted_together(model, tmp_path):
    over_long = [json.dumps({"text": "w " * count}) for count in range(100, 120)]
    not_utf8 = [b'"\xe9"', b'{"\xff"}']
    source = a_file(tmp_path, "s.jsonl", b"\n".join([*map(str.encode, over_long), *not_utf8]))
    reasons = run(model, [source], tmp_path, 10**9, max_seq_length=64)["reject_reasons"]
    assert [reason["samples"] for reason in reasons] == [20, 2]
    assert "tokens long; the limit is 64" in reasons[0]["reason"]
    assert reasons[1]["reason"] == "is not UTF-8: byte 2 is 0xe9"

"""Measures the worker's pipeline behind devices of zero time, up to a bucket behind TLS.

    python -m host [CASE...] [--json] [--quick] [--devices N] [--gigabytes N] [--latency-ms N] [--stream-mb-s N]

The pipeline is the worker's own, with the same processes and threads as on a TPU's host of as many cores: it reads a
stream from the bucket, tokenises, packs, gathers, encodes, hashes and uploads. Processor time is that of the worker and
of its tokenizer's processes; the bucket has processes of its own.
"""

import argparse
import dataclasses
import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from extraction.sink import Network, most_streams, running_sink
from gleaner_worker.extract.extract import extract
from gleaner_worker.extract.state import ExtractionState
from gleaner_worker.limited import process as limited
from gleaner_worker.model.model import Model
from gleaner_worker.records.samples.sample_settings import SampleSettings
from gleaner_worker.records.samples.tokenize_process import PROCESSES, limited_settings
from gleaner_worker.spec.read_spec import parse_spec
from gleaner_worker.spec.work import Work
from gleaner_worker.storage.objects import Bucket
from gleaner_worker.storage.upload_content import FileContent
from tpu.models import CONFIGS

_LENGTHS = Path(__file__).parents[2] / "test" / "worker" / "prompt_lengths.jsonl"
_QWEN, _LLAMA = CONFIGS["Qwen2.5-0.5B"], CONFIGS["Llama-3.1-8B"]


@dataclasses.dataclass(frozen=True)
class Case:
    """A run to measure. prompts: the data set whose lengths its prompts have. A changed spec has more keys."""

    config: dict
    prompts: str
    spec: dict


CASES = {
    "short-one-layer": Case(_QWEN, "GSM8K", {"layers": [12]}),
    "short-last": Case(_QWEN, "GSM8K", {"layers": [12], "tokens": "last"}),
    "short-all-layers": Case(_QWEN, "GSM8K", {"layers": "all"}),
    "short-int8": Case(_QWEN, "GSM8K", {"layers": "all", "dtype": "int8"}),
    "long-all-layers": Case(_QWEN, "ARC", {"layers": "all"}),
    "long-8b-one-layer": Case(_LLAMA, "ARC", {"layers": [16]}),
}
_TICK = os.sysconf("SC_CLK_TCK")


def main() -> int:
    parser = argparse.ArgumentParser(prog="npm run bench:host --", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; default: all")
    parser.add_argument("--json", action="store_true", help="print one JSON object per case")
    parser.add_argument("--quick", action="store_true", help="little input, to test the benchmark")
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument(
        "--processes", type=int, default=PROCESSES, help="of the tokenizer; default: the worker's number"
    )
    parser.add_argument("--gigabytes", type=float, default=20.0, help="to store in each case")
    parser.add_argument("--latency-ms", type=float, default=20.0, help="before each answer of the bucket")
    parser.add_argument(
        "--stream-mb-s", type=float, default=150.0, help="the most that a connection carries; 0: no limit"
    )
    args = parser.parse_args()
    if unknown := set(args.cases) - set(CASES):
        parser.error(f"there is no case {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    # JAX reads this when it opens its devices.
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={args.devices}"
    network = Network(max(1, (os.cpu_count() or 1) // 2), args.latency_ms / 1e3, args.stream_mb_s * 1e6)
    gigabytes, most_samples = (0.3, 20_000) if args.quick else (args.gigabytes, 1_000_000)
    shard_gb = 0.1 if args.quick else 1.0
    with running_sink(with_tls=True, network=network) as bucket:
        for name in args.cases or CASES:
            figures = {"case": name} | measure(CASES[name], bucket, gigabytes, most_samples, shard_gb, args.processes)
            print(json.dumps(figures) if args.json else table_row(figures), flush=True)
    return 0


def measure(case: Case, bucket: Bucket, gigabytes: float, most_samples: int, shard_gb: float, count: int) -> dict:
    """The figures of a case, after a tenth of it that starts the processes and fills the pools of memory."""
    from .device import make_tokenizer, zero_time_model

    with tempfile.TemporaryDirectory(prefix="gleaner-bench-host-") as folder:
        words = _words()
        make_tokenizer(folder, words)
        raw = {"model": "bench", "dtype": "bf16", "format": "safetensors", "shard_size_gb": shard_gb}
        spec = parse_spec(raw | {"max_seq_length": 2048, "over_long": "truncate"} | case.spec)
        model = zero_time_model(spec, case.config, folder)
        reading = folder, spec, model.config.vocab_size, model.config.max_positions
        settings = limited_settings(*reading, count=count)
        lengths = np.array(_lengths(case.prompts))
        vectors = 1.0 if spec.tokens == "last" else float(np.minimum(lengths, spec.max_seq_length).mean())
        samples = min(most_samples, int(gigabytes * 1e9 / (vectors * model.row_bytes)))
        try:
            for part, lines in (("warm", max(1, samples // 10)), ("measured", samples)):
                path = os.path.join(folder, f"{part}.jsonl")
                _write_stream(path, words, lengths, lines)
                work = _put_stream(bucket, path, f"{part}-{os.path.basename(folder)}", model)
                most_streams(bucket)
                figures = _run(work, model, settings, bucket, folder)
        finally:
            settings.close()
    return figures


def _run(work: Work, model: Model, settings: SampleSettings, bucket: Bucket, folder: str) -> dict:
    state, scratch = ExtractionState(), os.path.join(folder, "scratch")
    began, before, others = time.perf_counter(), time.process_time(), _cpu_s()
    outcome = extract(work, model, settings, bucket.checked(state.check_lease), scratch, state)
    seconds = time.perf_counter() - began
    cpu_s, others = time.process_time() - before, _cpu_s() - others
    if outcome != "completed":
        raise SystemExit(f"Failed to measure: the extraction ended as {outcome}")
    summary = json.loads(bucket.read(f"{work.output_prefix}metadata.json") or b"")
    gigabytes = sum(shard["size_bytes"] for shard in summary["shards"]) / 1e9
    return {
        "samples": state.samples_done,
        "tokens": state.tokens_done,
        "gigabytes": round(gigabytes, 3),
        "seconds": round(seconds, 2),
        "samples_per_s": round(state.samples_done / seconds),
        "gb_per_s": round(gigabytes / seconds, 3),
        "cpu_s_per_gb": round((cpu_s + others) / gigabytes, 3),
        "worker_us_per_sample": round(cpu_s / state.samples_done * 1e6, 1),
        "tokenizer_us_per_sample": round(others / state.samples_done * 1e6, 1),
        "streams": most_streams(bucket),
        "peak_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),  # of this process, of any case
        "cores": os.cpu_count(),
    }


def _cpu_s() -> float:
    """The processor time of the tokenizer's processes, which are in one session."""
    total = 0.0
    for path in Path("/proc").glob("[0-9]*/stat"):
        fields = path.read_text().rpartition(")")[2].split()
        if limited._starter and int(fields[3]) == limited._starter.process.pid:
            total += (int(fields[11]) + int(fields[12])) / _TICK
    return total


def _words() -> list[str]:
    """Two thousand words, each a token of make_tokenizer with the blank before it."""
    rng = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlucmfwypvbgk"))
    return sorted({"".join(rng.choice(letters, size)) for size in rng.integers(2, 9, 2000)})


def _lengths(prompts: str) -> list[int]:
    lines = map(json.loads, _LENGTHS.read_text().splitlines())
    return next(lengths for name, lengths in lines if name == prompts)


def _write_stream(path: str, words: list[str], lengths: np.ndarray, count: int) -> None:
    """Writes `count` prompts of as many words as `lengths` say, again and again."""
    texts = np.array([f" {word}" for word in words])
    rng = np.random.default_rng(1)
    prompts = ["".join(rng.choice(texts, length)) for length in lengths[:count]]
    with open(path, "w", encoding="ascii") as file:
        file.writelines(f"{json.dumps({'text': prompts[number % len(prompts)]})}\n" for number in range(count))


def _put_stream(bucket: Bucket, path: str, run: str, model: Model) -> Work:
    name = f"datasets/{run}/stream_000.jsonl"
    with open(path, "rb") as file:
        content = FileContent(file)
        bucket.create(name, content, {}, "application/x-ndjson")
    os.unlink(path)
    generation = bucket.list(name)[0].generation
    prefix = f"activations/{run}/tpu_0/"
    return Work(run, "000", 1, bucket.name, name, generation, content.crc32c, prefix, model.spec, "0" * 64)


def table_row(figures: dict) -> str:
    return (
        f"{figures['case']:18} {figures['samples_per_s']:7,} samples/s {figures['gb_per_s']:7.3f} GB/s "
        f"{figures['cpu_s_per_gb']:6.2f} CPU-s/GB {figures['worker_us_per_sample']:8.1f} + "
        f"{figures['tokenizer_us_per_sample']:.1f} us/sample {figures['streams']:3} streams "
        f"{figures['samples']:9,} samples {figures['gigabytes']:6.2f} GB"
    )


if __name__ == "__main__":
    sys.exit(main())

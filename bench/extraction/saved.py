"""The whole pipeline with every row stored in a bucket on the loopback, compared with the same batches unstored."""

from .job import compute, load, load_forward, put_stream, samples_of, store
from .sink import running_sink
from .timing import Report, speed_up, take_turns
from .workplace import Workplace

CLAIM = "everything saved (read, tokenise, plan, compute, encode, upload) against forward only, as a share of its speed"


def run(place: Workplace) -> Report:
    report = Report(CLAIM)
    width, rows = (32, 64) if place.is_quick else (256, 64)
    ids = place.token_rows(rows, width)
    with running_sink() as bucket:
        stream = put_stream(bucket, [{"tokens": row.tolist()} for row in ids])
        forward = load_forward(place)
        for what, layers in (("all layers", "all"), ("one layer, the last", [place.layers - 1])):
            model = load(place, place.spec(layers=layers, shard_size_gb=0.1))
            seconds = take_turns(
                {
                    "forward": lambda: compute(forward, samples_of(ids)),
                    "saved": lambda model=model: store(place, model, bucket, stream),
                },
                place.rounds(5),
            )
            megabytes = ids.size * model.row_bytes / 1e6
            detail = (
                f"{megabytes:.0f} MB, {ids.size} tokens, forward only {ids.size / min(seconds['forward']):.0f} tok/s"
            )
            report.figures.append(speed_up(f"bf16, {what}", seconds["forward"], seconds["saved"], 0.95, detail))
            del model
    return report

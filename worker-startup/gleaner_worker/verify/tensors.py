"""The content of a safetensors shard, plain or in zstd, with one layer in memory at a time."""

from collections.abc import Collection

import numpy as np

from gleaner_reader.format.errors import ShardError
from gleaner_reader.format.files import open_file
from gleaner_reader.format.index import INDEX, read_index
from gleaner_reader.run.tensor_shard import SafetensorsShard

from ..architecture.sites import MOMENTS
from .reductions import wrong_outputs, wrong_reductions
from .shard_content import Expectation, ShardContent, contradictions, wrong_values
from .statistics import LayerStatistics

_STORED_AS = {"bf16": "BF16", "fp16": "F16", "fp32": "F32", "int8": "I8", "int32": "I32"}


def read_tensors(path: str, metadata: dict[str, str], expect: Expectation, content: ShardContent) -> None:
    """Reads the shard into `content`, whose problems are its differences from `metadata` and `expect`.

    Raises ShardError.
    """
    shard = SafetensorsShard(open_file(path))
    content.problems += contradictions(shard.metadata, metadata)
    tensors = {name: (info.dtype, list(info.shape)) for name, info in shard.header.tensors.items()}
    expected = _expected_tensors(metadata, expect)
    content.problems += [f"has {name}, which does not belong there" for name in tensors if name not in expected]
    if differences := _differences(expected, tensors):
        content.problems += differences
        return
    content.facts = {"stats": shard.stats} | shard.layout
    content.problems += _wrong_checksums(shard, INDEX & tensors.keys())
    index = read_index(shard.header.tensors, shard.tensor, shard.num_rows, shard.url)
    for name, layer in expect.capture.names:
        if name in expect.capture.with_stats:
            _check_layer(shard, name, layer, expect.capture.dtype_of(name) == "int8", index.positions, content)
    wrong = list(wrong_reductions(shard, expect.capture, index.row_offsets))
    content.problems += wrong_outputs(shard, expect.capture) + wrong
    content.has_wrong_values |= bool(wrong)
    content.sample_idx = index.sample_idx.tolist()
    content.row_counts = np.diff(index.row_offsets).tolist()
    by_sample = {
        "token_ids": (index.token_ids, index.sample_offsets),
        "positions": (index.positions, index.row_offsets),
        "span_idx": (index.span_idx, index.row_offsets),
        "mask": (index.token_mask, index.sample_offsets),
        "token_lines": (index.token_lines, index.sample_offsets),
    }
    content.parts |= {
        name: _split(values, offsets) for name, (values, offsets) in by_sample.items() if values is not None
    }
    if index.kept is not None:
        content.parts["kept"] = index.kept
    if index.lines is not None and index.chunks is not None:
        content.parts["line"] = list(zip(index.lines.tolist(), index.chunks.tolist(), strict=True))
    content.is_read = True


def _expected_tensors(metadata: dict[str, str], expect: Expectation) -> dict[str, tuple[str, list[int]]]:
    rows, tokens, samples = (int(metadata[key]) for key in ("rows", "tokens", "samples"))
    expected = {
        "sample_idx": ("I64", [samples]),
        "sample_offsets": ("I64", [samples + 1]),
        "token_ids": ("I32", [tokens]),
    }
    if expect.pooled or (expect.selects and samples):
        expected["row_offsets"] = ("I64", [samples + 1])
    if expect.has_positions and samples:
        expected["positions"] = ("I32", [rows])
    if expect.spec.selection.reduces_spans and samples:
        expected["span_idx"] = ("I32", [rows])
    if expect.spec.mask is not None and samples:
        expected["token_mask"] = ("U8", [tokens])
    if expect.spec.cuts_documents and samples:
        expected |= {"line_idx": ("I64", [samples]), "chunk_idx": ("I32", [samples])}
        if expect.spec.over_long == "pack":
            expected["token_line_idx"] = ("I64", [tokens])
    if expect.spec.keeps and samples:
        expected["kept"] = ("U8", [])
    for site, layer in expect.capture.names:
        dtype = expect.capture.dtype_of(site)
        expected[f"{site}.{layer}"] = (_STORED_AS[dtype], [rows, expect.capture.width(site)])
        if dtype == "int8":
            expected[f"{site}.{layer}.scale"] = ("F32", [rows])
    for site, layers in expect.capture.moments:
        size = [samples, expect.capture.width(site)]
        expected |= {f"{site}.{layer}.{kind}": ("F32", size) for layer in layers for kind in MOMENTS}
    return expected


def _differences(expected: dict, actual: dict) -> list[str]:
    return [f"lacks {name}" for name in expected if name not in actual] + [
        f"has {name} as {actual[name][0]} {actual[name][1]}, not {value[0]} {value[1]}"
        for name, value in expected.items()
        if name in actual and actual[name] != value and (name != "kept" or actual[name][0] != "U8")
    ]


def _check_layer(
    shard: SafetensorsShard,
    site: str,
    layer: int,
    is_int8: bool,
    positions: np.ndarray | None,
    content: ShardContent,
) -> None:
    name = f"{site}.{layer}"
    try:
        rows = shard.rows(site, layer, 0, shard.num_rows, verify=True)
    except ShardError as error:
        content.problems.append(str(error).removeprefix(f"{shard.url} "))
        content.has_wrong_values = True
        return
    if rows.scale is not None and not (np.isfinite(rows.scale).all() and (rows.scale >= 0).all()):
        content.problems.append(f"has scales of {name} that are below zero or not finite")
        content.has_wrong_values = True
        return
    actual = LayerStatistics()
    content.has_wrong_values |= not actual.add(rows)
    content.problems += wrong_values(name, actual, shard.stats.get(name), is_int8, positions)


def _wrong_checksums(shard: SafetensorsShard, names: Collection[str]) -> list[str]:
    problems = []
    for name in sorted(names):
        try:
            shard.tensor(name, verify=True)
        except ShardError as error:
            problems.append(str(error).removeprefix(f"{shard.url} "))
    return problems


def _split(values: np.ndarray, offsets: np.ndarray) -> list[np.ndarray]:
    return np.split(values, offsets[1:-1]) if len(offsets) > 1 else []

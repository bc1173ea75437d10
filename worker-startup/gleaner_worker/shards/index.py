"""The index of a shard: samples, their lines, token ids and mask, positions and spans of rows, and kept fields."""

import numpy as np

from .plan import ShardPlan


def index_tensors(plan: ShardPlan) -> dict[str, np.ndarray]:
    """The tensors of the index by name. row_offsets is absent when every token has a row; positions also for pools."""
    samples = plan.samples
    tensors = {
        "sample_idx": np.array([sample.index for sample in samples], np.int64),
        "sample_offsets": np.cumsum([0, *(len(sample.token_ids) for sample in samples)], dtype=np.int64),
        "token_ids": _joined([sample.token_ids for sample in samples]),
    }
    positions = row_positions(plan)
    if plan.pooled or positions is not None:
        tensors["row_offsets"] = plan.row_offsets
    if positions is not None:
        tensors["positions"] = _joined(positions)
    if any(sample.chunk is not None for sample in samples):
        tensors["line_idx"] = np.array([sample.line for sample in samples], np.int64)
        tensors["chunk_idx"] = np.array([sample.chunk for sample in samples], np.int32)
    if spans := [sample.span_idx for sample in samples if sample.span_idx is not None]:
        tensors["span_idx"] = np.concatenate(spans)
    if masks := [sample.mask for sample in samples if sample.mask is not None]:
        tensors["token_mask"] = np.concatenate(masks)
    lines = [sample.token_lines for sample in samples if sample.token_lines is not None]
    if lines:
        tensors["token_line_idx"] = np.concatenate(lines)
    if any(sample.kept for sample in samples):
        text = "".join(f"{sample.kept or '{}'}\n" for sample in samples)
        tensors["kept"] = np.frombuffer(text.encode(), np.uint8)
    return tensors


def row_positions(plan: ShardPlan) -> list[np.ndarray] | None:
    """int32 [rows] per sample: the position of each row's token. None when all tokens have rows, or rows are pools."""
    if plan.pooled or all(sample.positions is None for sample in plan.samples):
        return None
    return [
        np.arange(len(sample.token_ids), dtype=np.int32) if sample.positions is None else sample.positions
        for sample in plan.samples
    ]


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.empty(0, np.int32), *parts]).astype(np.int32, copy=False)

"""A shard's index: its samples, their token ids, which of the tokens have rows, and what was kept of the records."""

import numpy as np

from .plan import ShardPlan


def index_tensors(plan: ShardPlan) -> dict[str, np.ndarray]:
    """By name. row_offsets and positions only where the rows are not exactly the tokens; kept only where fields are."""
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
    if any(sample.kept for sample in samples):
        lines = "".join(f"{sample.kept or '{}'}\n" for sample in samples)
        tensors["kept"] = np.frombuffer(lines.encode(), np.uint8)
    return tensors


def row_positions(plan: ShardPlan) -> list[np.ndarray] | None:
    """int32 [rows] per sample: where the token of each row is. None when rows are the tokens, or means of them."""
    if plan.pooled or all(sample.positions is None for sample in plan.samples):
        return None
    return [
        np.arange(len(sample.token_ids), dtype=np.int32) if sample.positions is None else sample.positions
        for sample in plan.samples
    ]


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.empty(0, np.int32), *parts]).astype(np.int32, copy=False)

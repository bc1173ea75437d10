"""The tokens of a sample whose vectors are stored (spec: tokens, exclude_special)."""

import zlib
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from ..spec import POOLS, Spec, random_count
from .rejected import Rejected


@dataclass(frozen=True)
class Selection:
    """The spec's selection of tokens."""

    tokens: str | tuple[int, ...]  # "all", "last", "mean", "assistant", a slice as text, or positions
    special_ids: np.ndarray | None  # int32, ascending: ids that are excluded first; None without exclude_special
    seed: int = 0  # of random positions

    @property
    def is_everything(self) -> bool:
        return self.tokens in ("all", *POOLS) and self.special_ids is None


def make_selection(spec: Spec, tokenizer: Tokenizer) -> Selection:
    """Special tokens are the added tokens that tokenizer.json calls special, anywhere in a sample."""
    if not spec.exclude_special:
        return Selection(spec.tokens, None, spec.seed)
    special = [id for id, token in tokenizer.get_added_tokens_decoder().items() if token.special]
    return Selection(spec.tokens, np.array(sorted(special), np.int32), spec.seed)


def select(
    selection: Selection, token_ids: np.ndarray, assistant_mask: np.ndarray | None = None, index: int = 0
) -> np.ndarray | None:
    """The int32 [rows] positions in token_ids, in the order of storage; for a pool the pooled positions.

    assistant_mask: bool [length], the tokens that the model wrote; only for "assistant". index: of the sample in its
    stream. Returns None for all tokens,
    for every sample of a run or for none. Positions and slices count the tokens that are left without excluded tokens.
    Raises Rejected for a sample without the selected tokens.
    """
    if selection.is_everything:
        return None
    positions = np.arange(len(token_ids), dtype=np.int32)
    words = f"{len(token_ids)} tokens"
    if selection.special_ids is not None:
        positions = positions[~np.isin(token_ids, selection.special_ids)]
        words = f"{len(positions)} tokens that are not special"
        if not len(positions):
            raise Rejected(f"has no tokens but special ones ({len(token_ids)}), which exclude_special leaves out")
    wanted = selection.tokens
    if wanted == "assistant":
        assert assistant_mask is not None
        chosen = positions[assistant_mask[positions]]
        if not len(chosen):
            raise Rejected(f"has {words}, and the model wrote none of them")
        return chosen
    if wanted in ("all", *POOLS):
        return positions
    if count := random_count(wanted):
        return positions[_random(len(positions), count, selection.seed, index, zlib.crc32(token_ids.tobytes()))]
    if wanted == "last":
        return positions[-1:]
    if isinstance(wanted, str):
        chosen = positions[slice(*(int(part) if part else None for part in wanted.split(":")))]
        if not len(chosen):
            raise Rejected(f"has {words}: the slice {wanted} selects none of them")
        return chosen
    count = len(positions)
    absent = [position for position in wanted if not -count <= position < count]
    if absent:
        raise Rejected(f"has {words}: position {absent[0]} does not exist (0 to {count - 1}, or -{count} to -1)")
    places = [position % count for position in wanted]
    if len(set(places)) < len(places):
        first, second = _same(wanted, places)
        raise Rejected(f"has {words}: positions {first} and {second} are the same token")
    return positions[places]


def _random(size: int, count: int, *seed: int) -> np.ndarray:
    """`count` of the numbers below `size`, or all of them, ascending: the same with every version of numpy."""
    raw = np.random.Philox(np.random.SeedSequence(seed)).random_raw(size)
    return np.sort(np.argsort(raw, kind="stable")[:count])


def _same(wanted: tuple[int, ...], places: list[int]) -> tuple[int, int]:
    seen: dict[int, int] = {}
    for position, place in zip(wanted, places, strict=True):
        if place in seen:
            return seen[place], position
        seen[place] = position
    raise AssertionError("no two positions are the same")

"""The spans of a prompt that `tokens` and `mask` of run.json ask for, and their tokens.

A span of a text counts its characters, as Python does; a span of a record of token ids counts the ids.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..failures import Failure
from ..selections import Spans
from .parse import kind_of, list_fields
from .rejected import Rejected
from .select import Marks

Span = tuple[int, int]  # [begin, end)

# An expression reads at most so many characters for all of its matches in a text: about a minute of work.
_MOST_READ = 1 << 35
_PATTERN_BYTES = 1 << 20  # of the memory of a compiled expression


def compile_patterns(sources: Sequence[Spans]) -> dict[Spans, Any]:
    """The expressions of the sources. Raises Failure("model") for an expression that RE2 does not accept."""
    return {source: _compile(source.argument) for source in sources if source.kind == "regex"}


def _compile(pattern: str) -> Any:
    import re2  # most runs have no expression

    options = re2.Options()
    options.log_errors, options.never_capture, options.max_mem = False, True, _PATTERN_BYTES
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        raise Failure(
            "model",
            f"Failed to use the expression {pattern!r} of run.json: {reason}; correct it, in the syntax of RE2",
        ) from error


def find_spans(
    content: str | list[int],
    record: dict,
    sources: Sequence[Spans],
    patterns: Mapping[Spans, Any],
    of_messages: Mapping[str, list[Span]],
) -> tuple[list[Span], ...]:
    """The spans of each source. of_messages: those of `assistant` and `turns`. Raises Rejected."""

    def spans_of(source: Spans) -> list[Span]:
        if source.kind == "field":
            return field_spans(record, source.argument, content)
        if source.kind == "generated":
            return []  # generated.py marks them
        if source.kind == "regex":
            return _matches(patterns[source], content)
        if source.kind not in of_messages:
            raise Rejected(f"has no list of messages, in which run.json asks for {source.kind}")
        return of_messages[source.kind]

    return tuple(map(spans_of, sources))


def field_spans(record: dict, name: str, content: str | list[int]) -> list[Span]:
    """The spans [begin, end) of the field, or the runs of true in a list with a boolean for each token id."""
    if name not in record:
        raise Rejected(f"has no field `{name}`, whose spans run.json asks for; it has {list_fields(record)}")
    value = record[name]
    if not isinstance(value, list):
        raise Rejected(f"`{name}` is {kind_of(value)}, not a list of spans [begin, end]")
    if value and isinstance(value[0], bool):
        return _runs(value, name, content)
    what = "characters" if isinstance(content, str) else "token ids"
    for number, span in enumerate(value):
        if not isinstance(span, list) or len(span) != 2 or any(type(edge) is not int for edge in span):
            raise Rejected(f"`{name}[{number}]` is not a span [begin, end]")
        if not 0 <= span[0] < span[1] <= len(content):
            begin, end = (str(edge) if abs(edge) < 1 << 63 else "…" for edge in span)
            raise Rejected(f"`{name}[{number}]` is [{begin}, {end}], which is no span of the {len(content)} {what}")
    return [(begin, end) for begin, end in value]


def _runs(flags: list, name: str, content: str | list[int]) -> list[Span]:
    if isinstance(content, str):
        raise Rejected(f"`{name}` is a list of true and false, which only a record of token ids can have")
    if len(flags) != len(content) or any(type(flag) is not bool for flag in flags):
        raise Rejected(f"`{name}` is not one true or false for each of the {len(content)} token ids")
    edges = np.flatnonzero(np.diff(np.array([False, *flags, False], np.int8))).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


def _matches(pattern: Any, content: str | list[int]) -> list[Span]:
    if not isinstance(content, str):
        raise Rejected("has token ids, and the expression of run.json needs a text")
    most = _MOST_READ // max(1, len(content))
    spans = []
    for number, match in enumerate(pattern.finditer(content)):
        if number >= most:
            raise Rejected(
                f"has {len(content)} characters, and the expression of run.json has more than {most} matches in them, "
                "which is too many; divide the record"
            )
        spans.append(match.span())
    return spans


def mark_tokens(offsets: Sequence[Span], sources: Sequence[Sequence[Span]]) -> Marks:
    """The tokens with a character in a span. offsets: the characters of each token."""
    begins, ends = np.array(offsets, np.int64).reshape(-1, 2).T
    visible = np.flatnonzero(ends > begins)  # BOS has no character
    marked = np.zeros(len(offsets), np.uint8)
    each = [_visible_ranges(begins[visible], ends[visible], spans) for spans in sources]
    for bit, ranges in enumerate(each):
        edges = np.zeros(len(visible) + 1, np.int32)
        np.add.at(edges, ranges[:, 0], 1)
        np.add.at(edges, ranges[:, 1], -1)
        marked[visible[np.cumsum(edges[:-1]) > 0]] |= 1 << bit
    return Marks(marked, _token_ranges(each[0], visible))


def _visible_ranges(begins: np.ndarray, ends: np.ndarray, spans: Sequence[Span]) -> np.ndarray:
    """int64 [spans, 2]: the range of each span among the tokens with characters; equal numbers for none."""
    edges = np.array(spans, np.int64).reshape(-1, 2)
    first = np.searchsorted(ends, edges[:, 0], "right")
    last = np.searchsorted(begins, edges[:, 1], "left")
    return np.column_stack([first, np.where(edges[:, 0] < edges[:, 1], np.maximum(first, last), first)])


def _token_ranges(ranges: np.ndarray, visible: np.ndarray) -> np.ndarray:
    """int32 [spans, 2]: the same ranges among all tokens."""
    is_empty = ranges[:, 0] >= ranges[:, 1]
    if not len(visible):
        return np.zeros(ranges.shape, np.int32)
    first, last = (visible[np.clip(edge, 0, len(visible) - 1)] for edge in (ranges[:, 0], ranges[:, 1] - 1))
    return np.where(is_empty[:, None], 0, np.column_stack([first, last + 1])).astype(np.int32)

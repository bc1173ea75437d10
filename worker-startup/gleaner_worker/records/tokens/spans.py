"""The spans of a prompt that `tokens` and `mask` of run.json ask for, and their tokens.

A span of a text counts its characters, as Python does; a span of a record of token ids counts the ids.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from ...failures import Failure, raise_exits
from ...spec.selections import Spans
from ..lines.parse import kind_of, list_fields
from ..lines.rejected import Rejected
from ..lines.select import Marks

Span = tuple[int, int]  # [begin, end)

# An expression reads at most so many characters for all of its matches in a text: about a minute of work.
_MOST_READ = 1 << 35
# For a compiled expression: several times the memory of the largest that shared/contracts/spec/expression.ts accepts.
_PATTERN_BYTES = 1 << 23


@dataclass(frozen=True)
class SpanFinder:
    """Finds the spans of each source of a run."""

    sources: tuple[Spans, ...]
    patterns: Mapping[Spans, Any]  # the compiled expressions of sources
    tokenizer: Tokenizer | None  # decodes token ids for an expression

    def find(
        self, content: str | list[int], record: dict, of_messages: Mapping[str, list[Span]]
    ) -> tuple[list[Span], ...]:
        """The spans of each source. of_messages: those of `assistant` and `turns`. Raises Rejected."""
        return tuple(self._find(source, content, record, of_messages) for source in self.sources)

    def _find(
        self, source: Spans, content: str | list[int], record: dict, of_messages: Mapping[str, list[Span]]
    ) -> list[Span]:
        if source.kind == "field":
            return field_spans(record, source.argument, content)
        if source.kind == "generated":
            return []  # generated.py marks them
        if source.kind == "regex":
            return self._matches(self.patterns[source], content)
        if source.kind not in of_messages:
            raise Rejected(f"has no list of messages, in which run.json asks for {source.kind}")
        return of_messages[source.kind]

    def _matches(self, pattern: Any, content: str | list[int]) -> list[Span]:
        if isinstance(content, str):
            return _matches(pattern, content)
        assert self.tokenizer is not None
        text, offsets = _decode(content, self.tokenizer)
        characters = np.array(offsets, np.int64).reshape(-1, 2)
        return list(map(tuple, token_ranges(characters, _matches(pattern, text)).tolist()))


def make_span_finder(sources: tuple[Spans, ...], tokenizer: Tokenizer | None) -> SpanFinder:
    """Raises Failure("model") for an expression that RE2 does not accept."""
    patterns = {source: _compile(source.argument) for source in sources if source.kind == "regex"}
    return SpanFinder(sources, patterns, tokenizer)


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
            raise Rejected(f"`{name}[{number}]` is [{begin}, {end}], which is not a span of the {len(content)} {what}")
    return [(begin, end) for begin, end in value]


def _runs(flags: list, name: str, content: str | list[int]) -> list[Span]:
    if isinstance(content, str):
        raise Rejected(f"`{name}` is a list of true and false, which only a record of token ids can have")
    if len(flags) != len(content) or any(type(flag) is not bool for flag in flags):
        raise Rejected(f"`{name}` is not one true or false for each of the {len(content)} token ids")
    edges = np.flatnonzero(np.diff(np.array([False, *flags, False], np.int8))).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


def _decode(ids: list[int], tokenizer: Tokenizer) -> tuple[str, list[Span]]:
    """The text of token ids, and the characters of each. Ids that make a character together share it."""
    stream = DecodeStream(skip_special_tokens=False)
    parts: list[str] = []
    offsets: list[Span] = []
    size = 0
    for number, token in enumerate(ids, 1):
        try:
            part = stream.step(tokenizer, token)
        except BaseException as error:  # the decoder of tokenizer.json may fail or panic
            raise_exits(error)
            raise Rejected(f"has token ids without a text, which run.json asks for: {str(error)[:200]}") from error
        if part is not None:
            offsets += [(size, size + len(part))] * (number - len(offsets))
            parts.append(part)
            size += len(part)
    return "".join(parts), offsets + [(size, size)] * (len(ids) - len(offsets))


def token_texts(ids: list[int], tokenizer: Tokenizer) -> list[str]:
    """The text that each id adds to the text of those before, or its name where the decoder fails."""
    try:
        text, offsets = _decode(ids, tokenizer)
    except Rejected:
        return [tokenizer.id_to_token(each) or "" for each in ids]
    return ["" if own == after else text[slice(*own)] for own, after in zip(offsets, [*offsets[1:], None], strict=True)]


def _matches(pattern: Any, content: str) -> list[Span]:
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
    marked, characters = np.zeros(len(offsets), np.uint8), np.array(offsets, np.int64).reshape(-1, 2)
    has_characters = characters[:, 0] < characters[:, 1]  # BOS has none
    each = [token_ranges(characters, spans) for spans in sources]
    for bit, ranges in enumerate(each):
        edges = np.zeros(len(offsets) + 1, np.int32)
        np.add.at(edges, ranges[:, 0], 1)
        np.add.at(edges, ranges[:, 1], -1)
        marked[has_characters & (np.cumsum(edges[:-1]) > 0)] |= 1 << bit
    return Marks(marked, each[0])


def token_ranges(offsets: np.ndarray, spans: Sequence[Span]) -> np.ndarray:
    """int32 [spans, 2]: the first token of each span, and the token after its last one; 0 and 0 for none.

    offsets: int64 [tokens, 2], the characters of each token.
    """
    begins, ends = offsets.T
    visible = np.flatnonzero(ends > begins)
    edges = np.array(spans, np.int64).reshape(-1, 2)
    first = np.searchsorted(ends[visible], edges[:, 0], "right")
    last = np.searchsorted(begins[visible], edges[:, 1], "left") - 1
    has_token = (edges[:, 0] < edges[:, 1]) & (first <= last)
    ranges = np.zeros((len(edges), 2), np.int32)
    ranges[has_token] = np.column_stack([visible[first[has_token]], visible[last[has_token]] + 1])
    return ranges

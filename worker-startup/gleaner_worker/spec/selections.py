"""The forms of `tokens` and `mask` in run.json, as shared/contracts/spec/selections.ts declares them.

all, last, mean, max      every token of a sample; the row of its last token; one row, its mean or its largest values
random:N, a slice, a list N tokens; those of a Python slice; those at these positions
SPANS                     the tokens of all spans of a sample, which one of these finds:
                          assistant      the text that the model wrote, in records with messages
                          turns          each message
                          field:NAME     the field NAME of the record
                          regex:PATTERN  each match of the expression
                          generated      the tokens that the run generates
last:SPANS, mean:SPANS, max:SPANS  one row for each span
"""

import json
import pathlib
import re
from dataclasses import dataclass
from functools import lru_cache

POOLS = ("mean", "max")  # one row over several tokens
REDUCTIONS = ("last", *POOLS)  # one row for each sample, or for each span
_OF_MESSAGES = ("assistant", "turns")
SPEC_KEYS = json.loads(pathlib.Path(__file__).with_name("spec-keys.json").read_text(encoding="utf-8"))
_SPANS, _SLICE, _RANDOM = (re.compile(SPEC_KEYS["forms"][name]) for name in ("spans", "slice", "random"))


@dataclass(frozen=True)
class Spans:
    """Parts of a sample's text. argument: the name of a field, or the expression."""

    kind: str  # "assistant", "turns", "generated", "field" or "regex"
    argument: str = ""

    @property
    def text(self) -> str:
        """As run.json has it."""
        return f"{self.kind}:{self.argument}" if self.argument else self.kind

    @property
    def are_of_messages(self) -> bool:
        return self.kind in _OF_MESSAGES

    @property
    def nothing(self) -> str:
        """The reason why a sample has no such token, after its number of tokens."""
        return {
            "assistant": "and the model wrote none of them",
            "turns": "and no message has one of them",
            "generated": "and the run generated none of them",
            "field": f"and no span of `{self.argument}` has one of them",
            "regex": "and no match of the expression has one of them",
        }[self.kind]


@dataclass(frozen=True)
class TokenSelection:
    """A parsed value of `tokens`. All of a sample's tokens if nothing is set."""

    reduction: str | None = None  # of REDUCTIONS
    spans: Spans | None = None
    random: int | None = None
    part: slice | None = None
    positions: tuple[int, ...] | None = None

    @property
    def is_pool(self) -> bool:
        return self.reduction in POOLS

    @property
    def is_of_all(self) -> bool:
        """Whether every token counts, in a row of its own or in the pool of its sample."""
        return self == TokenSelection(self.reduction if self.is_pool else None)

    @property
    def reduces_spans(self) -> bool:
        """Whether each span has a row."""
        return self.reduction is not None and self.spans is not None


@lru_cache(maxsize=1024)
def parse_tokens(tokens: str | tuple[int, ...]) -> TokenSelection | None:
    """The selection of a value of `tokens`; None for another text."""
    if not isinstance(tokens, str):
        return TokenSelection(positions=tokens)
    if tokens == "all":
        return TokenSelection()
    if tokens in REDUCTIONS:
        return TokenSelection(tokens)
    if match := _RANDOM.fullmatch(tokens):
        return TokenSelection(random=int(match[1]))
    if match := _SLICE.fullmatch(tokens):
        return TokenSelection(part=slice(*(int(part) if part else None for part in match.groups())))
    reduction, _, rest = tokens.partition(":")
    if reduction in REDUCTIONS and (spans := parse_spans(rest)):
        return TokenSelection(reduction, spans)
    return TokenSelection(spans=spans) if (spans := parse_spans(tokens)) else None


def parse_spans(text: str) -> Spans | None:
    """The spans of a value of `mask`, or of a part of `tokens`; None for another text."""
    match = _SPANS.fullmatch(text)
    return Spans(*filter(None, match.groups())) if match else None


def span_sources(tokens: str | tuple[int, ...], mask: str | None) -> tuple[Spans, ...]:
    """The spans that a run looks for, each once: those of `tokens` first."""
    selection = parse_tokens(tokens)
    of_tokens = selection.spans if selection else None
    of_mask = parse_spans(mask) if mask else None
    return tuple(dict.fromkeys(source for source in (of_tokens, of_mask) if source))

"""The reason why a line of a stream, or one of its samples, is rejected."""

from dataclasses import dataclass

_MAX_CHARS = 600


@dataclass(frozen=True)
class RejectReason:
    """A phrase that completes "line 3 …"; it can always be written as UTF-8."""

    text: str

    def __post_init__(self) -> None:
        clean = self.text[:_MAX_CHARS].encode("utf-8", "backslashreplace").decode()
        object.__setattr__(self, "text", clean)

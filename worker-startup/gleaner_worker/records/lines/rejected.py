"""The reason why a line of a stream, or one of its samples, is rejected."""

_MAX_CHARS = 600


class Rejected(Exception):
    """The message completes "line 3 …"; it can always be written as UTF-8."""

    def __init__(self, reason: str):
        super().__init__(reason[:_MAX_CHARS].encode("utf-8", "backslashreplace").decode())

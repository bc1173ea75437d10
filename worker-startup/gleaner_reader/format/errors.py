"""Errors of stored activations."""


def printable(text: str) -> str:
    """The text with escapes for what a terminal obeys: control and format characters, and lines of their own."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "backslashreplace").decode() for char in text
    )


class ShardError(ValueError):
    """A file is damaged, cut short, or not a shard; the message begins with its name, and drives no terminal."""

    def __init__(self, message: str):
        super().__init__(printable(message))


class Unsafe(Exception):
    """A pickle is not a shard; the message completes a sentence about the pickle."""


class MissingPackage(ImportError):
    """An optional package is not installed; the message names it.

    The message names no extra of gleaner_reader, because a package index may have another package of that name.
    """

    def __init__(self, what: str, package: str):
        super().__init__(f"Failed to {what}: {package} is not installed; run: pip install {package}")

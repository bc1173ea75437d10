"""Errors of stored activations."""


class ShardError(ValueError):
    """A file is damaged, cut short, or not a shard; the message begins with its name."""


class Unsafe(Exception):
    """A pickle is not a shard; the message completes a sentence about the pickle."""


class MissingPackage(ImportError):
    """An optional package is not installed; the message names it.

    The message names no extra of gleaner_reader, because a package index may have another package of that name.
    """

    def __init__(self, what: str, package: str):
        super().__init__(f"Failed to {what}: {package} is not installed; run: pip install {package}")

"""Errors of stored activations."""


class ShardError(ValueError):
    """A shard is damaged, cut short, or no shard at all; the message begins with its name."""


class Unsafe(Exception):
    """A pickle is no shard; the message completes a sentence about the pickle."""


class MissingPackage(ImportError):
    """An optional package is not installed; the message names it.

    No message names an extra of this package: an index of packages may have another package of its name.
    """

    def __init__(self, what: str, package: str):
        super().__init__(f"Failed to {what}: {package} is not installed; run: pip install {package}")

"""What can be wrong with stored activations."""


class ShardError(ValueError):
    """A shard is damaged, cut short, or not one at all; the message begins with its name."""


class Unsafe(Exception):
    """A pickle is not a shard of ours; the message completes a sentence about it."""


class MissingPackage(ImportError):
    """Something optional was asked for that is not installed here; the message says what to install."""

    def __init__(self, what: str, package: str, extra: str):
        super().__init__(f"Failed to {what}: {package} is not installed; pip install 'gleaner-reader[{extra}]'")

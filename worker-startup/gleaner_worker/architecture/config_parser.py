"""Reads values from a config.json, which may hold any JSON, and collects the problems of all values."""

import math
from typing import Any

SIZE_LIMIT = 2**24  # of one axis of a weight, far above every model


class Fields:
    """The keys of one JSON object. Each method returns a value of the promised type for any content of the file.
    Problems go into `problems`, which all objects of one file share, so that one error names all of them.
    names: the names in the file of keys that have another name there."""

    def __init__(
        self, raw: dict, prefix: str = "", problems: list[str] | None = None, names: dict[str, str] | None = None
    ):
        self.raw = raw
        self.prefix = prefix
        self.problems: list[str] = [] if problems is None else problems
        self.names = names or {}

    def get(self, key: str) -> Any:
        """The value as the file has it; None for a missing key."""
        return self.raw.get(self.names.get(key, key))

    def has(self, key: str) -> bool:
        """Whether the key has a value; null counts as missing."""
        return self.get(key) is not None

    def states(self, key: str) -> bool:
        """Whether the file has the key, with any value."""
        return self.names.get(key, key) in self.raw

    def refuse(self, key: str, why: str) -> None:
        """Adds a problem with the value of the key."""
        self.problems.append(f"{self._name(key)} is {shown(self.get(key))}, {why}")

    def _name(self, key: str) -> str:
        return f"{self.prefix}{self.names.get(key, key)}"

    def size(self, key: str, limit: int = SIZE_LIMIT) -> int:
        """A whole number from 1 to `limit`."""
        value = self.get(key)
        if value is None:
            self.problems.append(f"{self._name(key)} is missing")
        elif type(value) is not int or not 1 <= value <= limit:
            self.refuse(key, f"it must be a whole number from 1 to {limit}")
        else:
            return value
        return 1

    def number(self, key: str, low: float, high: float) -> float:
        """A finite number from `low` to `high`."""
        value = self.get(key)
        if value is None:
            self.problems.append(f"{self._name(key)} is missing")
        elif type(value) not in (int, float) or not (low <= value <= high and math.isfinite(value)):
            self.refuse(key, f"it must be a number from {low:g} to {high:g}")
        else:
            return float(value)
        return low

    def flag(self, key: str) -> bool:
        """A boolean; False for a missing key."""
        value = self.get(key) if self.states(key) else False
        if type(value) is not bool:
            self.refuse(key, "it must be true or false")
            return False
        return value

    def choice(self, key: str, known: tuple[str, ...]) -> str:
        """One of the strings in `known`."""
        value = self.get(key)
        if not isinstance(value, str) or value not in known:
            self.refuse(key, f"supported is {' or '.join(repr(name) for name in known)}")
            return known[0]
        return value

    def table(self, key: str) -> "Fields":
        """The object of a key; an empty object for a missing key."""
        value = self.get(key)
        if value is not None and not isinstance(value, dict):
            self.refuse(key, "it must be an object")
            value = None
        return Fields(value or {}, f"{self.prefix}{key}.", self.problems)


def shown(value: Any) -> str:
    """A value as errors show it: at most 80 characters."""
    if type(value) is int and abs(value) >= 10**20:
        return "an integer of more than 20 digits"  # repr() of a very long integer raises
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}..."

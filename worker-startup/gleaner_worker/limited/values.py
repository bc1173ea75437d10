"""Dataclasses from the JSON of `dataclasses.asdict`, which has lists in place of tuples."""

import types
from dataclasses import is_dataclass
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints


def from_json(kind: Any, value: Any) -> Any:
    """The value of the type `kind`: a dataclass, a tuple, a union of such types with None, or a plain JSON type."""
    if get_origin(kind) in (Union, types.UnionType):
        wanted = (list, dict) if isinstance(value, (list, dict)) else (type(value),)
        fitting = [each for each in get_args(kind) if _json_type(each) in wanted]
        return from_json(fitting[0], value) if fitting else value
    if is_dataclass(kind):
        hints = _hints(kind)
        return kind(**{name: from_json(hints[name], each) for name, each in value.items()})  # pyrefly: ignore
    if get_origin(kind) is tuple:
        kinds = get_args(kind)
        of_each = [kinds[0]] * len(value) if kinds[-1] is ... else kinds
        return tuple(from_json(each, item) for each, item in zip(of_each, value, strict=True))
    return value


def _json_type(kind: Any) -> Any:
    if get_origin(kind) is tuple:
        return list
    return dict if is_dataclass(kind) else kind


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)

"""Reads a frozen spec: each key as spec-keys.json declares it, with a value that this worker supports."""

import json
import math
import re
from collections.abc import Callable
from typing import Any

from ..architecture.sites import SITES
from ..failures import Failure
from .selections import SPEC_KEYS, parse_spans, parse_tokens
from .spec import MomentSpec, RecordSpec, ReductionSpec, Spec


def read_spec(text: str) -> Spec:
    """Parses the frozen spec from JSON. Raises Failure("model")."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Failure("model", f"Failed to read the spec: it is not JSON: {error}; pass the spec of a run") from error
    return parse_spec(raw)


def parse_spec(raw: object) -> Spec:
    """Parses the frozen spec. A missing key, which a later release added, gets its default.

    Checks each value alone: the control plane refuses keys that contradict each other before it freezes a spec. Raises
    Failure("model") naming every key and value that this worker does not support.
    """
    if not isinstance(raw, dict):
        raise Failure(
            "model", f"Failed to read the spec: it is {type(raw).__name__}, not an object; pass the spec of a run"
        )
    values = {key: raw.get(key, value) for key, (value, _, _) in _KEYS.items()}
    problems = _invalid_values("", raw, values, _KEYS)
    record = values["record"]
    if isinstance(record, dict):
        values["record"] = {key: record.get(key, value) for key, (value, _, _) in _RECORD_KEYS.items()}
        problems += _invalid_values("record.", record, values["record"], _RECORD_KEYS)
    if problems:
        raise Failure(
            "model", f"Failed to read the spec: {'; '.join(problems)}; correct these keys, or update the workers"
        )
    values["sites"] = [site for site in SITES if site in values["sites"]]
    values["record"] = RecordSpec(**values["record"])
    for key in ("features", "project"):
        values[key] = [_of_json(ReductionSpec, entry) for entry in values[key]]
    if values["moments"] is not None:
        values["moments"] = _of_json(MomentSpec, values["moments"])
    values["shard_size_bytes"] = max(1, int(values["shard_size_gb"] * 1_000_000_000))
    fields: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list | tuple) else value for key, value in values.items()
    }
    return Spec(**{key: fields[key] for key in Spec.__dataclass_fields__})


def _of_json(kind: Any, value: dict) -> Any:
    """The dataclass, with tuples for lists: it is a key of a program."""
    return kind(**{key: tuple(each) if isinstance(each, list) else each for key, each in value.items()})


def _invalid_values(where: str, raw: dict, values: dict, keys: dict[str, tuple]) -> list[str]:
    unknown = [f"{where}{key!s:.100} is unknown to this worker" for key in raw if key not in keys]
    return unknown + [
        f"{where}{key} is {values[key]!r:.100}, this worker supports {known}"
        for key, (_, is_known, known) in keys.items()
        if not is_known(values[key])
    ]


def _whole(least: int, most: int) -> Callable[[object], bool]:
    return lambda value: type(value) is int and least <= value <= most


def _one_of(values: tuple[str, ...]) -> tuple[Callable[[object], bool], str]:
    return lambda value: isinstance(value, str) and value in values, ", ".join(values)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _like(pattern: str) -> Callable[[object], bool]:
    return lambda value: isinstance(value, str) and re.fullmatch(pattern, value) is not None


_is_name = _like(r"[^\x00-\x1f\x7f-\x9f]+")  # without control characters, because terminals show it


def _is_list(value: Any, is_item: Callable[[object], bool], least: int = 1, most: float = math.inf) -> bool:
    return isinstance(value, list | tuple) and least <= len(value) <= most and all(map(is_item, value))


def _is_each_once(value: Any, is_item: Callable[[object], bool], least: int = 1) -> bool:
    return _is_list(value, is_item, least) and len(set(value)) == len(value)


def _is_generate(value: object) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == {"max_new_tokens", "temperature"}
        and _whole(1, 131_071)(value["max_new_tokens"])
        and value["temperature"] == 0
    )


def _is_variables(value: object) -> bool:
    return (
        isinstance(value, dict)
        and len(value) <= 32
        and all(is_template_variable(name) and _is_variable_value(each) for name, each in value.items())
    )


def is_template_variable(name: object) -> bool:
    """Whether a chat template can have the variable, and its caller does not set the variable itself."""
    own = ("messages", "tools", "add_generation_prompt", "continue_final_message")
    return _like(r"[A-Za-z_][A-Za-z0-9_]{0,63}")(name) and name not in own


def _is_variable_value(value: object) -> bool:
    values = value if isinstance(value, list) else [value]
    return len(values) <= 64 and all(each is None or isinstance(each, (str, bool, int, float)) for each in values)


def _is_layers(value: object) -> bool:
    return _is_list(value, _whole(0, 9999)) or _like(r"all|[0-9]{1,4}-[0-9]{1,4}")(value)


def _is_tokens(value: object) -> bool:
    if isinstance(value, str):
        return parse_tokens(value) is not None
    return _is_each_once(value, _whole(-(1 << 31), (1 << 31) - 1))


_PLAIN = r"[^{}\\\x00-\x1f\x7f-\x9f]*"
_PATH = rf"(?!/)(?!.*//)(?!(?:.*/)?\.\.?(?:/|$)){_PLAIN}(?:\{{layer\}}{_PLAIN})?"
# The forms that code checks, with the supported values in words.
_OWN: dict[str, tuple[Callable[[Any], bool], str]] = {
    "layers": (_is_layers, '"all", a range such as "0-23", and a list of numbers'),
    "sites": (lambda value: _is_each_once(value, SITES.__contains__, 0), f"{', '.join(SITES)}, each once"),
    "tokens": (
        _is_tokens,
        "all, last, mean, max, assistant, turns, generated, field:NAME, regex:PATTERN, each of these five also after "
        "last:, mean: or max:, random:N, a slice such as 0:16, and positions, each once",
    ),
    "mask": (
        lambda value: isinstance(value, str) and parse_spans(value) is not None,
        "assistant, turns, generated, field:NAME and regex:PATTERN",
    ),
    "new_tokens": (
        _is_generate,
        "max_new_tokens from 1 to 131071 with temperature 0, which gives the same tokens in every attempt",
    ),
    "size": (lambda value: type(value) in (int, float) and 0 < value <= 64, "a number above 0, and at most 64"),
    "when": (lambda value: value == "auto" or _is_flag(value), "auto, true and false"),
    "power": (lambda value: _whole(64, 131_072)(value) and value & (value - 1) == 0, "a power of two, 64 to 131072"),
    "names": (
        lambda value: _is_each_once(value, _is_name, 0),
        "a list of names, each once, without control characters",
    ),
    "encoder": (_is_text, "a name"),
    "output": (_like("[a-z][a-z_]{0,23}"), "a name of at most 24 lower-case letters and underscores"),
    "path": (_like(_PATH), "a path below `weights` with at most one {layer}"),
    "site": _one_of(SITES),
    "variables": (
        _is_variables,
        "an object of variables other than those that the worker sets, such as messages, with texts, numbers and lists",
    ),
}


def _check_of(form: dict) -> tuple[object, Callable[[object], bool], str]:
    """For a declared key: its value where it is missing, the test of its values, and the supported values in words."""
    is_known, known = {
        "own": lambda: _OWN[form["form"]],
        "flag": lambda: (_is_flag, "true and false"),
        "number": lambda: (_whole(form["least"], form["most"]), f"{form['least']} to {form['most']}"),
        "word": lambda: _one_of(tuple(form["words"])),
        "text": lambda: (_is_name, "a name without control characters") if "isName" in form else (_is_text, "a text"),
    }[form["kind"]]()
    if form.get("default", known) is None:
        return None, lambda value: value is None or is_known(value), f"null, and {known}"
    return form.get("default"), is_known, known


def _object_of(kind: str) -> tuple[Callable[[Any], bool], str]:
    """The test of an entry of `features` or `project`, or of the value of `moments`, and its keys in words."""
    keys = {key: _check_of(form) for key, form in SPEC_KEYS[kind].items()}
    words = "; ".join(f"{key}: {known}" for key, (_, _, known) in keys.items())
    return (
        lambda value: (
            isinstance(value, dict)
            and value.keys() <= keys.keys()
            and all(is_known(value.get(key, default)) for key, (default, is_known, _) in keys.items())
        ),
        words,
    )


_is_features, _features = _object_of("features")
_is_project, _project = _object_of("project")
_is_moments, _moments = _object_of("moments")
_OWN |= {
    "features": (lambda value: _is_list(value, _is_features, 0, 8), f"at most 8 entries of {_features}"),
    "project": (lambda value: _is_list(value, _is_project, 0, 8), f"at most 8 entries of {_project}"),
    "moments": (lambda value: _is_moments(value) and value.get("sites") != [], f"an object of {_moments}"),
}
_KEYS = {key: _check_of(form) for key, form in SPEC_KEYS["spec"].items()}
# Every frozen spec has these. One without is damaged.
_REQUIRED = ("layers", "format", "shard_size_gb", "max_seq_length", "over_long")
_KEYS |= {key: (None, *_KEYS[key][1:]) for key in _REQUIRED}
_KEYS["record"] = ({}, lambda value: isinstance(value, dict), "an object")
_KEYS |= dict.fromkeys(SPEC_KEYS["run"], (None, lambda _: True, ""))
_RECORD_KEYS = {key: _check_of(form) for key, form in SPEC_KEYS["record"].items()}

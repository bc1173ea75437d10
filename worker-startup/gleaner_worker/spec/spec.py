"""The spec of a run, as the control plane froze it."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from dataclasses import field as default_of
from typing import Any

from ..architecture.config import DecoderConfig
from ..architecture.sites import SITES, TABLE, Capture
from ..failures import Failure
from .selections import SPEC_KEYS, Spans, TokenSelection, parse_spans, parse_tokens, span_sources

DTYPES, FORMATS = (tuple(SPEC_KEYS["spec"][key]["words"]) for key in ("dtype", "format"))
KEPT_ANSWER = "generated"  # the name of the text of generated tokens among the kept fields


@dataclass(frozen=True)
class RecordSpec:
    """The rules that turn a line into a prompt; see records/."""

    field: str | None = None
    template: str | None = None
    encoder: str | None = None
    prompt_version: str = "output-from-examples-v0"
    predictions_per_task: int = 1
    add_generation_prompt: bool = False
    continue_final_message: bool = False
    template_kwargs: Mapping[str, Any] = default_of(default_factory=dict)  # variables of the chat template


@dataclass(frozen=True)
class Spec:
    """The keys of the spec, as docs/run-spec.md describes them."""

    model: str
    revision: str | None
    layers: str | tuple[int, ...]  # "all", "0-23", or the numbers themselves
    sites: tuple[str, ...]  # in the order of SITES
    tokens: str | tuple[int, ...]  # as selections.py describes them
    exclude_special: bool
    dtype: str  # as stored
    compute_dtype: str  # of the weights and the computation: bf16 or fp32
    format: str
    shard_size_bytes: int
    max_seq_length: int
    over_long: str
    record: RecordSpec
    keep: tuple[str, ...]
    seed: int
    row_tokens: int = 2048  # the least length of a packed row: a power of two
    window_tokens: int = 65_536  # of the samples that are packed together
    context_size: int | None = None  # tokens of a chunk or a packed window; None for max_seq_length
    overlap: int = 0  # tokens that a chunk repeats of the chunk before
    bos: str | bool = "auto"
    top_k: int = 20  # tokens of the sites top_tokens and top_logprobs
    mask: str | None = None  # the spans whose tokens are marked beside the rows
    generate: Mapping[str, int] | None = None  # max_new_tokens, and the temperature 0

    @property
    def selection(self) -> TokenSelection:
        selection = parse_tokens(self.tokens)
        assert selection is not None  # parse_spec refuses other texts
        return selection

    @property
    def span_sources(self) -> tuple[Spans, ...]:
        return span_sources(self.tokens, self.mask)

    @property
    def cuts_documents(self) -> bool:
        """Whether a sample is a part of one document or of several documents."""
        return self.over_long in ("chunk", "pack")

    @property
    def new_tokens(self) -> int:
        """The most tokens that the model appends to a prompt."""
        return self.generate["max_new_tokens"] if self.generate else 0

    @property
    def generates(self) -> bool:
        return self.generate is not None

    @property
    def keeps(self) -> bool:
        """Whether the index of a shard has kept fields."""
        return bool(self.keep) or self.generates

    def max_length(self, max_positions: int) -> int:
        """The most tokens of a sample, for a model with `max_positions` positions."""
        return min(self.context_size or self.max_seq_length, max_positions)


def read_spec(text: str) -> Spec:
    """Parses the frozen spec from JSON. Raises Failure("model")."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Failure("model", f"Failed to read the spec: it is not JSON: {error}; pass the spec of a run") from error
    return parse_spec(raw)


def parse_spec(raw: object) -> Spec:
    """Parses the frozen spec. A missing key, which a later release added, gets its default.

    Raises Failure("model") naming every key and value that this worker does not support.
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
    if not problems:
        problems = _contradictions(values)
    if problems:
        raise Failure(
            "model", f"Failed to read the spec: {'; '.join(problems)}; correct these keys, or update the workers"
        )
    values["sites"] = [site for site in SITES if site in values["sites"]]
    values["record"] = RecordSpec(**values["record"])
    values["shard_size_bytes"] = max(1, int(values["shard_size_gb"] * 1_000_000_000))
    fields: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list | tuple) else value for key, value in values.items()
    }
    return Spec(**{key: fields[key] for key in Spec.__dataclass_fields__})


def _invalid_values(where: str, raw: dict, values: dict, keys: dict[str, tuple]) -> list[str]:
    unknown = [f"{where}{key!s:.100} is unknown to this worker" for key in raw if key not in keys]
    return unknown + [
        f"{where}{key} is {values[key]!r:.100}, this worker supports {known}"
        for key, (_, is_known, known) in keys.items()
        if not is_known(values[key])
    ]


def _contradictions(values: dict) -> list[str]:
    problems = []
    selection = parse_tokens(values["tokens"] if isinstance(values["tokens"], str) else tuple(values["tokens"]))
    assert selection is not None
    whole = [site for site in values["sites"] if TABLE[site].dtype == "int32"]
    if whole and (values["format"] == "pkl.gz" or selection.is_pool):
        problems.append(f"{whole[0]} has numbers of things; ask for safetensors, and other tokens than mean and max")
    if values["format"] == "pkl.gz" and (values["mask"] or selection.reduces_spans):
        problems.append("pkl.gz has no place for a mask and for rows of spans; ask for safetensors")
    if values["over_long"] in ("chunk", "pack") and selection.reduces_spans:
        problems.append(f"over_long {values['over_long']} excludes one row for each span, because it cuts spans")
    if values["format"] == "pkl.gz" and (values["dtype"] not in ("fp16", "fp32") or len(values["sites"]) > 1):
        problems.append("pkl.gz holds one site in fp16 or fp32; ask for safetensors")
    if values["over_long"] in ("chunk", "pack"):
        if values["format"] == "pkl.gz":
            problems.append(f"over_long {values['over_long']} excludes pkl.gz, which stores no line and no chunk")
        if values["record"]["predictions_per_task"] > 1:
            problems.append(f"over_long {values['over_long']} excludes predictions_per_task")
        if values["over_long"] == "pack" and values["keep"]:
            problems.append("over_long pack excludes keep, because a packed window holds several records")
        if values["generate"]:
            problems.append(f"over_long {values['over_long']} excludes generate, which continues whole prompts")
    elif values["context_size"] is not None:
        problems.append("context_size needs over_long chunk or pack")
    if values["generate"] and KEPT_ANSWER in values["keep"]:
        problems.append(f"generate stores the text as {KEPT_ANSWER}, which is a name in keep too")
    spans = (selection.spans, parse_spans(values["mask"]) if values["mask"] else None)
    if not values["generate"] and any(each and each.kind == "generated" for each in spans):
        problems.append("tokens and mask have generated tokens only with generate")
    if values["record"]["field"] and values["record"]["template"]:
        problems.append("record has a field and a template, which exclude each other")
    if values["record"]["template_kwargs"] and values["record"]["template"]:
        problems.append("record has template_kwargs and a template, which exclude each other")
    if values["record"]["add_generation_prompt"] and values["record"]["continue_final_message"]:
        problems.append("record has add_generation_prompt and continue_final_message, which exclude each other")
    return problems


def _whole(least: int, most: int) -> Callable[[object], bool]:
    return lambda value: type(value) is int and least <= value <= most


def _one_of(values: tuple[str, ...]) -> tuple[Callable[[object], bool], str]:
    return lambda value: isinstance(value, str) and value in values, ", ".join(values)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_name(value: object) -> bool:
    """A name without control characters, because terminals show it."""
    return isinstance(value, str) and re.fullmatch(r"[^\x00-\x1f\x7f-\x9f]+", value) is not None


def _is_list(value: Any, is_item: Callable[[object], bool], least: int = 1) -> bool:
    return isinstance(value, list | tuple) and len(value) >= least and all(map(is_item, value))


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
    return isinstance(name, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", name) is not None and name not in own


def _is_variable_value(value: object) -> bool:
    values = value if isinstance(value, list) else [value]
    return len(values) <= 64 and all(each is None or isinstance(each, (str, bool, int, float)) for each in values)


def _is_layers(value: object) -> bool:
    return _is_list(value, _whole(0, 9999)) or (
        isinstance(value, str) and re.fullmatch(r"all|[0-9]{1,4}-[0-9]{1,4}", value) is not None
    )


def _is_tokens(value: object) -> bool:
    if isinstance(value, str):
        return parse_tokens(value) is not None
    return _is_each_once(value, _whole(-(1 << 31), (1 << 31) - 1))


def _is_row_length(value: Any) -> bool:
    return _whole(64, 131_072)(value) and value & (value - 1) == 0


def _is_size(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value <= 64


# The forms that code checks, with the supported values in words.
_OWN: dict[str, tuple[Callable[[object], bool], str]] = {
    "layers": (_is_layers, '"all", a range such as "0-23", and a list of numbers'),
    "sites": (lambda value: _is_each_once(value, SITES.__contains__), f"{', '.join(SITES)}, each once"),
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
    "size": (_is_size, "a number above 0, and at most 64"),
    "when": (lambda value: value == "auto" or _is_flag(value), "auto, true and false"),
    "power": (_is_row_length, "a power of two, 64 to 131072"),
    "names": (
        lambda value: _is_each_once(value, _is_name, 0),
        "a list of names, each once, without control characters",
    ),
    "encoder": (_is_text, "a name"),
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


_KEYS = {key: _check_of(form) for key, form in SPEC_KEYS["spec"].items()}
# Every frozen spec has these. One without is damaged.
_REQUIRED = ("layers", "format", "shard_size_gb", "max_seq_length", "over_long")
_KEYS |= {key: (None, *_KEYS[key][1:]) for key in _REQUIRED}
_KEYS["record"] = ({}, lambda value: isinstance(value, dict), "an object")
_KEYS |= dict.fromkeys(SPEC_KEYS["run"], (None, lambda _: True, ""))
_RECORD_KEYS = {key: _check_of(form) for key, form in SPEC_KEYS["record"].items()}


def mode_of(spec: Spec) -> str:
    """The `mode` of a Capture for this spec."""
    selection = spec.selection
    if selection.is_pool:
        return str(selection.reduction)
    return "all" if selection.is_of_all and not spec.exclude_special else "rows"


def capture_of(spec: Spec, config: DecoderConfig, layers: tuple[int, ...]) -> Capture:
    """The vectors that a run stores. layers: those that resolve_layers gives."""
    return Capture(config, layers, spec.sites, mode_of(spec), spec.dtype, spec.top_k, spec.generates)


def resolve_layers(spec: Spec, num_layers: int) -> tuple[int, ...]:
    """The layers to store, ascending, without repeats; raises Failure("model") when the model lacks a layer."""
    if spec.layers == "all":
        wanted = set(range(num_layers))
    elif isinstance(spec.layers, str):
        first, _, last = spec.layers.partition("-")
        wanted = set(range(int(first), int(last) + 1))
    else:
        wanted = set(spec.layers)
    absent = sorted(layer for layer in wanted if not 0 <= layer < num_layers)
    if absent or not wanted:
        asked = f'"{spec.layers}"' if isinstance(spec.layers, str) else ", ".join(map(str, absent[:10]))
        raise Failure(
            "model",
            f"Failed to choose layers {asked} of {spec.model}: it has layers 0 to {num_layers - 1}; "
            "set `layers` within them",
        )
    return tuple(sorted(wanted))

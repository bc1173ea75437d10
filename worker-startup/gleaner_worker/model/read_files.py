"""Reads the files of a model that may hold anything, in a process with limits; model_source.py and others start it.

Each function gets the facts of a request, and returns the function that answers with what was read.
"""

from collections.abc import Callable
from dataclasses import asdict

from gleaner_reader.format.limits import MAX_TENSORS
from gleaner_reader.format.safetensors_header import parse_safetensors_header

from ..architecture.config import DecoderConfig, parse_config
from ..architecture.config_keys import unknown_keys
from ..architecture.saes import parse_sae
from ..architecture.sites import check_sites
from ..limited import step
from ..limited.frames import Frame
from ..limited.values import from_json
from ..model_files import CONFIG, INDEX, is_weight_file
from ..model_json import read_model_json, unreadable
from ..spec.spec import Spec, resolve_layers
from .files.generation_rules import read_generation_rules

_MAX_INDEX_BYTES = 64 << 20
_MAX_CONFIG_BYTES = 16 * 1024 * 1024
Answer = Callable[[Frame], Frame]


def warm_up() -> None:
    unknown_keys({})


def config_of(facts: dict) -> Answer:
    """{folder, spec} -> {config, layers}"""
    spec = from_json(Spec, facts["spec"])
    config = parse_config(_raw_config(facts["folder"], spec.model), spec.model)
    layers = resolve_layers(spec, config.num_layers)
    check_sites(config, layers, spec.sites, spec.top_k, spec.model)
    return _answer({"config": asdict(config), "layers": layers})


def rules_of(facts: dict) -> Answer:
    """{folder, spec, config} -> the GenerationRules"""
    spec, config = from_json(Spec, facts["spec"]), from_json(DecoderConfig, facts["config"])
    raw, length = _raw_config(facts["folder"], spec.model), spec.max_length(config.max_positions)
    return _answer(asdict(read_generation_rules(facts["folder"], spec.model, config, raw, spec.new_tokens, length)))


def saes_of(facts: dict) -> Answer:
    """{folder, where, places} -> {saes}: the Sae of each place of an entry of `features`"""
    step.begin("model", f"read the configs of {facts['where']}", "copy them again")
    found = []
    for place in facts["places"]:
        config = place["config"]
        raw = read_model_json(facts["folder"], config, facts["where"], _MAX_CONFIG_BYTES) if config else {}
        found.append(asdict(parse_sae(place["layout"], raw, place["path"], facts["where"])))
    return _answer({"saes": found})


def unknown_keys_of(facts: dict) -> Answer:
    """{folder, model} -> {keys}: those of config.json that neither Gleaner nor transformers knows"""
    return _answer({"keys": unknown_keys(_raw_config(facts["folder"], facts["model"]))})


def files_of_index(facts: dict) -> Answer:
    """{folder, model} -> {files}: the files of weights that the index lists, all in that folder"""
    model = facts["model"]
    step.begin("model", f"read {INDEX} of {model}", "copy the model again")
    index = read_model_json(facts["folder"], INDEX, model, _MAX_INDEX_BYTES)
    try:
        listed = set(index["weight_map"].values())
        if bad := [name for name in listed if not isinstance(name, str) or not is_weight_file(name)]:
            raise ValueError(f"{bad[0]!r:.200} is not the name of a safetensors file")
        if not listed:
            raise ValueError("it names no file")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise unreadable(INDEX, model, "it has no weight_map" if isinstance(error, KeyError) else error) from error
    return _answer({"files": sorted(listed)})


def tensors_of(facts: dict) -> Answer:
    """{model} -> for {name, size} of a file of weights, and its header: {tensors: [[name, dtype, shape, begin]]}"""
    model, count = facts["model"], 0

    def answer(request: Frame) -> Frame:
        nonlocal count
        name = request.facts["name"]
        step.begin("model", f"read the header of {name} of {model}", "copy the model again")
        try:
            header = parse_safetensors_header(request.data, request.facts["size"])
        except (ValueError, RecursionError) as error:
            raise unreadable(name, model, f"its header {error}") from error
        count += len(header.tensors)
        if count > MAX_TENSORS:
            raise unreadable(name, model, f"the files of weights describe more than {MAX_TENSORS} tensors")
        found = [[tensor, info.dtype, info.shape, info.begin] for tensor, info in header.tensors.items()]
        return Frame({"tensors": found})

    return answer


def _raw_config(folder: str, model: str) -> dict:
    step.begin("model", f"read {CONFIG} of {model}", "copy the model again")
    return read_model_json(folder, CONFIG, model, _MAX_CONFIG_BYTES)


def _answer(found: dict) -> Answer:
    return lambda _: Frame(found)

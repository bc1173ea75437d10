"""The cases of test/fixtures/spec-cases.json, which the control plane's test reads too, so that both sides agree."""

import json
import pathlib
import re

import pytest

from build import fails
from gleaner_worker.architecture.sites import SITES
from gleaner_worker.failures import Failure
from gleaner_worker.records.chat.arc import VERSIONS
from gleaner_worker.records.chat.grids import _ENCODERS
from gleaner_worker.records.tokens.spans import make_span_finder
from gleaner_worker.spec.read_spec import parse_spec
from gleaner_worker.spec.selections import SPEC_KEYS
from gleaner_worker.spec.spec import RecordSpec, Spec, resolve_layers

ROOT = pathlib.Path(__file__).parents[3]
CASES = json.loads((ROOT / "test" / "fixtures" / "spec-cases.json").read_text(encoding="utf-8"))
SCHEMA = json.loads((ROOT / "docs" / "run.schema.json").read_text(encoding="utf-8"))["properties"]
DEFAULTS, RECORD = ({key: form.get("default") for key, form in SPEC_KEYS[part].items()} for part in ("spec", "record"))
DEFAULTS |= CASES["defaults"] | {"record": RECORD}


def complete(changes):
    return DEFAULTS | changes | {"record": DEFAULTS["record"] | changes.get("record", {})}


def to_run_json(spec):
    """The spec as run.json has it."""

    def plain(value, key=""):
        if isinstance(value, tuple):
            return [plain(each, key) for each in value]
        if key in ("features", "project", "moments") and value is not None:
            return {name: plain(getattr(value, name)) for name in SPEC_KEYS[key]}
        return value

    said = {key: plain(getattr(spec, key), key) for key in DEFAULTS if key not in ("record", "shard_size_gb")}
    record = {key: getattr(spec.record, key) for key in RecordSpec.__dataclass_fields__}
    return said | {"record": record, "shard_size_gb": spec.shard_size_bytes / 1_000_000_000}


@pytest.mark.parametrize("case", CASES["valid"], ids=lambda case: case["name"])
def test_a_completed_spec_is_read_with_its_values(case):
    completed = complete(case["completes"])
    spec = parse_spec(completed)
    assert to_run_json(spec) == completed
    make_span_finder(spec.span_sources, None)  # compiles its expressions


@pytest.mark.parametrize("case", CASES["frozen"], ids=lambda case: case["name"])
def test_a_missing_key_of_a_frozen_spec_has_its_default(case):
    assert to_run_json(parse_spec(case["spec"])) == complete(case["completes"])


@pytest.mark.parametrize(
    "case", [case for case in CASES["invalid"] if case.get("worker", True)], ids=lambda case: case["name"]
)
def test_a_spec_that_the_control_plane_refuses_is_refused_by_the_worker(case):
    given = case["given"]
    record = given.get("record", {})
    raw = DEFAULTS | given | {"record": DEFAULTS["record"] | record if isinstance(record, dict) else record}
    with fails("model") as caught:
        parse_spec(raw)
    assert [word for word in case["says"] if word not in caught.value.reason] == [], caught.value.reason


@pytest.mark.parametrize(
    "missing", ["model", "layers", "dtype", "format", "shard_size_gb", "max_seq_length", "over_long"]
)
def test_keys_without_a_default_are_required(missing):
    with pytest.raises(Failure, match=missing):
        parse_spec({key: value for key, value in DEFAULTS.items() if key != missing})


@pytest.mark.parametrize("size_gb", [1e-300, 1e-10])
def test_a_shard_size_below_one_byte_is_one_byte(size_gb):
    assert parse_spec(DEFAULTS | {"shard_size_gb": size_gb}).shard_size_bytes == 1


@pytest.mark.parametrize("raw", [None, [], "spec", 7])
def test_a_spec_must_be_an_object(raw):
    with pytest.raises(Failure, match="not an object"):
        parse_spec(raw)


def test_run_json_offers_the_values_that_the_worker_supports():
    record = SCHEMA["record"]["properties"]
    assert SCHEMA["sites"]["items"]["anyOf"][0]["enum"] == list(SITES)
    assert RECORD.keys() == RecordSpec.__dataclass_fields__.keys()
    assert DEFAULTS.keys() - {"shard_size_gb"} == Spec.__dataclass_fields__.keys() - {"shard_size_bytes"}
    assert record["prompt_version"]["enum"] == list(VERSIONS)
    (pattern,) = (kind["pattern"] for kind in record["encoder"]["anyOf"] if "pattern" in kind)
    assert re.search(r"\(([A-Za-z|]+)\)", pattern)[1].split("|") == list(_ENCODERS)


@pytest.mark.parametrize(("layers", "named"), [([0, 99, 100], "99, 100"), ("0-99", '"0-99"')])
def test_missing_layers_are_named_as_in_run_json(layers, named):
    with pytest.raises(Failure) as caught:
        resolve_layers(parse_spec(DEFAULTS | {"layers": layers}), 8)
    assert caught.value.reason.startswith(f"Failed to choose layers {named} of {DEFAULTS['model']}: ")

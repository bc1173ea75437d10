"""The cases of test/fixtures/addresses.json, which the configuration's test reads too, so that all sides agree."""

import json
import pathlib

from gleaner_worker.model.files.hub import is_endpoint
from startup_script import SOURCE, bash

ROOT = pathlib.Path(__file__).parents[3]
CASES = json.loads((ROOT / "test" / "fixtures" / "addresses.json").read_text(encoding="utf-8"))
EXPECTED = {case["address"]: case["is_safe"] for case in CASES}


def test_the_agent_accepts_exactly_the_safe_addresses():
    assert {address: is_endpoint(address) for address in EXPECTED} == EXPECTED


def test_the_startup_script_accepts_exactly_the_safe_addresses():
    each = "for address; do if [[ $address =~ $API_FORM ]]; then echo true; else echo false; fi; done"
    result = bash(f"{SOURCE}; {each}", *EXPECTED)
    answers = [json.loads(line) for line in result.stdout.split()]
    assert dict(zip(EXPECTED, answers, strict=True)) == EXPECTED

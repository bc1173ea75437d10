"""The licences that `gleaner build` lists are those of the locked packages."""

import json
import re
from email.message import Message
from pathlib import Path

import pytest

from licences import licence_of, licences, locked

ROOT = Path(__file__).parents[3]
LISTED = json.loads((ROOT / "cli/build/python-licences.json").read_text())
TEXTS = [(ROOT / f"worker-startup/{name}.lock").read_text() for name in ("requirements", "requirements-tpu")]
# Packages of another system than a TPU VM has.
OTHER = re.compile(r"^([a-z0-9][\w.-]*)==\S+ ; sys_platform == '(?:win32|emscripten)'", re.MULTILINE)


def test_every_locked_package_is_listed_with_the_licence_that_its_metadata_state():
    versions = locked(*TEXTS)
    others = {match[1] for text in TEXTS for match in OTHER.finditer(text)}
    assert {name: entry["version"] for name, entry in LISTED.items()} == {
        name: version for name, version in versions.items() if name not in others
    }
    installed = licences(versions)
    assert installed.keys() >= {"jax", "numpy", "safetensors"}
    assert installed == {name: LISTED[name] for name in installed}, "run `npm run lock`"


@pytest.mark.parametrize(
    ("lines", "licence"),
    [
        ({"License-Expression": "MIT OR 0BSD", "License": "x"}, "MIT OR 0BSD"),
        ({"License": "Apache 2.0"}, "Apache-2.0"),
        ({"License": "Copyright " + "x" * 99, "Classifier": "License :: OSI Approved :: BSD License"}, "BSD License"),
        ({"Classifier": "License :: OSI Approved :: MIT License"}, "MIT"),
    ],
)
def test_a_licence_is_an_expression_or_the_words_of_the_package(lines, licence):
    metadata = Message()
    for key, value in lines.items():
        metadata[key] = value
    assert licence_of(metadata) == licence

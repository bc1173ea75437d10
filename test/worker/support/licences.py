"""The licences of locked packages, as the metadata of the installed packages state them.

    python test/worker/support/licences.py LOCK...

Prints JSON: {package: {"version", "licence"}}. Packages of other systems are not installed, and left out.
"""

import importlib.metadata
import json
import re
import sys
from email.message import Message
from pathlib import Path

_LOCKED = re.compile(r"^([a-z0-9][\w.-]*)==([^\s;\\]+)", re.MULTILINE)
_SPDX = {"Apache 2.0": "Apache-2.0", "Apache Software License": "Apache-2.0", "MIT License": "MIT"}
_MOST_CHARS = 64  # of a licence; a longer field holds its text


def locked(*texts: str) -> dict[str, str]:
    """{package: version}"""
    return {match[1]: match[2] for text in texts for match in _LOCKED.finditer(text)}


def licences(versions: dict[str, str]) -> dict[str, dict[str, str]]:
    found = {}
    for name, version in sorted(versions.items()):
        try:
            package = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if package.version != version:
            raise SystemExit(f"{name} {package.version} is installed, and {version} is locked")
        found[name] = {"version": version, "licence": licence_of(package.metadata)}  # pyrefly: ignore[bad-argument-type]
    return found


def licence_of(metadata: Message) -> str:
    """An expression or an id of SPDX where the package states one, else its own words."""
    text = metadata.get("License-Expression") or metadata.get("License") or ""
    classes = [line.rpartition(" :: ")[2] for line in metadata.get_all("Classifier", []) if line.startswith("License")]
    if not text or len(text) > _MOST_CHARS:
        text = " AND ".join(classes)
    return _SPDX.get(text, text)


if __name__ == "__main__":
    texts = [Path(path).read_text() for path in sys.argv[1:]]
    json.dump(licences(locked(*texts)), sys.stdout, indent=2)
    print()

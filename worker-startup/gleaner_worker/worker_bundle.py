"""The worker bundle that this code comes from."""

import re

_BUNDLE = re.compile(r"/bundle-([0-9a-f]{64})/")


def worker_bundle() -> str | None:
    """The sha256 of the bundle that holds this file, or None outside of a bundle."""
    match = _BUNDLE.search(__file__)
    return match[1] if match else None

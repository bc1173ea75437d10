"""The client of huggingface_hub, with limits: a hub may redirect anywhere, and answer without end."""

import functools
import logging
import os
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

TIMEOUT_S = 20.0
MAX_ANSWER_BYTES = 64 << 20  # of an answer that is no file of a model
FILE_HEADERS = {"accept-encoding": "identity"}  # of a request for a file

# startup.sh and the configuration of the functions accept the same addresses.
_ENDPOINT = re.compile(
    r"(https://[A-Za-z0-9._-]+|http://(127(\.[0-9]{1,3}){3}|localhost|\[::1\]))(:[0-9]{1,5})?(/[A-Za-z0-9._~%/+-]*)?"
)
_PORTS = {"http": 80, "https": 443}
_own_origin = ""  # of the hub of this process, which alone gets a token


def is_endpoint(url: str) -> bool:
    """https://HOST[:PORT][/PATH]; http only to this machine itself, because a token never travels unencrypted."""
    return bool(_ENDPOINT.fullmatch(url))


def trust(endpoint: str) -> None:
    """Lets requests to the hub at `endpoint` alone have a token."""
    global _own_origin
    _own_origin = _origin_of(endpoint)


@functools.cache
def hub_client() -> ModuleType:
    """Imports huggingface_hub, after setting the environment variables that it reads at its import."""
    os.environ |= {
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_UPDATE_CHECK": "1",
        "HF_HUB_DOWNLOAD_TIMEOUT": f"{TIMEOUT_S:.0f}",
    }
    import huggingface_hub
    import huggingface_hub.errors
    import huggingface_hub.utils

    # These libraries log every address, also signed addresses, and texts of the server.
    for name in ("httpx2", "httpcore2", "huggingface_hub"):
        logging.getLogger(name).setLevel(logging.ERROR)
    huggingface_hub.set_client_factory(_make_client)
    return huggingface_hub


def _make_client() -> Any:
    from huggingface_hub.utils._http import default_client_factory

    client = default_client_factory()
    own = client.event_hooks
    client.event_hooks = {
        "request": [*own["request"], _check_request],
        "response": [*own["response"], _bound_answer],
    }
    return client


def is_lasting(error: Exception) -> bool:
    """Whether the next request would end in the same way: the hub redirects in a circle, or to no web address."""
    import httpx2

    return isinstance(error, httpx2.TooManyRedirects | httpx2.UnsupportedProtocol)


def _check_request(request: Any) -> None:
    """Called for a request and for each of its redirects. The client alone would send a token to another hub."""
    origin = _origin_of(str(request.url))
    is_local = is_endpoint(origin) and _own_origin.startswith("http:")
    if not origin.startswith("https:") and not is_local:
        raise ValueError(f"it redirects to {origin:.100}, which is not encrypted")
    if origin != _own_origin:
        request.headers.pop("authorization", None)


def _bound_answer(response: Any) -> None:
    """The client reads redirects, errors and lists of files as a whole."""
    is_file = response.request.headers.items() >= FILE_HEADERS.items() and response.status_code in (200, 206)
    if not is_file:
        response.stream = _bounded(response.stream)


def _bounded(stream: Any) -> Any:
    import httpx2

    class Bounded(httpx2.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            left = MAX_ANSWER_BYTES
            for piece in stream:
                left -= len(piece)
                if left < 0:
                    raise ValueError(f"an answer has more than {MAX_ANSWER_BYTES} bytes")
                yield piece

        def close(self) -> None:
            stream.close()

    return Bounded()


def _origin_of(url: str) -> str:
    """Scheme, host and port. Raises ValueError for an address without them."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}:{parts.port or _PORTS.get(parts.scheme, 0)}"

"""An index of tiny Python packages on 127.0.0.1, as pip and uv read it."""

import base64
import hashlib
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

from local_server import LocalServer


class PackageIndex:
    """url: the address of the index. add(...) publishes one version of a package that holds one module."""

    def __init__(self, folder: Path):
        self._folder = folder
        folder.mkdir()
        server = LocalServer(partial(_Handler, directory=str(folder)))
        self.url, self.close = server.url, server.close

    def add(self, name: str, version: str) -> None:
        place = self._folder / name
        place.mkdir(exist_ok=True)
        info = f"{name}-{version}.dist-info"
        files = {
            f"{name}/__init__.py": f"__version__ = {version!r}\n",
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        record = "".join(f"{path},sha256={_digest(text)},{len(text)}\n" for path, text in files.items())
        with zipfile.ZipFile(place / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
            for path, text in files.items():
                wheel.writestr(path, text)
            wheel.writestr(f"{info}/RECORD", f"{record}{info}/RECORD,,\n")
        links = "".join(f'<a href="{wheel.name}">{wheel.name}</a>' for wheel in sorted(place.glob("*.whl")))
        (place / "index.html").write_text(f"<!DOCTYPE html><html><body>{links}</body></html>")


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


class _Handler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object):
        pass

"""The Python environment of jobs: the locked one of the agent, or one of their own on top of it."""

import glob
import hashlib
import json
import os
import shutil
import sys

from ..code_identity import locked_digest
from ..jobs.prepared import SourceFailed
from ..jobs.user import make_folder
from .commands import Commands
from .sealed import seal, use

_INSTALL_S = 1800.0
_SETUP_S = 1800.0
_SHORT_S = 120.0
_NIGHTLY = "https://us-python.pkg.dev/ml-oss-artifacts-published/jax/simple/"


class Environments:
    """jobs: the agent's folder of jobs. An environment is made once for each digest, and cannot be changed later."""

    def __init__(self, jobs: str, commands: Commands):
        self._jobs, self._commands = jobs, commands

    def prepare(self, wanted: dict, version: int) -> tuple[str, str]:
        """Returns (path of the Python, digest). A new `version` resolves newest and nightly again."""
        jax_version, script = wanted.get("jax_version"), wanted.get("setup_script")
        base = locked_digest()
        if jax_version is None and script is None:
            return sys.executable, base
        moving = version if jax_version in ("newest", "nightly") else None
        digest = hashlib.sha256(json.dumps([base, jax_version, moving, script]).encode()).hexdigest()
        folder = os.path.join(self._jobs, "environments", digest)
        python = os.path.join(folder, "bin", "python")
        if not os.path.exists(python):
            self._make(folder, jax_version, script)
        return os.path.join(use(folder), "bin", "python"), digest

    def jax_version(self, python: str, folder: str) -> str | None:
        """The version that the Python has, or None without JAX."""
        code = "import importlib.metadata as m; print('jax', m.version('jax'))"
        said = self._commands.run([python, "-I", "-c", code], folder, _SHORT_S, visible=visible_of(python))
        last = said.last_line.split()
        return last[1][:100] if said.is_success and len(last) == 2 and last[0] == "jax" else None

    def _make(self, folder: str, jax_version: str | None, script: str | None) -> None:
        """The folder has its place from the start: scripts of a virtual environment name it."""
        shutil.rmtree(folder, ignore_errors=True)
        make_folder(folder, self._commands.user)
        try:
            uv = _find_uv()
            self._call([uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable, folder], folder, uv)
            self._link_locked_packages(folder)
            if jax_version is not None:
                self._install(folder, uv, jax_version)
            if script is not None:
                self._set_up(folder, uv, script)
            seal(folder, self._commands.user)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def _link_locked_packages(self, folder: str) -> None:
        """Packages of the lock are found after those of the environment."""
        own = next(iter(glob.glob(f"{folder}/lib/python3*/site-packages")))
        locked = next(path for path in sys.path if path.endswith("site-packages"))
        with open(os.path.join(own, "locked-packages.pth"), "w", encoding="utf-8") as file:
            file.write(f"{locked}\n")

    def _install(self, folder: str, uv: str, version: str) -> None:
        extra = "[tpu]" if os.environ.get("JAX_PLATFORMS") == "tpu" else ""
        command = [uv, "pip", "install", "--quiet", "--python", f"{folder}/bin/python"]
        if version == "nightly":
            command += ["--pre", "--extra-index-url", _NIGHTLY, "--index-strategy", "unsafe-best-match"]
        command.append(f"jax{extra}" if version in ("newest", "nightly") else f"jax{extra}=={version}")
        self._call(command, folder, uv, f"Failed to install jax {version}")

    def _set_up(self, folder: str, uv: str, script: str) -> None:
        path = os.path.join(folder, "setup.sh")
        with open(path, "w", encoding="utf-8") as file:
            file.write(script)
        os.chmod(path, 0o644)
        self._call(["bash", path], folder, uv, "The setup script failed", _SETUP_S)

    def _call(
        self,
        command: list[str],
        folder: str,
        uv: str,
        what: str = "Failed to make the environment",
        limit_s: float = _INSTALL_S,
    ) -> None:
        tools = os.path.dirname(uv)
        environment = {
            "VIRTUAL_ENV": folder,
            "PATH": f"{folder}/bin:{tools}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "UV_CACHE_DIR": f"{folder}/.uv-cache",
            "UV_NO_CONFIG": "1",
            "UV_PYTHON_DOWNLOADS": "never",
            **{name: os.environ[name] for name in ("UV_DEFAULT_INDEX", "PIP_INDEX_URL") if name in os.environ},
        }
        visible = [*visible_of(sys.executable), tools]
        said = self._commands.run(command, folder, limit_s, environment, visible)
        if not said.is_success:
            raise SourceFailed("setup", f"{what}: {said.why}")


def visible_of(python: str) -> list[str]:
    """Folders without which this Python does not start."""
    found = {os.path.dirname(os.path.dirname(path)) for path in (python, os.path.realpath(python))}
    return [path for path in found if path not in ("/", "/usr", "/usr/local")]


def _find_uv() -> str:
    cache = os.environ.get("UV_CACHE_DIR", "")
    found = sorted(glob.glob(f"{cache}/gleaner-uv-*/bin/uv"))
    uv = found[-1] if found else shutil.which("uv")
    if uv is None:
        raise SourceFailed("setup", "Failed to make the environment: there is no uv in UV_CACHE_DIR; boot the VM again")
    return os.path.realpath(uv)

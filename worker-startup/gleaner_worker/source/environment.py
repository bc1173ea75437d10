"""The Python environment of a job: the agent's locked environment, or a separate environment on top of it."""

import functools
import glob
import hashlib
import importlib.util
import json
import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence

from ..code_identity import locked_digest
from ..jobs.prepared_code import SYSTEM_PATH, SourceFailed, visible_of
from ..jobs.user import make_folder, remove
from .commands import Commands
from .sealed import seal, use

log = logging.getLogger(__name__)

_INSTALL_S = 1800.0
_SETUP_S = 1800.0
_SHORT_S = 120.0
_LOGGED_CHARS = 16_384
_NIGHTLY = "https://us-python.pkg.dev/ml-oss-artifacts-published/jax/simple/"
_LIBTPU = "https://storage.googleapis.com/jax-releases/libtpu_releases.html"  # for versions before libtpu was on PyPI
_LIBTPU_ON_PYPI = (0, 6, 0)
# Arguments: uv, the requirement and the options of both steps. Prints each package with its hashes, for the log.
_INSTALL = """
set -eu -o pipefail
uv=$1 requirement=$2
shift 2
printf '%s\\n' "$requirement" > requirement.in
"$uv" pip compile --quiet --generate-hashes --no-header --no-annotate --output-file installed.lock "$@" requirement.in
cat installed.lock
"$uv" pip install --quiet --require-hashes --requirements installed.lock "$@"
"""


def environment_digest(wanted: dict, version: int) -> str:
    """SHA-256 of the lock file, the JAX version and the setup script; of the lock file alone without the other two.

    wanted: `environment` of worker-api. version: of the pool's source; each version resolves newest and nightly again.
    A job with a separate environment has version 0: it resolves them again each day (UTC).
    """
    jax_version, script = wanted.get("jax_version"), wanted.get("setup_script")
    base = locked_digest()
    if jax_version is None and script is None:
        return base
    moving = (version or time.strftime("%Y-%m-%d", time.gmtime())) if jax_version in ("newest", "nightly") else None
    return hashlib.sha256(json.dumps([base, jax_version, moving, script]).encode()).hexdigest()


class Environments:
    """Makes one environment for each digest; no job can change it later. jobs: the agent's folder of jobs."""

    def __init__(self, jobs: str, commands: Commands):
        self._jobs, self._commands, self.is_isolated = jobs, commands, commands.user.is_isolated

    def prepare(self, wanted: dict, digest: str) -> str:
        """Returns the path of the Python. digest: of environment_digest. Raises SourceFailed."""
        if digest == locked_digest():
            _compile_locked()
            return sys.executable
        folder = os.path.join(self._jobs, "environments", digest)
        if not _is_complete(folder):
            self._make(folder, wanted.get("jax_version"), wanted.get("setup_script"))
        return os.path.join(use(folder), "bin", "python")

    def jax_version(self, python: str, folder: str) -> str | None:
        """The JAX version of the Python, or None without JAX. folder: current folder of the command."""
        code = "import importlib.metadata as m; print('jax', m.version('jax'))"
        result = self._commands.run([python, "-I", "-c", code], folder, _SHORT_S, visible=visible_of(python))
        last = result.last_line.split()
        return last[1][:100] if result.is_success and len(last) == 2 and last[0] == "jax" else None

    def _make(self, folder: str, jax_version: str | None, script: str | None) -> None:
        """Makes the environment in its final folder, because scripts of a virtual environment contain its path."""
        remove(folder)
        make_folder(folder, self._commands.user)
        try:
            uv = _find_uv()
            self._call([uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable, folder], folder, uv)
            self._link_locked_packages(folder, uv)
            if jax_version is not None:
                self._install(folder, uv, jax_version)
            if script is not None:
                self._set_up(folder, uv, script)
            seal(folder, self._commands.user)
            remove(os.path.join(folder, ".uv-cache"))
            _mark_complete(folder)
        except BaseException:
            remove(folder)
            raise

    def _link_locked_packages(self, folder: str, uv: str) -> None:
        """Adds the locked packages to the end of the environment's import path.

        The job user writes the file, because the agent would follow a symbolic link in a folder of the user.
        """
        locked = next(path for path in sys.path if path.endswith("site-packages"))
        script = 'cd lib/python3*/site-packages && printf "%s\\n" "$1" > locked-packages.pth'
        self._call(["bash", "-c", script, "link", locked], folder, uv)

    def _install(self, folder: str, uv: str, version: str) -> None:
        """Locks JAX and its packages by their hashes, and installs these. `installed.lock` stays in the folder."""
        is_tpu = os.environ.get("JAX_PLATFORMS") == "tpu"
        package = "jax[tpu]" if is_tpu else "jax"
        options = ["--python", f"{folder}/bin/python"]
        if version == "nightly":
            # The first index that has a package decides: no other index can offer a higher version of jax.
            options += ["--pre", "--extra-index-url", _NIGHTLY]
        elif version != "newest":
            package += f"=={version}"
            if is_tpu and tuple(map(int, version.split("."))) < _LIBTPU_ON_PYPI:
                options += ["--find-links", _LIBTPU]
        command = ["bash", "-c", _INSTALL, "install", uv, package, *options]
        self._call(command, folder, uv, f"Failed to install jax {version}")

    def _set_up(self, folder: str, uv: str, script: str) -> None:
        """Writes the script outside the folder of the user, so that the agent follows no link of the user."""
        path = f"{folder}.setup.sh"
        try:
            with open(path, "w", encoding="utf-8", errors="replace") as file:
                file.write(script)
            os.chmod(path, 0o644)
            self._call(["bash", path], folder, uv, "The setup script failed", _SETUP_S, [path], has_network=False)
        finally:
            os.unlink(path)

    def _call(
        self,
        command: list[str],
        folder: str,
        uv: str,
        what: str = "Failed to make the environment",
        limit_s: float = _INSTALL_S,
        visible: Sequence[str] = (),
        has_network: bool = True,
    ) -> None:
        tools = os.path.dirname(uv)
        environment = {
            "VIRTUAL_ENV": folder,
            "PATH": f"{folder}/bin:{tools}:{SYSTEM_PATH}",
            "UV_CACHE_DIR": f"{folder}/.uv-cache",
            "UV_NO_CONFIG": "1",
            "UV_COMPILE_BYTECODE": "1",  # because jobs write none
            "UV_PYTHON_DOWNLOADS": "never",
            **{name: os.environ[name] for name in ("UV_DEFAULT_INDEX", "PIP_INDEX_URL") if name in os.environ},
        }
        seen = [*visible_of(sys.executable), tools, *visible]
        result = self._commands.run(command, folder, limit_s, environment, seen, has_network=has_network)
        if output := result.output.strip():
            log.info("Output of the preparation of an environment:\n%s", output[-_LOGGED_CHARS:])
        if not result.is_success:
            raise SourceFailed("setup", f"{what}: {result.why}")


@functools.cache
def _compile_locked() -> None:
    """Makes the bytecode of JAX in the environment of the agent, where it is missing: jobs read it, and write none."""
    jax = importlib.util.find_spec("jax")
    if jax is None or jax.origin is None:
        return
    source = os.path.join(os.path.dirname(jax.origin), "numpy", "__init__.py")
    if not os.path.exists(importlib.util.cache_from_source(source)):
        variables = {**os.environ, "JAX_PLATFORMS": "cpu"}
        subprocess.run(
            [sys.executable, "-c", "import jax, jax.numpy"], env=variables, stdin=subprocess.DEVNULL, check=False
        )


def _is_complete(folder: str) -> bool:
    """A reboot may leave an incomplete environment. The mark must belong to the agent: a setup script may write one."""
    try:
        return os.stat(os.path.join(folder, "complete"), follow_symlinks=False).st_uid == os.geteuid()
    except FileNotFoundError:
        return False


def _mark_complete(folder: str) -> None:
    path = os.path.join(folder, "complete")
    if os.path.lexists(path):
        os.unlink(path)
    with open(path, "x", encoding="ascii"):
        pass
    os.chmod(path, 0o644)


def _find_uv() -> str:
    """The uv of the worker environment; on a local VM, that of the `gleaner` command."""
    own = os.path.join(sys.prefix, "bin", "uv")
    cache = os.environ.get("UV_CACHE_DIR", "")
    programs = [own] if os.path.exists(own) else sorted(glob.glob(f"{cache}/gleaner-uv-*/bin/uv"))
    uv = programs[-1] if programs else shutil.which("uv")
    if uv is None:
        raise SourceFailed("setup", f"Failed to make the environment: uv is neither in {own} nor in UV_CACHE_DIR")
    return os.path.realpath(uv)

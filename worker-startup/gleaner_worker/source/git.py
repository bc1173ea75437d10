"""One state of a git repository, fetched with depth 1 by the job user."""

import hashlib
import os
import re

from ..jobs.prepared import SourceFailed
from ..jobs.user import make_folder
from .commands import Commands
from .sealed import NotSealed, remove, seal, use

_FETCH_S = 120.0
_COMMIT = re.compile(r"^commit ([0-9a-f]{40})$", re.M)
# Arguments: the address, the reference. FETCH_HEAD serves branches, pull requests and commits, twice in a row too.
_SCRIPT = """
set -eu
[ -d repository ] || git init --quiet --bare repository
git --git-dir=repository fetch --quiet --depth=1 --no-tags --no-recurse-submodules --force -- "$1" "$2"
commit=$(git --git-dir=repository rev-parse --verify --quiet 'FETCH_HEAD^{commit}')
rm -rf tree
mkdir tree
git --git-dir=repository --work-tree=tree checkout --quiet --force FETCH_HEAD -- .
printf 'commit %s\\n' "$commit"
"""
_SETTINGS = {
    "core.hooksPath": "/dev/null",
    "credential.helper": "",
    "protocol.allow": "never",
    "protocol.https.allow": "always",
    "protocol.http.allow": "always",  # the control plane accepts http for this machine alone
    "http.followRedirects": "initial",
    "gc.auto": "0",
    "core.fsmonitor": "false",
    "core.symlinks": "true",
    "advice.detachedHead": "false",
}


def reference_of(source: dict) -> str:
    """The reference that a fetch asks for."""
    if "branch" in source:
        return f"refs/heads/{source['branch']}"
    return f"refs/pull/{int(source['pr'])}/head" if "pr" in source else str(source["commit"])


def check_out(source: dict, jobs: str, commands: Commands) -> tuple[str, str]:
    """Fetches the source. Returns the folder of its files and the commit.

    jobs: the agent's folder of jobs. Files of an earlier commit stay where they are, so its jobs go on.
    Raises SourceFailed with one line that names the repository and the reference.
    """
    repo, reference = source["repo"], reference_of(source)
    name = hashlib.sha256(repo.encode()).hexdigest()[:16]
    folder = os.path.join(jobs, f"git-{commands.user.uid}", name)
    if not os.path.isdir(folder):
        make_folder(folder, commands.user)
    said = commands.run(["bash", "-c", _SCRIPT, "git", repo, reference], folder, _FETCH_S, _environment())
    found = _COMMIT.search(said.output)
    if not said.is_success or not found:
        what = "git is not installed on this VM" if said.ended.exit_code == 127 else said.why
        raise SourceFailed("source", f"Failed to fetch {reference} of {repo}: {what}")
    trees = os.path.join(jobs, "trees", name)
    os.makedirs(trees, mode=0o755, exist_ok=True)
    tree = os.path.join(trees, found[1])
    if not os.path.isdir(tree):
        unfinished = os.path.join(trees, f".{found[1]}.{os.getpid()}")
        remove(unfinished)
        os.rename(os.path.join(folder, "tree"), unfinished)
        try:
            seal(unfinished, commands.user)
        except NotSealed as error:
            raise SourceFailed("source", f"Failed to fetch {reference} of {repo}: {error}") from error
        os.rename(unfinished, tree)
    return use(tree), found[1]


def _environment() -> dict[str, str]:
    settings = {
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_ASKPASS": "/bin/false",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "GIT_CONFIG_COUNT": str(len(_SETTINGS)),
    }
    for number, (key, value) in enumerate(_SETTINGS.items()):
        settings |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return settings

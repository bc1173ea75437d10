"""One commit of a git repository, fetched with depth 1 by the job user."""

import hashlib
import os
import re

from ..jobs.prepared import SourceFailed
from ..jobs.user import make_folder, remove
from .commands import Commands
from .private import Repositories
from .sealed import NotSealed, seal, use

_FETCH_S = 120.0
_MAX_FILE_BYTES = 10 << 30
_COMMIT = re.compile(r"^commit ([0-9a-f]{40})$")
# Arguments: the address and the reference. FETCH_HEAD works for branches, pull requests and commits, also in a second
# fetch. A killed fetch leaves locks. refs/kept/newest keeps the newest objects for the next fetch; gc removes others.
_SCRIPT = """
set -eu
export GIT_DIR=repository
rm -rf tree
if [ -d repository ]; then
  find repository -name '*.lock' -delete
  find repository -name 'tmp_*' -delete
else
  git init --quiet --bare repository
fi
git fetch --quiet --depth=1 --no-tags --no-auto-gc --no-recurse-submodules --force -- "$1" "$2"
commit=$(git rev-parse --verify --quiet 'FETCH_HEAD^{commit}')
mkdir tree
rm -f repository/index
git --work-tree=tree checkout --quiet --force FETCH_HEAD -- .
git update-ref refs/kept/newest "$commit"
git gc --quiet --auto || true
printf '\\ncommit %s\\n' "$commit"
"""
_SETTINGS = {
    "core.hooksPath": "/dev/null",
    "credential.helper": "",
    "protocol.allow": "never",
    "http.followRedirects": "initial",
    "fetch.unpackLimit": "1",  # one pack for each fetch, so that the number of packs starts gc
    "gc.autoPackLimit": "10",
    "gc.autoDetach": "false",
    "gc.pruneExpire": "now",
    "core.fsmonitor": "false",
    "core.symlinks": "true",
    "advice.detachedHead": "false",
}


def reference_of(source: dict) -> str:
    """The git reference of a source: of a branch, a pull request or a commit."""
    if "branch" in source:
        return f"refs/heads/{source['branch']}"
    return f"refs/pull/{int(source['pr'])}/head" if "pr" in source else str(source["commit"])


def check_out(source: dict, jobs: str, commands: Commands, repositories: Repositories) -> tuple[str, str]:
    """Fetches the source. Returns the folder of its files and the commit.

    jobs: the agent's folder of jobs. Files of an earlier commit stay, so its jobs can continue.
    Raises SourceFailed with one line that names the repository and the reference.
    """
    repo, reference = source["repo"], reference_of(source)
    name = hashlib.sha256(repo.encode()).hexdigest()[:16]
    folder = os.path.join(jobs, f"git-{commands.user.uid}", name)
    if not os.path.isdir(folder):
        make_folder(folder, commands.user)
    use(folder)
    with repositories.reach(repo, commands.check) as reached:
        argv = ["bash", "-c", _SCRIPT, "git", reached.address, reference]
        result = commands.run(argv, folder, _FETCH_S, _environment(reached.address), file_bytes=_MAX_FILE_BYTES)
    match = _COMMIT.match(result.last_line)
    if not result.is_success or not match:
        what = reached.refusals[-1] if reached.refusals else result.why.replace(reached.address, repo)
        if result.ended.exit_code == 127:
            what = "git is not installed on this VM; use an image with git"
        raise SourceFailed("source", f"Failed to fetch {reference} of {repo}: {what}")
    trees = os.path.join(jobs, "trees")
    os.makedirs(trees, mode=0o755, exist_ok=True)
    tree = os.path.join(trees, f"{name}-{match[1]}")
    if not os.path.isdir(tree):
        unfinished = os.path.join(trees, f".{name}-{match[1]}")
        remove(unfinished)
        os.rename(os.path.join(folder, "tree"), unfinished)
        try:
            seal(unfinished, commands.user)
        except NotSealed as error:
            raise SourceFailed("source", f"Failed to fetch {reference} of {repo}: {error}") from error
        os.rename(unfinished, tree)
    return use(tree), match[1]


def _environment(repo: str) -> dict[str, str]:
    # The control plane accepts http only for this machine. A redirect of an https address cannot change the transport.
    transport = "http" if repo.startswith("http://") else "https"
    settings = {
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_ASKPASS": "/bin/false",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "GIT_CONFIG_COUNT": str(len(_SETTINGS) + 1),
    }
    for number, (key, value) in enumerate({**_SETTINGS, f"protocol.{transport}.allow": "always"}.items()):
        settings |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return settings

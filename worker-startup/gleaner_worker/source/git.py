"""One commit of a git repository, fetched with depth 1 by the job user."""

import hashlib
import os
import re
import uuid

from ..jobs.prepared_code import SourceFailed
from ..jobs.user import make_folder, remove
from .commands import Commands
from .private import Repositories
from .sealed import seal, use

_FETCH_S = 120.0
_MAX_FILES = 100_000
_MAX_BYTES = 20 << 30  # of all files
_MAX_PACK_BYTES = 10 << 30
_MEMORY_BYTES = 8 << 30
_COMMIT = re.compile(r"^commit ([0-9a-f]{40})$")
# Arguments: the most files and bytes, the address and the reference. FETCH_HEAD works for branches, pull requests and
# commits. A tree of some kilobytes may name billions of files, so the list ends at the limit. `git checkout` leaves out
# a file whose path is unsafe; read-tree refuses it.
_SCRIPT = """
set -eu -o pipefail
export GIT_DIR=repository
git init --quiet --bare --template= repository
git fetch --quiet --depth=1 --no-tags --no-auto-gc --no-recurse-submodules -- "$3" "$4"
commit=$(git rev-parse --verify --quiet 'FETCH_HEAD^{commit}')
git ls-tree -r -l "$commit" | awk -v files="$1" -v bytes="$2" '
  { count += 1; size += $4 }
  count > files || size > bytes { print "it has more than " files " files or " bytes " bytes"; exit over = 1 }
  END { exit over }'
mkdir tree
git read-tree "$commit"
git --work-tree=tree checkout-index --quiet --all --force
printf '\\ncommit %s\\n' "$commit"
"""
_SETTINGS = {
    "core.hooksPath": "/dev/null",
    "credential.helper": "",
    "protocol.allow": "never",
    "http.followRedirects": "initial",
    "core.attributesFile": "/dev/null",
    "core.fsmonitor": "false",
    "submodule.recurse": "false",
    "core.symlinks": "true",
    "advice.detachedHead": "false",
}


def reference_of(source: dict) -> str:
    """The git reference of a source: of a branch, a pull request or a commit."""
    if "branch" in source:
        return f"refs/heads/{source['branch']}"
    return f"refs/pull/{int(source['pr'])}/head" if "pr" in source else str(source["commit"])


def check_out(source: dict, jobs: str, commands: Commands, repositories: Repositories) -> tuple[str, str]:
    """Fetches the source into a new repository. Returns the folder of its files and the commit.

    jobs: the agent's folder of jobs. Files of an earlier commit stay, so its jobs can continue.
    Raises SourceFailed with one line that names the repository and the reference.
    """
    repo, reference = source["repo"], reference_of(source)
    folder = make_folder(os.path.join(jobs, f"fetch-{uuid.uuid4().hex}"), commands.user)
    try:
        commit = _fetch(repo, reference, folder, commands, repositories)
        trees = os.path.join(jobs, "trees")
        os.makedirs(trees, mode=0o755, exist_ok=True)
        tree = os.path.join(trees, f"{hashlib.sha256(repo.encode()).hexdigest()[:16]}-{commit}")
        if not os.path.isdir(tree):
            files = os.path.join(folder, "tree")
            seal(files, commands.user)
            os.rename(files, tree)
        return use(tree), commit
    finally:
        remove(folder)


def _fetch(repo: str, reference: str, folder: str, commands: Commands, repositories: Repositories) -> str:
    """Checks out into `tree` below the folder, and returns the commit."""
    with repositories.reach(repo, commands.check) as reached:
        argv = ["bash", "-c", _SCRIPT, "git", str(_MAX_FILES), str(_MAX_BYTES), reached.address, reference]
        environment = _environment(reached.address)
        result = commands.run(
            argv, folder, _FETCH_S, environment, file_bytes=_MAX_PACK_BYTES, memory_bytes=_MEMORY_BYTES
        )
    match = _COMMIT.match(result.last_line)
    if result.is_success and match:
        return match[1]
    what = reached.refusals[-1] if reached.refusals else result.why.replace(reached.address, repo)
    if result.ended.exit_code == 127:
        what = "git is not installed on this VM; use an image with git"
    raise SourceFailed("source", f"Failed to fetch {reference} of {repo}: {what}")


def _environment(repo: str) -> dict[str, str]:
    # The control plane accepts http only for this machine. A redirect of an https address cannot change the transport.
    transport = "http" if repo.startswith("http://") else "https"
    settings = {
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_ASKPASS": "/bin/false",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "GIT_CONFIG_COUNT": str(len(_SETTINGS) + 1),
    }
    for number, (key, value) in enumerate({**_SETTINGS, f"protocol.{transport}.allow": "always"}.items()):
        settings |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return settings

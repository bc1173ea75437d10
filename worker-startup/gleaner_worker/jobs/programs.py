"""Programs that the jobs of this host compiled, kept by the agent for the next attempt of the same code.

A compiled program is code. So an attempt gets only the programs of attempts that ran the same code with the same
inputs, and reads copies that belong to the agent.
"""

import hashlib
import json
import os
import re

from ..storage.untrusted_files import open_untrusted
from .prepared_code import PreparedCode
from .user import remove

_MAX_FILES = 500
_MAX_BYTES = 2 << 30
_PIECE_BYTES = 1 << 20
_KEPT = 8  # codes, of those used last
_NAME = re.compile(r"[A-Za-z0-9_.<>-]{1,240}-cache")
# The parts of an order that a process sees, without its name and its limits.
_INPUTS = ("code", "args", "command", "challenge_number", "environment", "env", "secrets", "inputs")


class Programs:
    """The programs of one code. parent: folder of the agent for all of them."""

    def __init__(self, parent: str, order: dict, prepared: PreparedCode):
        inputs = [{name: order.get(name) for name in _INPUTS}, prepared.ran]
        digest = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()
        self._parent, self._folder = parent, os.path.join(parent, digest)

    def lend(self, folder: str) -> None:
        """Links the kept programs into the new folder of an attempt, which may read them and not change them."""
        if not os.path.isdir(self._folder):
            return
        os.utime(self._folder)
        for name in filter(_NAME.fullmatch, os.listdir(self._folder)):
            os.link(os.path.join(self._folder, name), os.path.join(folder, name))

    def keep(self, folder: str, uid: int) -> None:
        """Copies the programs that the user of an ended attempt wrote into this folder.

        The copies do not change, although an accomplice may hold the files themselves open.
        """
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        kept = {entry.name: entry.stat().st_size for entry in os.scandir(self._folder)}
        parent = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            for name in filter(_NAME.fullmatch, os.listdir(parent)):
                left_bytes = _MAX_BYTES - sum(kept.values())
                if name not in kept and len(kept) < _MAX_FILES and (size := self._copy(name, uid, parent, left_bytes)):
                    kept[name] = size
        finally:
            os.close(parent)
        folders = sorted(os.scandir(self._parent), key=lambda entry: entry.stat(follow_symlinks=False).st_mtime)
        remove(*(entry.path for entry in folders[:-_KEPT]))

    def _copy(self, name: str, uid: int, parent: int, left_bytes: int) -> int:
        """Returns the size of the copy; 0 for a file that is too large, or that is no regular file of the user."""
        unfinished = os.path.join(self._folder, ".unfinished")
        try:
            with open_untrusted(name, uid, parent) as file, open(unfinished, "wb") as copy:
                size = os.fstat(file.fileno()).st_size
                if size > left_bytes:
                    return 0
                while (left := size - copy.tell()) and (piece := file.read(min(left, _PIECE_BYTES))):
                    copy.write(piece)
        except (FileNotFoundError, ValueError):
            return 0
        os.chmod(unfinished, 0o644)
        os.rename(unfinished, os.path.join(self._folder, name))
        return size

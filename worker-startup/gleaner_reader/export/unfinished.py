"""A folder that an export fills in steps. An export that was interrupted goes on with the same options."""

import hashlib
import json
import os
import shutil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..run.run import Run

_PROGRESS, _EXPORT = "progress.json", "export.json"


class Unfinished:
    """The folder `OUT.unfinished`, which becomes `OUT` at the end.

    done: what an earlier export with the same settings has written; empty for a new export. size_bytes: of the whole
    export, at least. Raises FileExistsError if `OUT` exists, and OSError if its disk has too little room.
    """

    def __init__(self, out_dir: str, settings: dict[str, Any], size_bytes: int):
        self._out_dir, self._settings = out_dir.rstrip("/"), settings
        if os.path.exists(out_dir):
            raise FileExistsError(f"Failed to export to {out_dir}: it exists; choose another folder, or delete it")
        self.folder = f"{self._out_dir}.unfinished"
        self.done: dict[str, Any] = self._read()
        if not self.done:
            shutil.rmtree(self.folder, ignore_errors=True)
            os.makedirs(self.folder)
        written = (os.path.join(folder, name) for folder, _, names in os.walk(self.folder) for name in names)
        missing = size_bytes - sum(os.stat(path).st_blocks * 512 for path in written)
        free = shutil.disk_usage(self.folder).free
        if missing > free:
            if not self.done:
                os.rmdir(self.folder)
            raise OSError(
                f"{out_dir} needs {missing / 1e6:,.1f} MB more, and its disk has {free / 1e6:,.1f} MB free; "
                "choose a folder on another disk"
            )

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def keep(self, **done: Any) -> None:
        """Records what is written. Call after the files are on the disk."""
        self.done = done
        self._write(_PROGRESS, {"settings": self._settings, "done": done})

    def finish(self, export: dict[str, Any]) -> None:
        """Writes `export.json`, and gives the folder its name."""
        self._write(_EXPORT, export)
        if os.path.exists(self.path(_PROGRESS)):
            os.unlink(self.path(_PROGRESS))
        os.rename(self.folder, self._out_dir)

    def _read(self) -> dict[str, Any]:
        try:
            with open(self.path(_PROGRESS), encoding="utf-8") as file:
                found = json.load(file)
            return found["done"] if found["settings"] == self._settings else {}
        except (OSError, ValueError, KeyError, TypeError):
            return {}

    def _write(self, name: str, value: dict[str, Any]) -> None:
        with open(self.path(f"{name}.new"), "w", encoding="utf-8") as file:
            json.dump(value, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        os.replace(self.path(f"{name}.new"), self.path(name))


def bytes_of(run: "Run", dtype: str, *sites: str, columns: int = 0) -> int:
    """Bytes of the rows of one layer of each site, and of their columns of int64."""
    widths = sum(run.widths[site] for site in sites)
    return run.num_rows * (widths * (4 if dtype == "float32" else 2) + 8 * columns)


def settings_of(run: "Run", kind: str, **options: Any) -> dict[str, Any]:
    """All that decides the content of an export, as values of JSON."""
    shards = "\n".join(f"{shard.url} {shard.size_bytes}" for shard in run.shards)
    digest = hashlib.sha256(shards.encode()).hexdigest()
    return {"kind": kind, "run": run.url, "shards": digest, **options}

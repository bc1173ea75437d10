"""Arrow files of a bounded size, in a folder that `datasets.load_from_disk` opens."""

import hashlib
import json
import os
from typing import Any

from ..format.errors import MissingPackage
from .unfinished import Unfinished


class ArrowFolder:
    """Writes Arrow files, and the two JSON files that turn a folder into a dataset.

    format_type: of the rows that the dataset gives; None for values of Python. rows: in the whole files, also those of
    an interrupted export. rows_in_file: in the file that is not whole yet.
    """

    def __init__(self, datasets, features, unfinished: Unfinished, format_type: str | None = None):
        self._datasets, self._features, self._unfinished = datasets, features, unfinished
        self._format_type = format_type
        self._files, self.rows = unfinished.done.get("files", 0), unfinished.done.get("rows", 0)
        self._writer = None
        self.rows_in_file = 0

    def write(self, columns: dict[str, Any], count: int) -> None:
        """columns: `count` values each."""
        if count == 0 and (self._writer is not None or self._files):
            return
        if self._writer is None:
            path = self._unfinished.path(_part(self._files))
            self._writer = self._datasets.arrow_writer.ArrowWriter(features=self._features, path=path)
        if count:
            self._writer.write_batch(columns)
        self.rows_in_file += count

    def end_file(self) -> None:
        """Ends the file, and records that the export has come so far."""
        if self._writer is not None:
            self._writer.finalize()
            self._writer = None
            self._files, self.rows, self.rows_in_file = self._files + 1, self.rows + self.rows_in_file, 0
            self._unfinished.keep(files=self._files, rows=self.rows)

    def finish(self, settings: dict[str, Any]) -> int:
        """settings: the options that determine the content, a key of `datasets`' cache. Returns the number of rows."""
        self.end_file()
        names = [f"data-{number:05d}-of-{self._files:05d}.arrow" for number in range(self._files)]
        for number, name in enumerate(names):
            os.rename(self._unfinished.path(_part(number)), self._unfinished.path(name))
        self._datasets.DatasetInfo(features=self._features).write_to_directory(self._unfinished.folder)
        state = {
            "_data_files": [{"filename": name} for name in names],
            "_fingerprint": hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:16],
            "_format_columns": None,
            "_format_kwargs": {},
            "_format_type": self._format_type,
            "_output_all_columns": False,
            "_split": None,
        }
        with open(self._unfinished.path("state.json"), "w", encoding="ascii") as file:
            json.dump(state, file, indent=2)
        return self.rows


def _part(number: int) -> str:
    return f"part-{number:05d}.arrow"


def import_datasets(reader: str):
    """reader: what reads the files. Raises MissingPackage."""
    try:
        import datasets
        import datasets.arrow_writer

        return datasets
    except ImportError:
        raise MissingPackage(f"export to {reader}", "datasets") from None

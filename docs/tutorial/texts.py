"""Cuts files of this repository into pieces of about 400 characters: texts.jsonl in the folder that the command names.

As many pieces of each kind, chosen from all files of the kind, in an order that is the same each time. The rest of a
line with more than 400 characters is left out.
"""

import json
import random
import sys
from pathlib import Path

KINDS = {"prose": ("docs", "*.md"), "python": ("worker-startup", "*.py"), "typescript": ("shared", "*.ts")}
CHARACTERS = 400


def pieces(path):
    piece = ""
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if piece and len(piece) + len(line) > CHARACTERS:
            yield piece[:CHARACTERS]
            piece = ""
        piece += line
    yield piece[:CHARACTERS]


folder, most = Path(sys.argv[1]), int(sys.argv[2])
folder.mkdir(exist_ok=True)
choose, records = random.Random(0), []
for label, (root, pattern) in KINDS.items():
    found = [piece for path in sorted(Path(root).rglob(pattern)) for piece in pieces(path) if len(piece) > 100]
    records += [{"label": label, "text": piece} for piece in choose.sample(found, min(most, len(found)))]
    print(f"{label}: {len(found):,} pieces")
choose.shuffle(records)
(folder / "texts.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")

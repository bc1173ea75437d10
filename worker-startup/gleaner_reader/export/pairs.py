"""An export of pairs of a text and a vector, which activation oracles and natural-language autoencoders train on."""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ..format.errors import MissingPackage
from ..format.files import open_folder
from ..run.answers import added
from ..run.pieces import Piece, pieces
from .parts import PartsExport, as_dtype, check_parts, export_parts, part_name, plan_export
from .unfinished import Unfinished, bytes_of, settings_of

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from ..run.run import Run

_MAX_TOKENIZER_BYTES = 1 << 28
_TOKENIZER = "tokenizer.json"
_FILES = (_TOKENIZER, "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")


def to_pairs(
    run: "Run",
    out_dir: str,
    layer: int,
    site: str | None = None,
    *,
    tokenizer: "Tokenizer",
    window: int = 64,
    dtype: str = "float32",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> PartsExport:
    """Writes the vectors of one layer in parts, and beside each part a line of JSON for each vector.

    `part-00001.safetensors` has `activations` [rows, d_model], and line N of `part-00001.jsonl` is of row N: `text`,
    `token`, `token_id`, `position`, `stream`, `sample` and `vector`, which has the `file` and the `row`. The text is
    that of the last `window` tokens up to the token of the row, which are what the vector knows; for a pool of tokens,
    which has no token and no position, it is the whole sample. A run with one row for each span has `span` too, a run
    with a mask `mask`, and a run that keeps fields `kept`.

    Args:
        tokenizer: that of the run's model, as `tokenizer_of` returns it.
        window: the most tokens of a text.
        run, out_dir, layer, site, dtype, progress: as `to_safetensors` takes them.

    Raises:
        FileExistsError, ValueError: as `to_safetensors`; ValueError also for a run without token ids.

    >>> export = to_pairs(run, "pairs", layer=12, tokenizer=tokenizer_of(run, "my-model"))
    >>> sorted(json.loads(open("pairs/part-00001.jsonl").readline()))
    ['kept', 'position', 'sample', 'stream', 'text', 'token', 'token_id', 'vector']
    """
    site = check_parts(run, layer, site, dtype)
    if window < 1:
        raise ValueError(f"window is {window}; set it to at least 1")
    if run.index(run.first).token_ids is None:
        raise ValueError(f"{run.url} has no token ids, so a row has no text")
    options = {"dtype": dtype, "window": window}
    settings = settings_of(run, "pairs", site=site, layer=layer, **options)
    unfinished = Unfinished(out_dir, settings, bytes_of(run, dtype, site))
    lines: list[dict] = []

    def tensors() -> Iterator[tuple[dict[str, np.ndarray], dict]]:
        for piece in pieces(run, site, layer, unfinished.done.get("rows", 0)):
            lines.extend(_lines(piece, tokenizer, window))
            yield {"activations": as_dtype(piece.rows, dtype, f"{site}.{layer}")}, {"rows": piece.end}

    def write_lines(part: int) -> None:
        name = part_name(part)
        path = unfinished.path(name.replace(".safetensors", ".jsonl"))
        with open(f"{path}.new", "w", encoding="ascii") as file:
            for row, line in enumerate(lines):
                file.write(json.dumps(line | {"vector": {"file": name, "row": row}}) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(f"{path}.new", path)
        lines.clear()

    planned = plan_export(run, site, layer, dtype, texts="part-*.jsonl")
    return export_parts(run, unfinished, tensors(), planned, progress, write_lines)


def open_tokenizer(
    where: str, revision: str | None = None, sha256: str | None = None, digests: Mapping[str, str] | None = None
) -> "Tokenizer":
    """The tokenizer of a model. The files beside tokenizer.json add their tokens, as in the run.

    Args:
        where: a tokenizer.json, a folder or gs:// prefix with one, or a model of the hub.
        revision: of a model of the hub: a branch, a tag or a commit.
        sha256: of the tokenizer.json that is wanted; None for any.
        digests: the SHA-256 of each file of the model by name, as the run recorded them; None for any.

    Raises:
        OSError: there is no such file.
        ValueError: the file is no tokenizer, or another one.
        MissingPackage: tokenizers or huggingface_hub is not installed.

    >>> open_tokenizer("my-model").decode([1, 2])
    't1 t2'
    """
    try:
        from tokenizers import Tokenizer

        from ..format.added_tokens import add_tokens
    except ImportError:
        raise MissingPackage("export pairs", "tokenizers") from None
    asked = {_TOKENIZER: sha256} if digests is None else {name: digests.get(name) for name in _FILES}
    files = _files_of_tokenizer(where, revision)
    for name, digest in asked.items():
        if digest is not None and (actual := hashlib.sha256(files.get(name, b"")).hexdigest()) != digest:
            raise ValueError(f"The {name} of {where} has SHA-256 {actual}, and the run was made with {digest}")
    others = [name for name in files if name != _TOKENIZER and (digests is None or name in digests)]
    try:
        tokenizer = Tokenizer.from_str(files[_TOKENIZER].decode())
        add_tokens(tokenizer, {name: json.loads(files[name]) for name in others})
    except Exception as error:  # tokenizers raises Exception itself
        raise ValueError(f"Failed to read the {_TOKENIZER} of {where}: {str(error)[:200]}") from error
    return tokenizer


def tokenizer_of(run: "Run", where: str | None = None) -> "Tokenizer":
    """The tokenizer of the run's model, which must have the digests that the run recorded.

    Args:
        run: an open run.
        where: another place that has the tokenizer; None for the model that the run names.

    Raises:
        OSError, ValueError, MissingPackage: as `open_tokenizer`; ValueError also for a run that names no model.

    >>> tokenizer_of(run, "my-model").decode([1, 2])
    't1 t2'
    """
    model = run.model or {}
    place = where or model.get("name")
    if not isinstance(place, str):
        raise ValueError(f"{run.url} has no model.json, which names the model: pass its tokenizer")
    if where is None:
        place = _in_local_cloud(run.url, place)
    files = model.get("files")
    digests = files if isinstance(files, dict) else None
    return open_tokenizer(place, model.get("revision") if where is None else None, digests=digests)


def _in_local_cloud(run_url: str, place: str) -> str:
    """The folder of gs://BUCKET/NAME where the run is in the folder of its bucket, as a local cloud has it."""
    bucket, _, name = place.removeprefix("gs://").partition("/")
    root, found, _ = run_url.rpartition(f"/{bucket}/activations/")
    folder = os.path.join(root, bucket, name)
    return folder if place.startswith("gs://") and found and os.path.isdir(folder) else place


def _files_of_tokenizer(where: str, revision: str | None) -> dict[str, bytes]:
    """The content of tokenizer.json, and of the files beside it that have tokens."""
    if os.path.isfile(where):
        folder, first = os.path.split(os.path.abspath(where))
    elif where.startswith("gs://") or os.path.isdir(where):
        folder, first = where, _TOKENIZER
    else:
        folder, first = _from_hub(where, revision)
    there, found = open_folder(folder).files(), {}
    for name in _FILES:
        file = there.get(first if name == _TOKENIZER else name)
        if file is None and name == _TOKENIZER:
            raise FileNotFoundError(f"{where} has no {_TOKENIZER}")
        if file is None:
            continue
        if file.size > _MAX_TOKENIZER_BYTES:
            raise ValueError(f"{file.url} has {file.size} bytes; a tokenizer has at most {_MAX_TOKENIZER_BYTES}")
        found[name] = bytes(file.read(0, file.size))
    return found


def _from_hub(model: str, revision: str | None) -> tuple[str, str]:
    """The folder with the files of the tokenizer of a hub's model, and the name of its tokenizer.json."""
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import EntryNotFoundError
    except ImportError:
        raise MissingPackage(f"download the tokenizer of {model}", "huggingface_hub") from None
    path = hf_hub_download(model, _TOKENIZER, revision=revision)
    for name in _FILES[1:]:
        with contextlib.suppress(EntryNotFoundError):
            hf_hub_download(model, name, revision=revision)
    return os.path.split(path)


def _lines(piece: Piece, tokenizer: "Tokenizer", window: int) -> Iterator[dict]:
    index = piece.index
    assert index.token_ids is not None  # to_pairs has looked
    token_ids: np.ndarray = index.token_ids
    rows = np.arange(piece.begin_in_shard, piece.begin_in_shard + len(piece.rows.stored))
    samples = np.searchsorted(index.row_offsets, rows, "right") - 1
    begins, ends = index.sample_offsets[samples], index.sample_offsets[samples + 1]
    if index.positions is not None:
        ends = begins + index.positions[rows] + 1
        begins = np.maximum(begins, ends - window)

    def texts(begins: np.ndarray, ends: np.ndarray) -> list[str]:
        tokens = [token_ids[begin:end].tolist() for begin, end in zip(begins, ends, strict=True)]
        return tokenizer.decode_batch(tokens, skip_special_tokens=False)

    facts = {"text": texts(begins, ends)}
    if "token_id" in piece.columns:
        facts["token"] = list(map(added, texts(begins, ends - 1), facts["text"], texts(ends - 1, ends)))
    names = {"token_id": "token_id", "position": "position", "stream": "stream", "sample_idx": "sample"}
    names |= {"span_idx": "span", "mask": "mask"}
    facts |= {names[name]: piece.columns[name].tolist() for name in names if name in piece.columns}
    if index.kept:
        facts["kept"] = [index.kept[sample] for sample in samples.tolist()]
    for values in zip(*facts.values(), strict=True):
        yield dict(zip(facts, values, strict=True))

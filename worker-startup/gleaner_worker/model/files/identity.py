"""The files that a model is made of, and the hashes that show whether two models are the same."""

import hashlib
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from ...failures import Failure
from ...limited.process import call
from ...model_files import CONFIG, GENERATION, INDEX, ONE_FILE, TOKENIZER, is_small_file, is_weight_file, refused_files
from ...spec.spec import ReductionSpec
from .weight_files import WeightFile

_PICKLED = re.compile(r".*\.(?:bin|pt|pth|ckpt)(?:\.index\.json)?")
_PICKLED_MODEL = re.compile(r"(?:pytorch_model|consolidated)[^/]*\.(?:bin|pt|pth)(?:\.index\.json)?")
_FACTS = ("name", "revision", "fingerprint", "weights_sha256", "tokenizer_sha256", "files", "unknown_keys")
READ_FILES = "gleaner_worker.model.read_files"  # in a process with limits
_OLD_TOKENIZERS = ("tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "sentencepiece.bpe.model")


@dataclass(frozen=True)
class Identity:
    """Which model it is, with the reductions of a run.

    files: the digest of each file that the results depend on, by name: its sha256, or
    `crc32c:CHECKSUM:SIZE` of weights in a bucket, as the bucket's listing has them."""

    name: str  # as in the spec
    revision: str | None  # the commit of a model from the hub
    files: dict[str, str]  # those of a reduction as NAME/FILE
    reductions: dict[str, str | None] = field(default_factory=dict)  # the commits of those from a hub, by name

    @property
    def weights_sha256(self) -> str | None:
        """The sha256 of the lines "NAME DIGEST" of the safetensors files, sorted by name; None without weights."""
        return _sha256_of_lines(self.files, filter(is_weight_file, self.files))

    @property
    def tokenizer_sha256(self) -> str:
        return self.files[TOKENIZER]

    @property
    def fingerprint(self) -> str | None:
        """16 hex digits over the digests of all files; None without weights."""
        digest = _sha256_of_lines(self.files, self.files) if self.weights_sha256 else None
        return digest and digest[:16]


@dataclass(frozen=True)
class ModelFiles(Identity):
    """A model that this machine can read."""

    folder: str = ""  # of its small files
    weights: Sequence[WeightFile] = ()
    is_kept: bool = False  # a copy of an earlier request, which the disk may have damaged
    reduction_files: Sequence["ReductionFiles"] = ()

    @property
    def facts(self) -> dict:
        """What model.json, and metadata.json of a stream, say about the model."""
        return {key: getattr(self, key) for key in (*_FACTS, *(["reductions"] if self.reductions else []))}

    def stale_copies(self, lock: Identity) -> list[str]:
        """The folders of kept copies that have other files than the lock."""
        wrong = {name for name in {**lock.files, **self.files} if lock.files.get(name) != self.files.get(name)}
        copies = {f"{each.entry.name}/": each for each in self.reduction_files}
        stale = [
            each.folder
            for prefix, each in copies.items()
            if each.is_kept and any(name.startswith(prefix) for name in wrong)
        ]
        is_own = any(not name.startswith(tuple(copies)) for name in wrong)
        return [*stale, *([self.folder] if self.is_kept and is_own else [])]

    @property
    def unknown_keys(self) -> list[str]:
        """The keys of config.json that neither Gleaner nor transformers knows."""
        return call(f"{READ_FILES}:unknown_keys_of", {"folder": self.folder, "model": self.name})["keys"]


@dataclass(frozen=True)
class Place:
    """Where the files of one layer are. layout: of an autoencoder; None for a matrix. config, tensors: names below
    `weights`; an autoencoder may have no config."""

    layer: int
    layout: str | None
    path: str
    config: str | None
    tensors: str


@dataclass(frozen=True)
class ReductionFiles:
    """The files of one entry, of all its layers."""

    entry: ReductionSpec
    places: tuple[Place, ...]
    folder: str  # of the configs
    tensors: dict[str, WeightFile]  # by name below `weights`
    revision: str | None  # the commit of a repository of a hub
    digests: dict[str, str]  # of every file that the results depend on, by name; empty without weights
    is_kept: bool = False  # a copy of an earlier request

    @property
    def facts(self) -> dict:
        """What the header of a shard says about the files."""
        digest = (_sha256_of_lines(self.digests, self.digests) or "")[:16]
        return {"weights": self.entry.weights, "revision": self.revision, "digest": digest}


def choose_files(
    names: Collection[str], folder: str, model: str, weights: bool, tokenizer: bool = True, generates: bool = False
) -> list[str]:
    """The files of `model` that are used, among `names`, in order.

    generates: with the file that says how the model generates tokens. Other runs never depended on it.

    With `weights` and an index among the names, `folder` must hold the index, which lists the files of weights. Raises
    Failure("model") with everything that is missing and the remedy. Without `tokenizer`, it may be missing.
    """
    problems = [] if CONFIG in names else [f"it has no {CONFIG}"]
    if tokenizer and TOKENIZER not in names:
        problems.append(f"it has no {TOKENIZER}{_how_to_convert(names, model)}")
    problems += refused_files(names)
    chosen = [name for name in names if is_small_file(name) and (generates or name != GENERATION)]
    if weights and ONE_FILE in names:  # first, as in transformers, which reads no index beside it
        chosen.append(ONE_FILE)
    elif weights and INDEX in names:
        listed = call(f"{READ_FILES}:files_of_index", {"folder": folder, "model": model})["files"]
        absent = [name for name in listed if name not in names]
        problems += [f"it has no {name}, which {INDEX} names" for name in absent]
        chosen += [INDEX, *listed]
    elif weights or any(map(_PICKLED_MODEL.fullmatch, names)) and not any(map(is_weight_file, names)):
        problems.append(_no_weights(names, model))
    if problems:
        raise Failure("model", f"Failed to use the model {model}: {'; '.join(problems)}")
    return sorted(chosen)


def _how_to_convert(names: Collection[str], model: str) -> str:
    old = next((name for name in _OLD_TOKENIZERS if name in names), None)
    if not old:
        return f": put the tokenizer's own {TOKENIZER} beside {CONFIG}"
    return (
        f", only {old}: make it once with transformers, AutoTokenizer.from_pretrained({model!r})"
        f".save_pretrained(FOLDER), and put {TOKENIZER} of that folder beside {CONFIG}"
    )


def _no_weights(names: Collection[str], model: str) -> str:
    if pickled := sorted(name for name in names if _PICKLED.fullmatch(name)):
        return (
            f"it has pickled weights only ({pickled[0]}), which are never read, because a pickle can run code: "
            "save them as safetensors with transformers, "
            f"AutoModelForCausalLM.from_pretrained({model!r}).save_pretrained(FOLDER)"
        )
    other = sorted(name for name in names if is_weight_file(name))
    missing = f" that lists {other[0]}; put the index" if other else "; put the safetensors files"
    return f"it has no {ONE_FILE} and no {INDEX}{missing} beside {CONFIG}"


def _sha256_of_lines(files: dict[str, str], names: Iterable[str]) -> str | None:
    lines = "".join(f"{name} {files[name]}\n" for name in sorted(names))
    return hashlib.sha256(lines.encode()).hexdigest() if lines else None

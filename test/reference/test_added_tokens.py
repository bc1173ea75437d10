"""The tokens that the files beside tokenizer.json add, against transformers: the cases of the gate, and drawn files."""

import json
import os
import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "worker", "support"))
transformers = pytest.importorskip("transformers")
from tokenizers import Tokenizer  # noqa: E402

from added_token_cases import CASES, IDS, TEXT, write_case  # noqa: E402
from gleaner_reader.format.added_tokens import ADDED, CONFIG, SPECIAL, add_tokens  # noqa: E402

TEXTS = (TEXT, "<v>a  <w> <u><s>", "b<t> <w>c<v>", "<u>")
NAMES = ("<t>", "<u>", "<v>", "<w>", "<s>")
FLAGS = ("lstrip", "rstrip", "normalized", "single_word", "special")


def of_transformers(folder):
    return transformers.PreTrainedTokenizerFast.from_pretrained(folder)


def ours(folder):
    tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    paths = [Path(folder, name) for name in (CONFIG, SPECIAL, ADDED)]
    add_tokens(tokenizer, {path.name: json.loads(path.read_text()) for path in paths if path.exists()})
    return tokenizer


@pytest.mark.parametrize("name", CASES)
def test_the_cases_have_the_ids_of_transformers(tmp_path, name):
    assert of_transformers(write_case(tmp_path, name))(TEXT)["input_ids"] == IDS[name]


@pytest.mark.parametrize("seed", range(300))
def test_drawn_files_add_the_tokens_of_transformers(tmp_path, seed):
    rng = random.Random(seed)

    def flags():
        return {flag: rng.random() < 0.35 for flag in FLAGS}

    def token(is_of_map=False):
        name = rng.choice(NAMES)
        if rng.random() < 0.6:
            return name
        drawn = flags() | {"content": name}
        return {key: value for key, value in drawn.items() if key != "special"} if is_of_map else drawn | TYPE

    def some(*values):
        return [value for value in values if rng.random() < 0.4]

    config = {key: token() for key in some("bos_token", "eos_token", "pad_token", "unk_token", "image_token")}
    config |= {key: [token(), token()] for key in some("additional_special_tokens")}
    config |= {key: rng.choice([{"a_token": "<v>"}, ["<w>"]]) for key in some("extra_special_tokens")}
    config |= {key: rng.random() < 0.5 for key in some("split_special_tokens")}
    if rng.random() < 0.5:
        ids = rng.sample(range(27, 34), 3)
        config["added_tokens_decoder"] = {n: flags() | {"content": rng.choice(NAMES)} for n in ids}
    files = {CONFIG: config}
    files |= {name: {key: token(True) for key in some("pad_token", "mask_token")} for name in some(SPECIAL)}
    files |= {name: {text: 30 + n for n, text in enumerate(rng.sample(NAMES, 3))} for name in some(ADDED)}
    folder = write_case(tmp_path, "no other file")
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    theirs, own = of_transformers(folder), ours(folder)
    for text in TEXTS:
        assert own.encode(text).ids == theirs(text)["input_ids"], (text, files)


TYPE = {"__type": "AddedToken"}

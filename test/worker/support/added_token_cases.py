"""Files beside tokenizer.json, and the token ids of transformers for one text with each (test/reference compares them).

tokenizer.json has a token of its own for each letter (a is 0), for the blank, and the special token <s>, 27.
"""

import json

TEXT = "a<s> b <t>c <u> d"
_LETTERS = {chr(97 + n): n for n in range(26)}
_OTHERS = {letter: 28 + n for n, letter in enumerate("<>")}
_TOKEN = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": True}
_OWN = {"id": 27, "content": "<s>", **_TOKEN}
_MODEL = {"type": "BPE", "vocab": _LETTERS | {" ": 26, "<s>": 27} | _OTHERS, "merges": [], "unk_token": None}


def _decoder(**tokens):
    return {"added_tokens_decoder": {n: _TOKEN | token for n, token in tokens.items()}}


_T = {"content": "<t>"}
CASES = {
    "no other file": {},
    "a token of the config alone": {"tokenizer_config.json": _decoder(**{"30": _T})},
    "the next free id, whatever the config states": {"tokenizer_config.json": _decoder(**{"99": _T})},
    "two tokens in the order of their ids": {
        "tokenizer_config.json": _decoder(**{"31": _T, "30": {"content": "<u>", "special": False}})
    },
    "other flags of a token that is there": {
        "tokenizer_config.json": _decoder(**{"27": {"content": "<s>", "rstrip": True}})
    },
    "a token that takes the blanks around it": {
        "tokenizer_config.json": _decoder(**{"30": {"content": "<u>", "lstrip": True, "rstrip": True}})
    },
    "a token with a name": {"tokenizer_config.json": {"pad_token": "<t>"}},
    "a token with a name of the model's own": {"tokenizer_config.json": {"image_token": "<u>"}},
    "tokens with names that transformers 5 wrote": {
        "tokenizer_config.json": {"model_specific_special_tokens": {"image_token": "<t>"}}
    },
    "further special tokens": {"tokenizer_config.json": {"additional_special_tokens": ["<u>", "<t>"]}},
    "the map of special tokens": {"special_tokens_map.json": {"pad_token": {"content": "<u>", "lstrip": True}}},
    "the map is ignored beside the decoder": {
        "tokenizer_config.json": _decoder(**{"30": _T}),
        "special_tokens_map.json": {"pad_token": "<u>"},
        "added_tokens.json": {"<u>": 31},
    },
    "the old file of added tokens": {"added_tokens.json": {"<u>": 31, "<t>": 30}},
    "the old file and the config": {"tokenizer_config.json": {"pad_token": "<t>"}, "added_tokens.json": {"<u>": 30}},
    "special tokens are split": {"tokenizer_config.json": _decoder(**{"30": _T}) | {"split_special_tokens": True}},
}
IDS = {
    "no other file": [0, 27, 26, 1, 26, 28, 19, 29, 2, 26, 28, 20, 29, 26, 3],
    "a token of the config alone": [0, 27, 26, 1, 26, 30, 2, 26, 28, 20, 29, 26, 3],
    "the next free id, whatever the config states": [0, 27, 26, 1, 26, 30, 2, 26, 28, 20, 29, 26, 3],
    "two tokens in the order of their ids": [0, 27, 26, 1, 26, 31, 2, 26, 30, 26, 3],
    "other flags of a token that is there": [0, 27, 1, 26, 28, 19, 29, 2, 26, 28, 20, 29, 26, 3],
    "a token that takes the blanks around it": [0, 27, 26, 1, 26, 28, 19, 29, 2, 30, 3],
    "a token with a name": [0, 27, 26, 1, 26, 30, 2, 26, 28, 20, 29, 26, 3],
    "a token with a name of the model's own": [0, 27, 26, 1, 26, 28, 19, 29, 2, 26, 30, 26, 3],
    "tokens with names that transformers 5 wrote": [0, 27, 26, 1, 26, 30, 2, 26, 28, 20, 29, 26, 3],
    "further special tokens": [0, 27, 26, 1, 26, 31, 2, 26, 30, 26, 3],
    "the map of special tokens": [0, 27, 26, 1, 26, 28, 19, 29, 2, 30, 26, 3],
    "the map is ignored beside the decoder": [0, 27, 26, 1, 26, 30, 2, 26, 28, 20, 29, 26, 3],
    "the old file of added tokens": [0, 27, 26, 1, 26, 30, 2, 26, 31, 26, 3],
    "the old file and the config": [0, 27, 26, 1, 26, 31, 2, 26, 30, 26, 3],
    "special tokens are split": [0, 28, 18, 29, 26, 1, 26, 28, 19, 29, 2, 26, 28, 20, 29, 26, 3],
}


def write_case(folder, name):
    """Writes the files of a case into a folder; returns its path."""
    parts = {"version": "1.0", "added_tokens": [_OWN], "normalizer": None, "pre_tokenizer": None}
    parts |= {"post_processor": None, "decoder": None, "model": _MODEL}
    for file, content in ({"tokenizer.json": parts} | CASES[name]).items():
        (folder / file).write_text(json.dumps(content))
    return str(folder)

"""The tokens of texts, and the tokens that a model wrote, for tokenizers with unusual settings."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from model.test_native_panics import NO_BOS, VOCABULARY, a_folder

from added_token_cases import CASES, IDS, TEXT, write_case
from build import fails
from gleaner_worker.records.tokens.bos import find_bos
from gleaner_worker.records.tokens.tokenizer import Encoded, encode_complete, encode_texts, load_tokenizer

BLANKS = VOCABULARY | {"Ġ": 26, "Ċ": 27}


LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
ROBERTA = {"type": "RobertaProcessing", "sep": ["a", 0], "cls": ["b", 1], "add_prefix_space": False}
PROCESSORS = {
    "whole": LEVEL | {"trim_offsets": False},
    "trimmed": LEVEL,
    "trimmed in a list": {"type": "Sequence", "processors": [LEVEL, ROBERTA | {"trim_offsets": True}]},
    "trimmed as RoBERTa's": ROBERTA | {"trim_offsets": True},
}


def encoded(texts, spans, tokenizer):
    for each in encode_complete(texts, tokenizer, NO_BOS, [[of_text] for of_text in spans]):
        assert isinstance(each, Encoded) and each.marks is not None
        yield each.marks


@pytest.mark.parametrize("processor", PROCESSORS.values(), ids=PROCESSORS)
def test_every_blank_within_a_span_is_marked(tmp_path, processor):
    model = {"type": "BPE", "vocab": BLANKS, "merges": [], "unk_token": None}
    folder = a_folder(tmp_path, pre_tokenizer=LEVEL, post_processor=processor, model=model)
    text = "  a if x\n        return  y\n b"
    for begin, end in [(0, 1), (text.index("if"), text.index(" b"))]:
        (marks,) = encoded([text], [[(begin, end)]], load_tokenizer(folder, "a model"))
        assert marks.marked.tolist() == [begin <= at < end for at in range(len(text))]


@given(
    st.lists(st.text("abc", max_size=12), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=5),
)
def test_a_token_is_marked_if_one_of_its_characters_is_in_a_span(tmp_path_factory, texts, drawn):
    tokenizer = load_tokenizer(a_folder(tmp_path_factory.mktemp("tokenizer")), "a model")
    spans = [[(begin, end) for begin, end in drawn if begin <= end <= len(text)] for text in texts]
    for text, of_text, marks in zip(texts, spans, encoded(texts, spans, tokenizer), strict=True):
        assert marks.marked.tolist() == [any(begin <= at < end for begin, end in of_text) for at in range(len(text))]
        assert marks.ranges.tolist() == [[begin, end] if begin < end else [0, 0] for begin, end in of_text]


def test_dropout_of_a_tokenizer_changes_no_sample(tmp_path):
    model = {"type": "BPE", "vocab": VOCABULARY | {"ab": 26}, "merges": ["a b"], "unk_token": None, "dropout": 0.5}
    tokenizer = load_tokenizer(a_folder(tmp_path, model=model), "a model")
    assert encode_texts(["ab" * 40], tokenizer, NO_BOS) == [Encoded([26] * 40)]


@pytest.mark.parametrize("count", [1, 2])
def test_the_first_of_the_tokens_before_every_text_is_its_bos(tmp_path, count):
    prefix = [{"SpecialToken": {"id": token, "type_id": 0}} for token in "yz"[:count]]
    special = {token: {"id": token, "ids": [VOCABULARY[token]], "tokens": [token]} for token in "yz"}
    single = [*prefix, {"Sequence": {"id": "A", "type_id": 0}}]
    pair = [*single, {"Sequence": {"id": "B", "type_id": 1}}]
    processor = {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}
    assert find_bos(load_tokenizer(a_folder(tmp_path, post_processor=processor), "a model")) == VOCABULARY["y"]


@pytest.mark.parametrize("name", CASES)
def test_the_files_beside_tokenizer_json_add_the_tokens_that_transformers_adds(tmp_path, name):
    tokenizer = load_tokenizer(write_case(tmp_path, name), "a model")
    assert encode_texts([TEXT], tokenizer, NO_BOS) == [Encoded(IDS[name])]


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("tokenizer_config.json", {"added_tokens_decoder": {"x": {"content": "<t>"}}}),
        ("tokenizer_config.json", {"pad_token": "\ud800"}),
        ("tokenizer_config.json", {"added_tokens_decoder": [1]}),
        ("tokenizer_config.json", {"extra_special_tokens": 3}),
        ("added_tokens.json", {"<t>": "x"}),
        ("special_tokens_map.json", {"additional_special_tokens": [[1]]}),
    ],
)
def test_tokens_that_cannot_be_read_fail_the_run_and_name_the_file(tmp_path, file, content):
    folder = write_case(tmp_path, "no other file")
    (tmp_path / file).write_text(json.dumps(content))
    with fails("model", f"Failed to read tokenizer.json of a model: the tokens of {file} cannot be read"):
        load_tokenizer(folder, "a model")

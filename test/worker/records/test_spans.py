"""Spans of samples: of fields, matches and messages, as tokens, as one row each, and as a mask beside the rows."""

import re

import numpy as np
import pytest
from records.test_chat import read, write_folder

from build import fails
from gleaner_worker.records.samples.sample import Reject, Sample
from gleaner_worker.records.tokens.tokenizer import load_tokenizer

TEXT = "The red fox, the old fox."  # T|he| |re|d| f|o|x|,| the| o|ld| f|o|x|.
TALK = [
    {"role": "system", "content": "Add."},
    {"role": "user", "content": "two and two"},
    {"role": "assistant", "content": "four is it", "reasoning_content": "hm"},
    {"role": "user", "content": "and one"},
]


@pytest.mark.parametrize(
    ("spec", "positions", "pools", "span_idx"),
    [
        ({"tokens": "regex:fox"}, [5, 6, 7, 12, 13, 14], None, None),
        ({"tokens": "field:s"}, [0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15], None, None),
        ({"tokens": "last:field:s"}, [1, 8, 15], None, [0, 1, 2]),
        ({"tokens": "mean:field:s"}, None, [[0, 2], [3, 9], [5, 16]], [0, 1, 2]),
        ({"tokens": "max:regex:(?i:the)|ed"}, None, [[0, 2], [3, 5], [9, 10]], [0, 1, 2]),
        ({"tokens": "mean:regex:$|d"}, None, [[4, 5], [11, 12]], [0, 1]),
        # The sample ends within the third span.
        ({"tokens": "max:field:s", "over_long": "truncate", "max_seq_length": 12}, None, [[0, 2], [3, 9]], [0, 1]),
    ],
)
def test_tokens_with_a_character_of_a_span_are_chosen(read_items, spec, positions, pools, span_idx):
    record = {"text": TEXT, "s": [[0, 3], [4, 12], [8, 25]]}
    (item,) = read_items([record], **spec)
    assert isinstance(item, Sample)
    found = [None if each is None else each.tolist() for each in (item.positions, item.pools, item.span_idx)]
    assert found == [positions, pools, span_idx]


def test_excluded_tokens_count_in_no_span(read_items):
    lines = [{"text": "a<|endoftext|>b<|endoftext|>", "s": [[0, 14], [1, 14], [14, 28]]}]
    (item,) = read_items(lines, tokens="mean:field:s", exclude_special=True)
    assert (item.positions.tolist(), item.pools.tolist()) == ([0, 2], [[0, 2], [2, 4]])
    assert item.span_idx.tolist() == [0, 2]
    (item,) = read_items(lines, tokens="last:field:s", exclude_special=True)
    assert (item.positions.tolist(), item.span_idx.tolist()) == ([0, 2], [0, 2])


@pytest.mark.parametrize("over_long", ["reject", "chunk", "pack"])
def test_a_mask_lies_beside_all_tokens(read_items, over_long):
    lines = [{"text": TEXT}, {"text": "no such word"}]
    items = read_items(lines, mask="regex:fox", over_long=over_long, max_seq_length=16, bos="auto")
    assert all(item.positions is None and item.mask.dtype == np.uint8 for item in items)
    assert items[0].mask.tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 0]
    assert not items[1].mask.any() and len(items[1].mask) == len(items[1].token_ids)


def test_tokens_and_mask_may_ask_for_different_spans(read_items):
    (item,) = read_items([{"text": TEXT, "loss": [[0, 3]]}], tokens="last:regex:fox", mask="field:loss")
    assert (item.positions.tolist(), np.flatnonzero(item.mask).tolist()) == ([7, 14], [0, 1])


def test_a_list_of_booleans_marks_token_ids(read_items):
    (item,) = read_items([{"tokens": [5, 6, 7, 8], "s": [True, False, True, True]}], tokens="mean:field:s")
    assert item.pools.tolist() == [[0, 1], [2, 4]]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"text": TEXT}, "has no field `s`, whose spans run.json asks for; it has `text`"),
        ({"text": TEXT, "s": "0,3"}, "`s` is a string, not a list of spans [begin, end]"),
        ({"text": TEXT, "s": []}, "has 16 tokens, and no span of `s` has one of them"),
        ({"text": TEXT, "s": [[0, 3], [0, 1, 2]]}, "`s[1]` is not a span [begin, end]"),
        ({"text": TEXT, "s": [[0, True]]}, "`s[0]` is not a span [begin, end]"),
        ({"text": TEXT, "s": [[0, 26]]}, "`s[0]` is [0, 26], which is not a span of the 25 characters"),
        ({"text": TEXT, "s": [[-1, 2]]}, "`s[0]` is [-1, 2], which is not a span of the 25 characters"),
        ({"text": TEXT, "s": [[3, 3]]}, "`s[0]` is [3, 3], which is not a span of the 25 characters"),
        ({"text": TEXT, "s": [[0, 10**30]]}, "`s[0]` is [0, …], which is not a span of the 25 characters"),
        ({"text": TEXT, "s": [True]}, "`s` is a list of true and false, which only a record of token ids can have"),
        ({"tokens": [1, 2], "s": [[0, 3]]}, "`s[0]` is [0, 3], which is not a span of the 2 token ids"),
        ({"tokens": [1, 2], "s": [True]}, "`s` is not one true or false for each of the 2 token ids"),
        ({"text": "a", "s": [[0, 1]] * 2}, "has 2 spans in 1 tokens, and a token can have one row"),
    ],
)
def test_a_record_without_such_spans_is_rejected_with_its_field(read_items, record, reason):
    (item,) = read_items([record], tokens="mean:field:s")
    assert isinstance(item, Reject) and item.reason == reason


@pytest.mark.parametrize("text", [TEXT, "é a 😀, é<|endoftext|>", "no match"])
@pytest.mark.parametrize("pattern", ["[a-z]+", "é|.<", "😀"])
def test_an_expression_finds_the_same_tokens_in_a_text_and_in_its_token_ids(read_items, text, pattern):
    (of_text,) = read_items([{"text": text}], mask=f"regex:{pattern}")
    half_a_character = of_text.token_ids.tolist() + read_items([{"text": "é"}])[0].token_ids.tolist()[:1]
    (of_ids,) = read_items([{"tokens": half_a_character}], mask=f"regex:{pattern}")
    assert of_ids.mask.tolist() == [*of_text.mask.tolist(), 0]


def test_an_expression_with_a_wrong_syntax_is_refused(read_items):
    with fails("model") as failure:
        read_items([{"text": "a"}], mask=r"regex:(a)\1")
    assert r"the expression '(a)\\1' of run.json: invalid escape sequence: \1; correct it" in failure.value.reason


def test_a_hostile_expression_takes_bounded_time(read_items, monkeypatch):
    spec = {"over_long": "truncate", "max_seq_length": 1024}
    lines = [{"text": "a" * 30_000}]
    (item,) = read_items(lines, tokens="regex:(a|a)+(a*)*b", **spec)  # a backtracking engine never ends
    assert "no match of the expression" in item.reason
    monkeypatch.setattr("gleaner_worker.records.tokens.spans._MOST_READ", 100_000)
    (item,) = read_items(lines, tokens="regex:a(.*b)?", **spec)
    assert "has more than 3 matches in them, which is too many" in item.reason


@pytest.mark.parametrize("name", ["chatml", "llama"])
def test_each_turn_ends_with_its_special_token(tmp_path, name):
    folder = write_folder(tmp_path, name)
    (item,) = read(folder, tmp_path, [{"messages": TALK}], tokens="last:turns")
    assert isinstance(item, Sample), item
    tokenizer = load_tokenizer(folder, "a model")
    assert item.span_idx.tolist() == [0, 1, 2, 3]
    texts = [tokenizer.decode(part.tolist(), skip_special_tokens=False) for part in before(item)]
    for text, message in zip(texts, TALK, strict=True):
        assert re.search(re.escape(message["content"]) + r"\s*(<\S+>)?$", text), text
    (plain,) = read(folder, tmp_path, [{"messages": TALK}], tokens="last:turns", exclude_special=True)
    assert all(a <= b for a, b in zip(plain.positions, item.positions, strict=True))


def before(item):
    """The token ids up to each chosen one."""
    return [item.token_ids[: position + 1] for position in item.positions]


def test_a_text_has_no_turns_and_no_answers(read_items):
    for kind in ("turns", "assistant"):
        (item,) = read_items([{"text": TEXT}], mask=kind)
        assert item.reason == f"has no list of messages, in which run.json asks for {kind}"

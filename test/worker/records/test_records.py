"""Records of every kind: the field that is read, and the reasons why a line is rejected."""

import json
import re

import pytest

from build import a_spec
from gleaner_worker.records.lines.parse import parse_line
from gleaner_worker.records.lines.rejected import Rejected
from gleaner_worker.records.lines.stream import Line
from gleaner_worker.records.samples.prompts import make_prompt_writer, write_prompts

TASK = {"train": [{"input": [[1]], "output": [[2]]}], "test": [{"input": [[3]]}]}
CHAT = [{"role": "user", "content": "hi"}]


def record(data, **spec):
    """The input of the tokenizer for the record, or the reason of its rejection."""
    data = data if isinstance(data, bytes) else json.dumps(data).encode()
    writer = make_prompt_writer(a_spec(record=spec), "/nowhere")
    try:
        return next(write_prompts(parse_line(Line(0, data, len(data))), writer)).content
    except Rejected as reason:
        return reason


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ({"text": "a"}, "a"),
        ({"prompt": "b", "answer": "c"}, "b"),
        ({"prompt": "b", "text": "a"}, "a"),
        ({"prompt": "b", "messages": CHAT}, "b"),
        ({"tokens": [1, 2]}, [1, 2]),
        ({"tokens": [1, 2], "prompt": "b"}, "b"),
        ({"tokens": [1, 2]} | TASK, [1, 2]),
        ({"tokens": []}, []),
        ({"text": ""}, ""),
        ({"text": "\x00\r\n"}, "\x00\r\n"),
    ],
)
def test_the_first_known_field_is_read(given_, expected):
    assert record(given_) == expected


def test_messages_have_precedence_over_tokens_and_tasks():
    assert str(record({"messages": CHAT, "tokens": [1]} | TASK)).startswith(
        "`messages` cannot be written with the chat"
    )


def test_the_task_id_of_an_arc_task_leaves_its_prompt_unchanged():
    assert record(TASK) == record(TASK | {"task_id": "one"}) == record(TASK | {"task_id": "another"})


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("blank", b"", "is empty"),
        ("spaces", b" \t ", "is empty"),
        ("not UTF-8", b'{"text": "caf\xe9"}', "is not UTF-8: byte 14 is 0xe9"),
        ("UTF-16", '{"text": "a"}'.encode("utf-16"), "is not UTF-8"),
        ("a second BOM", b'\xef\xbb\xbf{"text": "a"}', "is not JSON: Unexpected UTF-8 BOM"),
        ("a NUL", b'{"text": "a\x00b"}', "is not JSON: Invalid control character"),
        ("not JSON", b"hello", "is not JSON"),
        ("cut off", b'{"text": "a', "is not JSON"),
        ("two values", b'{"text": "a"} {"text": "b"}', "is not JSON"),
        ("nested too deeply", b"[" * 200_000, "nested too deeply"),
        ("nested too deeply inside", b'{"text": "a", "x": ' + b"[" * 200_000, "nested too deeply"),
        ("the same key twice", b'{"text": "a", "text": "b"}', "has the key `text` twice"),
        ("the same key twice inside", b'{"text": "a", "x": [{"y": 1, "z": 2, "y": 1}]}', "has the key `y` twice"),
        ("a key with a surrogate twice", b'{"\\ud800": 1, "\\ud800": 2}', r"has the key `\\ud800` twice"),
        ("a list", b"[1]", "is a list, not a JSON object"),
        ("a string", b'"x"', "is a string, not"),
        ("null", b"null", "is null, not"),
        ("NaN", b"NaN", "is a number with a fraction, not"),
        (
            "no known field",
            b'{"a": 1, "b": 2}',
            "no known field: it has `a`, `b`; known are `text`, `prompt`, `messages`, `tokens`, `conversations`, or",
        ),
        ("an empty object", b"{}", "no known field: it has none"),
        ("half of an ARC task", b'{"train": []}', "no known field: it has `train`"),
        ("a number as text", b'{"text": 3}', "`text` is a number, not a string"),
        ("a huge number as text", b'{"text": 1e999}', "`text` is a number with a fraction, not a string"),
        ("null as text", b'{"text": null}', "`text` is null"),
        ("a list as prompt", b'{"prompt": ["a"]}', "`prompt` is a list"),
        ("an object as text", b'{"text": {"a": "b"}}', "`text` is an object, not a string"),
        ("a lone surrogate", b'{"text": "ab\\ud800"}', r"`text` has a lone surrogate, \\ud800, at character 3"),
        ("a string of tokens", b'{"tokens": "1 2"}', "`tokens` is a string, not a list"),
        ("true among tokens", b'{"tokens": [1, true]}', "true or false at position 1"),
        ("a fraction among tokens", b'{"tokens": [1.0]}', "a number with a fraction at position 0"),
        ("a lone surrogate in a name", b'{"\\udfff": 1}', r"no known field: it has `\\udfff`"),
        ("a number too long to read", b'{"tokens": [' + b"9" * 5000 + b"]}", "is not JSON"),
        ("many fields", json.dumps({str(n): n for n in range(99)}).encode(), "`7`, …; known are"),
    ],
)
def test_an_unusable_line_is_rejected_with_the_reason(name, data, reason):
    result = record(data)
    assert isinstance(result, Rejected)
    assert re.search(reason, str(result)), result
    str(result).encode("utf-8")


def test_a_pair_of_surrogates_is_one_character():
    assert record(b'{"text": "\\ud83d\\ude00"}') == "\U0001f600"


def test_unused_fields_may_hold_invalid_json_values():
    assert record(b'{"text": "a", "score": NaN, "x": [Infinity, "\\ud800"]}') == "a"


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ({"question": "q", "text": "t"}, "q"),
        ({"question": [4, 5]}, [4, 5]),
        ({"question": []}, []),
        ({"text": "t"}, "has no field `question`, which record.field names; it has `text`"),
        ({"question": 4}, "`question` is a number, not a string"),
        ({"question": [4, "a"]}, "`question` has a string at position 1, not a token id"),
        ({"question": {"text": "a"}}, "`question` is an object, but not an ARC task with `train` and `test`"),
    ],
)
def test_record_field_names_the_field_to_read(given_, expected):
    result = record(given_, field="question")
    assert (str(result) if isinstance(result, Rejected) else result) == expected

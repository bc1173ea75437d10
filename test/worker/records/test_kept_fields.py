"""Fields of a record that are kept beside its rows."""

import json

import pytest


@pytest.mark.parametrize(
    ("fields", "keep", "expected"),
    [
        ({"a": 1}, [], ""),
        ({"a": 1}, ["a"], '{"a":1}'),
        ({"a": 1, "b": [2, None, True]}, ["b", "a"], '{"b":[2,null,true],"a":1}'),
        ({"a": 1}, ["z", "a", "text"], '{"a":1,"text":"hi"}'),
        ({"a": 1}, ["z"], "{}"),
        ({"a": None}, ["a"], '{"a":null}'),
        ({"a": "é\U0001f600\x00"}, ["a"], '{"a":"\\u00e9\\ud83d\\ude00\\u0000"}'),
        ({"a": 12345678901234567890123}, ["a"], '{"a":12345678901234567890123}'),
        ({"é": 1}, ["é"], '{"\\u00e9":1}'),
    ],
)
def test_fields_are_kept_as_compact_json_in_the_requested_order(read_items, fields, keep, expected):
    (item,) = read_items([{"text": "hi"} | fields], keep=keep)
    assert item.kept == expected


def test_lone_surrogates_are_kept_as_escapes(read_items):
    (item,) = read_items([b'{"text": "hi", "a": "x\\ud800", "\\udfff": 1}\n'], keep=["a"])
    assert item.kept == '{"a":"x\\ud800"}'
    assert json.loads(item.kept) == {"a": "x\ud800"}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"text": "hi", "b": 1, "a": NaN}\n', "`a`, which `keep` names, has NaN or Infinity, which JSON cannot hold"),
        (b'{"text": "hi", "b": 1, "a": [{"x": -1e999}]}\n', "`a`, which `keep` names, has NaN or Infinity"),
        (
            {"text": "hi", "a": "x" * 65_530},
            "has 65538 bytes in the fields that `keep` names (`a` 65532); the limit is 65536",
        ),
        (
            {"text": "hi", "a": "é" * 11_000, "b": 7},
            "has 66014 bytes in the fields that `keep` names (`a` 66002, `b` 1)",
        ),
    ],
)
def test_fields_that_cannot_be_kept_reject_the_record_with_the_reason(read_items, line, reason):
    bad, good = read_items([line, {"text": "hi"}], keep=["a", "b"])
    assert bad.reason.startswith(reason)
    assert good.kept == "{}"


def test_kept_fields_may_have_64_kib(read_items):
    (item,) = read_items([{"text": "hi", "a": "x" * 65_528}], keep=["a"])
    assert len(item.kept) == 65_536

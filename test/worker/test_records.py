"""From lines to samples and rejects: the kinds of records, what is kept of them, and how one can be bad."""

import gzip
import json
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from build import a_spec
from gleaner_worker.failures import Failure
from gleaner_worker.records.parse import parse_line
from gleaner_worker.records.prompts import make_prompt_writer, write_prompts
from gleaner_worker.records.reject_reason import RejectReason
from gleaner_worker.records.samples import (
    Reject,
    Sample,
    count_samples,
    make_reader,
    read_samples,
    read_windows,
    tokenize_windows,
)
from gleaner_worker.records.stream import Line

pytestmark = pytest.mark.slow

TASK = {"train": [{"input": [[1]], "output": [[2]]}], "test": [{"input": [[3]]}]}
CHAT = [{"role": "user", "content": "hi"}]


def record(data, **spec):
    """What the tokenizer gets of the record, or why it gets nothing."""
    data = data if isinstance(data, bytes) else json.dumps(data).encode()
    found = parse_line(Line(0, data, len(data)))
    if isinstance(found, RejectReason):
        return found
    prompts = write_prompts(found, make_prompt_writer(a_spec(record=spec), "/nowhere"))
    first = prompts if isinstance(prompts, RejectReason) else next(prompts)
    return first if isinstance(first, RejectReason) else first.content


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


def test_messages_go_before_tokens_and_tasks():
    assert record({"messages": CHAT, "tokens": [1]} | TASK).text.startswith(
        "`messages` cannot be written with the chat"
    )


def test_task_ids_may_be_equal_or_missing_because_nothing_is_keyed_by_them():
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
            "no known field: it has `a`, `b`; known are `text`, `prompt`, `messages`, `tokens`, or an ARC",
        ),
        ("an empty object", b"{}", "no known field: it has none"),
        ("half of an ARC task", b'{"train": []}', "no known field: it has `train`"),
        ("a number as text", b'{"text": 3}', "`text` is a number, not a string"),
        ("a huge number as text", b'{"text": 1e999}', "`text` is a number with a fraction, not a string"),
        ("null as text", b'{"text": null}', "`text` is null"),
        ("a list as prompt", b'{"prompt": ["a"]}', "`prompt` is a list"),
        ("an object as text", b'{"text": {"a": "b"}}', "`text` is an object, not a string"),
        (
            "a lone surrogate",
            b'{"text": "ab\\ud800"}',
            r"`text` has a lone surrogate, \\ud800, at character 3",
        ),
        ("a string of tokens", b'{"tokens": "1 2"}', "`tokens` is a string, not a list"),
        ("true among tokens", b'{"tokens": [1, true]}', "true or false at position 1"),
        ("a fraction among tokens", b'{"tokens": [1.0]}', "a number with a fraction at position 0"),
        ("a lone surrogate in a name", b'{"\\udfff": 1}', r"no known field: it has `\\udfff`"),
        ("a number too long to read", b'{"tokens": [' + b"9" * 5000 + b"]}", "is not JSON"),
        ("many fields", json.dumps({str(n): n for n in range(99)}).encode(), "`7`, …; known are"),
    ],
)
def test_a_line_that_cannot_be_used_says_why(name, data, reason):
    result = record(data)
    assert isinstance(result, RejectReason)
    assert re.search(reason, result.text), result.text
    result.text.encode("utf-8")


def test_a_pair_of_surrogates_is_one_character():
    assert record(b'{"text": "\\ud83d\\ude00"}') == "\U0001f600"


def test_what_is_not_used_of_a_record_may_be_what_json_is_not():
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
    assert (result.text if isinstance(result, RejectReason) else result) == expected


@pytest.fixture
def read(tiny_folder, tmp_path):
    def run(lines, folder=tiny_folder, vocab_size=600, **spec):
        path = tmp_path / "stream"
        path.write_bytes(
            b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines)
        )
        return list(read_samples(str(path), "x", make_reader(folder, a_spec(**spec), vocab_size, 1024)))

    return run


def test_every_line_becomes_one_sample_or_one_reject_in_order(read):
    items = read([{"text": f"number {i}"} if i % 3 else b"bad\n" for i in range(1500)])
    assert [item.index for item in items] == list(range(1500))
    assert [isinstance(item, Sample) for item in items] == [i % 3 > 0 for i in range(1500)]
    assert items[3].record() == {"line": 4, "sample_idx": 3, "reason": items[3].reason}


@pytest.mark.parametrize(
    ("ids", "reason"),
    [
        ([0, 600], "token id 600 at position 1 is not in the vocabulary (0 to 599)"),
        ([-1], "token id -1 at"),
        ([10**30], "token id of more than 63 bits at position 0"),
    ],
)
def test_token_ids_outside_the_vocabulary_are_rejected(read, ids, reason):
    (item,) = read([{"tokens": ids}])
    assert reason in item.reason


@pytest.mark.parametrize("given_", [{"text": ""}, {"tokens": []}])
def test_a_record_without_tokens_is_rejected(read, given_):
    assert read([given_])[0].reason == "has no tokens"


def make_folder(folder, vocabulary, post_processor=None, unknown="<unk>"):
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=unknown))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    if post_processor:
        tokenizer.post_processor = post_processor
    tokenizer.save(str(folder / "tokenizer.json"))
    return str(folder)


def test_the_special_tokens_that_a_tokenizer_adds_do_not_make_a_sample_of_an_empty_text(read, tmp_path):
    added = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    folder = make_folder(tmp_path, {"<unk>": 0, "<s>": 1, "</s>": 2, "a": 3}, added)
    empty, full, twice = read([{"text": ""}, {"text": "a a"}, {"tokens": [1, 1, 3]}], folder)
    assert empty.reason == "has no tokens"
    assert full.token_ids.tolist() == [1, 3, 3, 2]
    assert twice.token_ids.tolist() == [1, 1, 3]  # token ids are taken as they are


def test_an_id_that_only_the_post_processor_knows_is_seen_before_the_model_gets_it(read, tmp_path):
    added = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 70_000)])
    folder = make_folder(tmp_path, {"<unk>": 0, "a": 1}, added)
    (item,) = read([{"text": "a a"}], folder)
    assert item.reason == "token id 70000 at position 2 is not in the vocabulary (0 to 599)"


def test_an_added_token_without_an_embedding_spoils_only_the_records_that_have_it(read, tmp_path):
    """As in Gemma 3 1B, whose tokenizer has a token for images that the model lacks."""
    folder = make_folder(tmp_path, {"<unk>": 0, "a": 1, "b": 2})
    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
    tokenizer.add_special_tokens(["<image>"])
    tokenizer.save(f"{folder}/tokenizer.json")
    good, bad = read([{"text": "a b"}, {"text": "a <image>"}], folder, vocab_size=3)
    assert good.token_ids.tolist() == [1, 2]
    assert bad.reason == "token id 3 at position 1 is not in the vocabulary (0 to 2)"
    with pytest.raises(Failure, match="makes ids up to 2, the model has 2 embeddings"):
        read([{"text": "a"}], folder, vocab_size=2)


def test_a_text_that_the_tokenizer_cannot_encode_is_rejected_alone(read, tmp_path):
    folder = make_folder(tmp_path, {"a": 0}, unknown="<missing>")
    items = read([{"text": "a"}, {"text": "b"}, {"text": "a a"}], folder)
    assert [isinstance(item, Sample) for item in items] == [True, False, True]
    assert items[1].reason.startswith("cannot be tokenised: WordLevel error: Missing [UNK] token")
    assert items[2].token_ids.tolist() == [0, 0]


def test_over_long_samples_are_rejected_with_their_length_or_truncated_when_asked(read):
    lines = [{"tokens": [1] * 9}, {"tokens": [2] * 8}]
    rejected, kept = read(lines, max_seq_length=8)
    assert isinstance(rejected, Reject)
    assert "is 9 tokens long; the limit is 8" in rejected.reason
    assert not kept.truncated
    cut, kept = read(lines, max_seq_length=8, over_long="truncate")
    assert (cut.token_ids.tolist(), cut.truncated, kept.truncated) == ([1] * 8, True, False)


def test_the_models_own_length_is_a_limit_too(read):
    (item,) = read([{"tokens": [1] * 1025}], max_seq_length=4096)
    assert "is 1025 tokens long; the limit is 1024" in item.reason


def test_truncation_and_padding_of_the_tokenizer_file_are_not_obeyed(tiny_folder, tmp_path, read):
    tokenizer = Tokenizer.from_file(f"{tiny_folder}/tokenizer.json")
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=50)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (there,), (here,) = read([{"text": "one two three four"}], str(tmp_path)), read([{"text": "one two three four"}])
    assert there.token_ids.tolist() == here.token_ids.tolist()


def test_a_tokenizer_of_another_model_is_refused(tiny_folder):
    with pytest.raises(Failure, match="makes ids up to 599, the model has 100 embeddings") as failure:
        make_reader(tiny_folder, a_spec(), 100, 1024)
    assert failure.value.kind == "model"


def test_a_record_of_10_mb_is_rejected_and_the_next_is_read(read):
    big, small = read([{"text": "x" * 10_000_000}, {"text": "y"}])
    assert "bytes long; the limit is 8388608" in big.reason
    assert isinstance(small, Sample)


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
def test_fields_are_kept_as_compact_json_in_the_order_asked_for(read, fields, keep, expected):
    (item,) = read([{"text": "hi"} | fields], keep=keep)
    assert item.kept == expected


def test_lone_surrogates_in_what_is_kept_stay_the_escapes_that_they_were(read):
    (item,) = read([b'{"text": "hi", "a": "x\\ud800", "\\udfff": 1}\n'], keep=["a"])
    assert item.kept == '{"a":"x\\ud800"}'
    assert json.loads(item.kept) == {"a": "x\ud800"}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (
            b'{"text": "hi", "b": 1, "a": NaN}\n',
            "`a`, which keep names, has NaN or Infinity in it, which JSON cannot hold",
        ),
        (b'{"text": "hi", "b": 1, "a": [{"x": -1e999}]}\n', "`a`, which keep names, has NaN or Infinity in it"),
        (
            {"text": "hi", "a": "x" * 65_530},
            "has 65538 bytes in the fields that keep names (`a` 65532); the limit is 65536",
        ),
        ({"text": "hi", "a": "é" * 11_000, "b": 7}, "has 66014 bytes in the fields that keep names (`a` 66002, `b` 1)"),
    ],
)
def test_what_cannot_be_kept_rejects_the_record_with_the_reason(read, line, reason):
    bad, good = read([line, {"text": "hi"}], keep=["a", "b"])
    assert bad.reason.startswith(reason)
    assert good.kept == "{}"


def test_64_kib_can_be_kept(read):
    (item,) = read([{"text": "hi", "a": "x" * 65_528}], keep=["a"])
    assert len(item.kept) == 65_536


def test_the_two_halves_of_reading_give_what_reading_at_once_gives(tiny_folder, tmp_path):
    path = tmp_path / "stream"
    lines = [json.dumps({"text": f"number {n} " * (n % 50)}) if n % 7 else "bad" for n in range(2000)]
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    reader = make_reader(tiny_folder, a_spec(), 600, 1024)
    windows = list(read_windows(str(path), "x", reader))
    assert len(windows) == 4
    halves = list(tokenize_windows(iter(windows), reader))
    whole = list(read_samples(str(path), "x", reader))
    assert [repr(item) for item in halves] == [repr(item) for item in whole]
    assert len(whole) == count_samples(str(path), "x", reader) == 2000


def test_what_is_read_ahead_is_bounded_by_its_bytes(tiny_folder, tmp_path):
    path = tmp_path / "stream"
    sizes = [3_000_000, 3_000_000, 10, 1_000_000, 7_000_000, 5]
    path.write_text("".join(json.dumps({"text": "x" * size}) + "\n" for size in sizes))
    reader = make_reader(tiny_folder, a_spec(), 600, 1024)
    held = [[len(item.prompt.content) for item in window] for window in read_windows(str(path), "x", reader)]
    assert held == [[3_000_000], [3_000_000, 10, 1_000_000], [7_000_000], [5]]


junk = st.binary(max_size=60) | st.text(max_size=30).map(lambda text: json.dumps({"text": text}).encode())
values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 700) | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["role", "content", "train"]), inner, max_size=3)
    ),
    max_leaves=6,
)
names = st.sampled_from(["text", "prompt", "messages", "tokens", "train", "test", "tools", "a"])
objects = st.dictionaries(names, values, max_size=4).map(lambda value: json.dumps(value).encode())
tasks = st.lists(st.lists(st.integers(0, 10), max_size=2), max_size=2).map(
    lambda grid: json.dumps({"train": [{"input": grid, "output": [[1]]}], "test": [{"input": [[2]]}]}).encode()
)
streams = st.lists(junk | objects | tasks, max_size=8).map(b"\n".join) | st.binary(max_size=300)


@settings(max_examples=200)
@given(
    streams,
    st.booleans(),
    st.sampled_from([1, 3]),
    st.sampled_from([{}, {"field": "a"}, {"template": "{{ text }}{% for x in tokens %}{{ x * 3 }}{% endfor %}"}]),
    st.sampled_from(["all", "last", "0:2", [1]]),
    st.sampled_from([[], ["a", "text"]]),
)
def test_whatever_the_bytes_every_line_gives_its_samples_in_order_and_nothing_is_raised(
    tiny_folder, tmp_path_factory, data, is_zipped, predictions, how, tokens, keep
):
    path = tmp_path_factory.mktemp("stream") / "stream"
    data = data if data[:2] != b"\x1f\x8b" else b"x" + data
    path.write_bytes(gzip.compress(data) if is_zipped else data)
    spec = a_spec(record=how | {"predictions_per_task": predictions}, tokens=tokens, keep=keep, exclude_special=True)
    items = list(read_samples(str(path), "x", make_reader(tiny_folder, spec, 600, 32)))
    body = data.removeprefix(b"\xef\xbb\xbf")
    lines = body.count(b"\n") + (not body.endswith(b"\n") and body != b"")
    assert [n for item in items for n in range(item.index, item.last + 1)] == list(range(lines * predictions))
    for item in items:
        if isinstance(item, Reject):
            written = json.loads(json.dumps(item.record()).encode("ascii"))
            assert written["line"] == item.index // predictions + 1
            assert written["reason"].encode("utf-8")
        else:
            assert item.token_ids.dtype == np.int32 and 0 <= item.token_ids.min() and item.token_ids.max() < 600
            assert 0 < len(item.positions) <= len(item.token_ids) <= 32
            assert json.loads(item.kept or "{}").keys() <= set(keep)

import json
import re

import pytest

from build import a_spec
from gleaner_worker.records.arc import encode_task
from gleaner_worker.failures import Failure
from gleaner_worker.records.parse import Bad, parse_record
from gleaner_worker.records.samples import Reject, Sample, make_reader, read_samples
from gleaner_worker.records.stream import Line

TASK = {
    "task_id": "t",
    "train": [{"input": [[0, 7, 7], [7, 0, 0]], "output": [[7, 7, 7]]}],
    "test": [{"input": [[1]], "output": [[9]]}, {"input": [[0, 7, 0]], "output": [[4, 4, 4]]}],
}


def record(data, field=None):
    data = data if isinstance(data, bytes) else json.dumps(data).encode()
    return parse_record(Line(0, data, len(data)), field)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"text": "a"}, "a"),
        ({"prompt": "b", "answer": "c"}, "b"),
        ({"prompt": "b", "text": "a"}, "a"),
        ({"tokens": [1, 2]}, [1, 2]),
        ({"tokens": []}, []),
        ({"text": ""}, ""),
    ],
)
def test_the_first_known_field_is_read(given, expected):
    assert record(given) == expected


def test_an_arc_task_is_written_as_its_pairs_and_the_last_test_input_without_its_output():
    assert record(TASK) == (
        "Each example turns an input grid into an output grid.\n"
        "\nExample 1\ninput 2x3\n1 077\n2 700\noutput 1x3\n1 777\n"
        "\nTest\ninput 1x3\n1 070\noutput\n"
    )


def test_task_ids_may_be_equal_or_missing_because_nothing_is_keyed_by_them():
    without = {key: value for key, value in TASK.items() if key != "task_id"}
    assert record(TASK) == record(without) == record(TASK | {"task_id": "another"})
    lines = [Line(index, json.dumps(TASK).encode(), 0) for index in range(3)]
    assert [isinstance(parse_record(line, None), str) for line in lines] == [True, True, True]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"train": 3}, "lists `train` and `test`"),
        ({"test": []}, "`test` is empty"),
        ({"train": [{"input": [[1]]}]}, r"train\[0\].output is not a list of rows"),
        ({"train": [7]}, r"train\[0\] is not an object"),
        ({"test": [{"input": []}]}, r"test\[0\].input is not a list of rows"),
        ({"test": [{"input": [[]]}]}, r"test\[0\].input is not a list of rows"),
        ({"test": [{"input": [[1, 2], [1]]}]}, "row 2 has 1 cells, row 1 has 2"),
        ({"test": [{"input": [[10]]}]}, "not a digit 0 to 9: 10"),
        ({"test": [{"input": [[-1]]}]}, "not a digit"),
        ({"test": [{"input": [[True]]}]}, "not a digit"),
        ({"test": [{"input": [[1.0]]}]}, "not a digit"),
        ({"test": [{"input": [["1"]]}]}, "not a digit"),
    ],
)
def test_a_wrong_grid_is_named(change, reason):
    with pytest.raises(ValueError, match=reason):
        encode_task(TASK | change)
    assert record(TASK | change).reason.startswith("is not an ARC task: ")


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("blank", b"", "is empty"),
        ("spaces", b" \t ", "is empty"),
        ("not UTF-8", b'{"text": "caf\xe9"}', "is not UTF-8: byte 14 is 0xe9"),
        ("UTF-16", '{"text": "a"}'.encode("utf-16"), "is not UTF-8"),
        ("not JSON", b"hello", "is not JSON"),
        ("cut off", b'{"text": "a', "is not JSON"),
        ("two values", b'{"text": "a"} {"text": "b"}', "is not JSON"),
        ("nested too deeply", b"[" * 200_000, "nested too deeply"),
        ("a list", b"[1]", "is a list, not a JSON object"),
        ("a string", b'"x"', "is a string, not"),
        ("null", b"null", "is null, not"),
        (
            "no known field",
            b'{"a": 1, "b": 2}',
            "no known field: it has `a`, `b`; known are `text`, `prompt`, `tokens`, or an ARC",
        ),
        ("an empty object", b"{}", "no known field: it has none"),
        ("half of an ARC task", b'{"train": []}', "no known field: it has `train`"),
        ("a number as text", b'{"text": 3}', "`text` is a number, not a string"),
        ("null as text", b'{"text": null}', "`text` is null"),
        ("a list as prompt", b'{"prompt": ["a"]}', "`prompt` is a list"),
        (
            "a lone surrogate",
            b'{"text": "ab\\ud800"}',
            r"`text` has a lone surrogate, \\ud800, at character 3",
        ),
        ("a string of tokens", b'{"tokens": "1 2"}', "`tokens` is a string, not a list"),
        ("true among tokens", b'{"tokens": [1, true]}', "true or false at position 1"),
        ("a fraction among tokens", b'{"tokens": [1.0]}', "a number with a fraction at position 0"),
        ("a lone surrogate in a name", b'{"\\udfff": 1}', "no known field"),
        ("a number too long to read", b'{"tokens": [' + b"9" * 5000 + b"]}", "is not JSON"),
    ],
)
def test_a_line_that_cannot_be_used_says_why(name, data, reason):
    result = record(data)
    assert isinstance(result, Bad)
    assert re.search(reason, result.reason), result.reason
    result.reason.encode("utf-8")


def test_a_pair_of_surrogates_is_one_character():
    assert record(b'{"text": "\\ud83d\\ude00"}') == "\U0001f600"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"question": "q", "text": "t"}, "q"),
        ({"question": [4, 5]}, [4, 5]),
        ({"text": "t"}, "has no field `question`, which the spec's record.field names; it has `text`"),
        ({"question": 4}, "`question` is a number, not a string"),
    ],
)
def test_record_field_names_the_field_to_read(given, expected):
    result = record(given, "question")
    assert (result.reason if isinstance(result, Bad) else result) == expected


@pytest.fixture
def read(tiny_folder, tmp_path):
    def run(lines, **spec):
        path = tmp_path / "stream"
        path.write_bytes(
            b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines)
        )
        reader = make_reader(f"{tiny_folder}/tokenizer.json", a_spec(**spec), 600, 1024)
        return list(read_samples(str(path), "datasets/r/stream_000.jsonl", reader))

    return run


def test_every_line_becomes_one_sample_or_one_reject_in_order(read):
    items = read([{"text": f"number {i}"} if i % 3 else b"bad\n" for i in range(1500)])
    assert [item.index for item in items] == list(range(1500))
    assert [isinstance(item, Sample) for item in items] == [i % 3 > 0 for i in range(1500)]
    assert items[3].record() == {"line": 4, "sample_idx": 3, "reason": items[3].reason}


@pytest.mark.parametrize(
    ("ids", "reason"),
    [([0, 600], "token id 600 at position 1 is not in the vocabulary (0 to 599)"), ([-1], "token id -1 at")],
)
def test_token_ids_outside_the_vocabulary_are_rejected(read, ids, reason):
    (item,) = read([{"tokens": ids}])
    assert reason in item.reason


@pytest.mark.parametrize("given", [{"text": ""}, {"tokens": []}])
def test_a_record_without_tokens_is_rejected(read, given):
    assert read([given])[0].reason == "has no tokens"


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
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(f"{tiny_folder}/tokenizer.json")
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=50)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    reader = make_reader(str(tmp_path / "tokenizer.json"), a_spec(), 600, 1024)
    assert (
        reader.tokenizer.encode("one two three four").ids
        == make_reader(f"{tiny_folder}/tokenizer.json", a_spec(), 600, 1024).tokenizer.encode("one two three four").ids
    )


def test_a_tokenizer_of_another_model_is_refused(tiny_folder):
    with pytest.raises(Failure, match="makes ids up to 599, the model has 100 embeddings") as failure:
        make_reader(f"{tiny_folder}/tokenizer.json", a_spec(), 100, 1024)
    assert failure.value.kind == "model"


def test_a_record_of_10_mb_is_rejected_and_the_next_is_read(read):
    big, small = read([{"text": "x" * 10_000_000}, {"text": "y"}])
    assert "bytes long; the limit is 8388608" in big.reason
    assert isinstance(small, Sample)

"""ARC tasks: grids as text, prompts, and the other forms that predictions_per_task asks for."""

import hashlib
import json
import os
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from build import a_spec
from gleaner_worker.failures import Failure
from gleaner_worker.records.arc import MAX_CELLS, VERSIONS, encode_task, parse_task
from gleaner_worker.records.augment import Task, augment
from gleaner_worker.records.grids import DEFAULT_ENCODER, parse_encoder
from gleaner_worker.records.samples import Reject, Sample, make_reader, read_samples, read_windows

GRID = ("07", "70", "11")
TASK = {
    "task_id": "t",
    "train": [
        {"input": [[0, 7, 7], [7, 0, 0]], "output": [[7, 7, 7]]},
        {"input": [[0, 2], [3, 4]], "output": [[5, 6], [8, 9]]},
        {"input": [[1]], "output": [[2]]},
    ],
    "test": [{"input": [[1]], "output": [[9]]}, {"input": [[0, 7, 0]], "output": [[4, 4, 4]]}],
}
DATA = os.path.join(os.path.dirname(__file__), "../../../shared/data/arc-agi-training.jsonl")
SYSTEM = VERSIONS["output-from-examples-v0"].system
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("MinimalGridEncoder()", "07\n70\n11"),
        ("GridWithSeparationEncoder('|')", "0|7\n7|0\n1|1"),
        ('GridWithSeparationEncoder(", ")', "0, 7\n7, 0\n1, 1"),
        ("GridWithSeparationEncoder('\\t')", "0\t7\n7\t0\n1\t1"),
        ("GridCodeBlockEncoder(MinimalGridEncoder())", "```grid\n07\n70\n11\n```"),
        ("GridShapeEncoder(MinimalGridEncoder())", "```grid shape: 3x2\n07\n70\n11\n```"),
        ("RowNumberEncoder(MinimalGridEncoder())", "1 07\n2 70\n3 11"),
        (DEFAULT_ENCODER, "```grid shape: 3x2\n1 07\n2 70\n3 11\n```"),
        ("RepeatNumberEncoder()", "000777\n777000\n111111"),
        ("RepeatNumberEncoder(2)", "0077\n7700\n1111"),
        ("RepeatNumberEncoder(n=2)", "0077\n7700\n1111"),
        ("RepeatNumberEncoder(GridWithSeparationEncoder(' '), 2)", "00 77\n77 00\n11 11"),
        ("RowNumberEncoder(RepeatNumberEncoder(2))", "1 0077\n2 7700\n3 1111"),
        ("ReplaceNumberEncoder(MinimalGridEncoder())", "ñę\nęñ\nòò"),
        (
            "ReplaceNumberEncoder(MinimalGridEncoder(), ['1', '0', 'c', 'd', 'e', 'f', 'g', 'hh', 'i', 'j'])",
            "1hh\nhh1\n00",
        ),
        ("ReplaceNumberEncoder(RowNumberEncoder(MinimalGridEncoder()))", "ò ñę\n÷ ęñ\nû òò"),
        ("ReplaceNumberEncoder(RepeatNumberEncoder(1))", "ñę\nęñ\nòò"),
        (" GridCodeBlockEncoder( GridWithSeparationEncoder( '|' ) ) ", "```grid\n0|7\n7|0\n1|1\n```"),
    ],
)
def test_an_expression_of_encoders_writes_a_grid(expression, expected):
    assert parse_encoder(expression).to_text(GRID) == expected


def test_each_of_the_ten_digits_has_its_own_text():
    assert parse_encoder("ReplaceNumberEncoder(MinimalGridEncoder())").to_text(("0123456789",)) == "ñò÷ûąćďęĚĞ"
    assert parse_encoder("RepeatNumberEncoder(2)").to_text(("0123456789",)) == "00112233445566778899"


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("", "it is not written as one"),
        ("MinimalGridEncoder", "MinimalGridEncoder stands where an encoder is wanted"),
        ("NopeEncoder()", "NopeEncoder is unknown"),
        ("MinimalGridEncoder(1)", "MinimalGridEncoder takes no arguments"),
        ("GridShapeEncoder()", "GridShapeEncoder lacks its base_encoder"),
        ("GridShapeEncoder('|')", "GridShapeEncoder wants an encoder as its base_encoder"),
        ("GridShapeEncoder(NopeEncoder())", "NopeEncoder is unknown"),
        ("GridShapeEncoder(base=MinimalGridEncoder())", "GridShapeEncoder takes base_encoder"),
        ("GridShapeEncoder(MinimalGridEncoder(), 3)", "GridShapeEncoder takes base_encoder"),
        ("GridWithSeparationEncoder()", "GridWithSeparationEncoder lacks its split_symbol"),
        ("GridWithSeparationEncoder('')", "'' is not a string of 1 to 16 printable characters"),
        ("GridWithSeparationEncoder('\\n')", "'\\n' is not a string of 1 to 16 printable characters"),
        ("GridWithSeparationEncoder('\\ud800')", "is not a string of 1 to 16 printable characters"),
        ("RepeatNumberEncoder(0)", "RepeatNumberEncoder repeats 1 to 16 times, not 0"),
        ("RepeatNumberEncoder(10**9)", "10 ** 9 stands where an argument is wanted"),
        ("RepeatNumberEncoder(True)", "RepeatNumberEncoder wants an encoder or a number as its base_encoder"),
        (
            "RepeatNumberEncoder(RepeatNumberEncoder(RepeatNumberEncoder(16), 16), 16)",
            "more than 256 characters of a cell",
        ),
        ("ReplaceNumberEncoder(MinimalGridEncoder(), ['a'])", "wants ten different strings"),
        ("ReplaceNumberEncoder(MinimalGridEncoder(), 3)", "wants a list of strings as its symbols"),
        ("__import__('os').system('true')", "__import__('os').system('true') stands where an encoder is wanted"),
        ("open('/etc/passwd')", "open is unknown"),
        ("GridShapeEncoder(*[MinimalGridEncoder()])", "stands where an argument is wanted"),
        ("GridShapeEncoder(" * 200 + ")" * 200, "it is longer than 1000 characters"),
        ("(" * 900, "it is not written as one"),
        ("MinimalGridEncoder(); 1", "it is not written as one"),
        ("a\0b", "it is not written as one"),
        ("\ud800", "it is not written as one"),
    ],
)
def test_what_is_no_encoder_fails_the_run_naming_what_is_wrong_and_what_is_known(tiny_folder, expression, reason):
    with pytest.raises(Failure) as failure:
        make_reader(tiny_folder, a_spec(record={"encoder": expression or " "}), 600, 64)
    assert failure.value.kind == "model"
    assert reason in failure.value.reason
    assert (
        "known are MinimalGridEncoder(), GridWithSeparationEncoder('|'), GridCodeBlockEncoder(BASE)"
        in failure.value.reason
    )
    failure.value.reason.encode("utf-8")


@pytest.mark.parametrize("version", ["nope", "code-from-examples-v0", "output-from-code-v0", "Output-From-Examples-V0"])
def test_an_unknown_version_of_the_prompt_fails_the_run_and_the_known_ones_are_listed(tiny_folder, version):
    with pytest.raises(Failure) as failure:
        make_reader(tiny_folder, a_spec(record={"prompt_version": version}), 600, 64)
    assert failure.value.kind == "model"
    assert f"{version!r} is not a version of the prompt; known are output-from-examples-v0, " in failure.value.reason


def read(folder, tmp_path, records, **record):
    path = tmp_path / "stream"
    path.write_text("".join(json.dumps(entry) + "\n" for entry in records))
    reader = make_reader(folder, a_spec(record=record, max_seq_length=100_000), 600, 100_000)
    return [item for window in read_windows(str(path), "x", reader) for item in window]


def prompts(folder, tmp_path, records=(TASK,), **record):
    items = read(folder, tmp_path, records, **record)
    return [item.reason if isinstance(item, Reject) else item.prompt.content for item in items]


def test_a_task_is_written_as_its_pairs_and_the_last_test_input_and_ends_where_the_grid_would_begin():
    assert encode_task(TASK) == (
        f"{SYSTEM}\n\n"
        "Find the rule in these examples. Then give the output grid of the test.\n\n"
        "Example 1\n\nInput:\n```grid shape: 2x3\n1 077\n2 700\n```\n\nOutput:\n```grid shape: 1x3\n1 777\n```\n\n"
        "Example 2\n\nInput:\n```grid shape: 2x2\n1 02\n2 34\n```\n\nOutput:\n```grid shape: 2x2\n1 56\n2 89\n```\n\n"
        "Example 3\n\nInput:\n```grid shape: 1x1\n1 1\n```\n\nOutput:\n```grid shape: 1x1\n1 2\n```\n\n"
        "Test\n\nInput:\n```grid shape: 1x3\n1 070\n```\n\n"
        "Output:\n```grid"
    )


@pytest.mark.parametrize(
    ("version", "encoder", "begin", "end", "grids"),
    [
        ("output-from-examples-v0", None, SYSTEM, "\n\nOutput:\n```grid", 7),
        ("output-from-examples-v1", None, "One rule turns each", "\n\nOutput:\n```grid", 7),
        ("input-from-inputs-v0", None, "These grids are alike", "\n\nAnother grid:\n```grid", 3),
        ("output-from-outputs-v0", None, "These grids are alike", "\n\nAnother grid:\n```grid", 3),
        (
            "input-from-inputs-v0",
            "GridCodeBlockEncoder(MinimalGridEncoder())",
            "These",
            "\n\nAnother grid:\n```grid",
            3,
        ),
        ("output-from-examples-v1", "MinimalGridEncoder()", "One rule", "\n\nTest\n\nInput:\n070\n\nOutput:\n", 0),
    ],
)
def test_each_version_shows_its_own_grids(tiny_folder, tmp_path, version, encoder, begin, end, grids):
    (text,) = prompts(tiny_folder, tmp_path, prompt_version=version, encoder=encoder)
    assert text.startswith(begin)
    assert text.endswith(end)
    assert text.count("```grid") == (grids + 1 if grids else 0)
    if version.startswith("input"):
        assert "02" in text and "56" not in text and "070" not in text
    if version.startswith("output-from-outputs"):
        assert "56" in text and "02" not in text and "070" not in text


REFUSES_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}" + CHATML
DROPS_SYSTEM = CHATML.replace("{% for m in messages %}", "{% for m in messages if m.role != 'system' %}")


@pytest.mark.parametrize(
    ("template", "version", "begin"),
    [
        (CHATML, "output-from-examples-v0", f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\nFind the rule"),
        (CHATML, "output-from-examples-v1", "<|im_start|>user\nOne rule turns"),
        (REFUSES_SYSTEM, "output-from-examples-v0", f"<|im_start|>user\n{SYSTEM}\n\nFind the rule"),
        (DROPS_SYSTEM, "output-from-examples-v0", f"<|im_start|>user\n{SYSTEM}\n\nFind the rule"),
    ],
)
def test_with_a_chat_template_the_prompt_is_a_chat_that_ends_inside_the_answer(
    tiny_folder, tmp_path, template, version, begin
):
    folder = tmp_path / "model"
    folder.mkdir()
    os.link(f"{tiny_folder}/tokenizer.json", folder / "tokenizer.json")
    (folder / "chat_template.jinja").write_text(template)
    (item,) = read(str(folder), tmp_path, [TASK], prompt_version=version)
    assert item.prompt.is_complete
    assert item.prompt.content.startswith(begin)
    assert item.prompt.content.endswith("1 070\n```<|im_end|>\n<|im_start|>assistant\nOutput:\n```grid")


def test_a_chat_template_that_fails_rejects_the_task_with_the_reason(tiny_folder, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    os.link(f"{tiny_folder}/tokenizer.json", folder / "tokenizer.json")
    (folder / "chat_template.jinja").write_text("{{ 1 / 0 }}")
    items = read(str(folder), tmp_path, [TASK], predictions_per_task=2)
    assert [item.index for item in items] == [0, 1]
    assert all(
        "is an ARC task that cannot be written with the chat template: line 1: Zero" in item.reason for item in items
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"train": 3}, "lists `train` and `test`"),
        ({"train": []}, "`train` is empty"),
        ({"test": []}, "`test` is empty"),
        ({"train": [{"input": [[1]]}]}, "train[0].output is not a list of rows"),
        ({"train": [7]}, "train[0] is not an object"),
        ({"test": [{"input": []}]}, "test[0].input is not a list of rows"),
        ({"test": [{"input": [[]]}]}, "test[0].input is not a list of rows"),
        ({"test": [{"input": [[1, 2], [1]]}]}, "row 2 has 1 cells, row 1 has 2"),
        ({"test": [{"input": [[10]]}]}, "not a digit 0 to 9: 10"),
        ({"test": [{"input": [[-1]]}]}, "not a digit"),
        ({"test": [{"input": [[True]]}]}, "not a digit"),
        ({"test": [{"input": [[1.0]]}]}, "not a digit"),
        ({"test": [{"input": [["1"]]}]}, "not a digit"),
        ({"test": [{"input": [[[1]]]}]}, "not a digit 0 to 9: a list or an object"),
        ({"test": [{"input": [[1] * 400] * 400}]}, f"its grids have 160019 cells; the limit is {MAX_CELLS}"),
    ],
)
def test_a_wrong_grid_is_named(change, reason, tiny_folder, tmp_path):
    (item,) = read(tiny_folder, tmp_path, [TASK | change], predictions_per_task=3)
    assert item.reason.startswith("is not an ARC task: ")
    assert reason in item.reason
    assert (item.index, item.last) == (0, 2)


@pytest.mark.parametrize("version", list(VERSIONS))
def test_the_outputs_of_the_tests_are_never_read(tiny_folder, tmp_path, version):
    tests = [TASK["test"][-1] | {"output": output} for output in ([[4, 4, 4]], [[3]], "x", None)] + [
        {"input": [[0, 7, 0]]}
    ]
    records = [TASK | {"test": [{"input": [[8]]}, test]} for test in tests]
    made = prompts(tiny_folder, tmp_path, records, predictions_per_task=9, prompt_version=version)
    assert len(made) == 9 * len(records)
    assert len({tuple(made[n * 9 : n * 9 + 9]) for n in range(len(records))}) == 1


def test_the_task_is_followed_by_its_other_forms_and_the_text_is_the_same_for_ever(tiny_folder, tmp_path):
    made = prompts(tiny_folder, tmp_path, [TASK, {"text": "x"}, TASK | {"task_id": "other"}], predictions_per_task=12)
    assert made[0] == encode_task(TASK)
    assert len(set(made[:12])) == 12
    assert made[13:] == made[:12]
    # Written down once: a change here is another data set for everybody.
    assert augment(parse_task(TASK), 42, 1) == Task(
        train=((("65", "04"), ("39", "81")), (("2",), ("4",)), (("700", "077"), ("777",))), test=("070",)
    )
    assert (
        hashlib.sha256("\n".join(made[:12]).encode()).hexdigest()
        == "64307ecac65b7a015bc0be931592784f5169d74eba6edd96518b5fe007a4b7ab"
    )


def test_another_seed_makes_other_forms(tiny_folder):
    task = parse_task(TASK)
    assert augment(task, 1, 0) == augment(task, 2, 0) == task
    assert [augment(task, 1, k) for k in range(1, 9)] != [augment(task, 2, k) for k in range(1, 9)]


def all_turns(grid):
    turns = set()
    for rows in (grid, tuple(row[::-1] for row in grid)):
        for _ in range(4):
            rows = tuple("".join(row[n] for row in rows[::-1]) for n in range(len(rows[0])))
            turns.add(rows)
    return turns


def recoloured(a, b):
    """The colours that become which, if one grid is the other in other colours; None if it is not."""
    pairs = set(zip("|".join(a), "|".join(b), strict=False))
    table = dict(pairs)
    return table if len(pairs) == len(table) == len(set(table.values())) and len(a) == len(b) else None


@given(st.randoms(use_true_random=False), st.integers(0, 2**31), st.integers(1, 40))
def test_another_form_is_the_same_task_turned_recoloured_and_in_another_order(rng: random.Random, seed, k):
    def grid():
        height, width = rng.randint(1, 4), rng.randint(1, 4)
        return [[rng.randint(0, 9) for _ in range(width)] for _ in range(height)]

    task = parse_task({"train": [{"input": grid(), "output": grid()} for _ in range(3)], "test": [{"input": grid()}]})
    other = augment(task, seed, k)
    assert sorted(len("".join(grid)) for grid in other.grids) == sorted(len("".join(grid)) for grid in task.grids)
    assert any(recoloured(turned, other.test) for turned in all_turns(task.test))
    for given_, wanted in other.train:
        assert any(
            any(recoloured(turned, given_) for turned in all_turns(before))
            and any(recoloured(turned, wanted) for turned in all_turns(after))
            for before, after in task.train
        )


def test_of_eight_forms_each_is_turned_in_another_way_and_the_background_seldom_changes():
    shape = ("100", "220", "000")  # unlike each of its turns, whatever the colours
    changed = 0
    for seed in range(300):
        task = parse_task(
            {"train": [{"input": [[1]], "output": [[2]]}], "test": [{"input": [[1, 0, 0], [2, 2, 0], [0, 0, 0]]}]}
        )
        forms = [augment(task, seed, k).test for k in range(8)]
        turns = {turn for turn in all_turns(shape) for form in forms if recoloured(turn, form)}
        assert len(turns) == 8
        changed += sum("".join(form).count("0") != 6 for form in forms)
    assert 0.07 < changed / (300 * 7) < 0.11  # one in ten is asked to change, and one in ten of those draws 0 again


def test_several_predictions_of_what_is_no_task_reject_the_line_with_all_its_samples(tiny_folder, tmp_path):
    items = read(tiny_folder, tmp_path, [{"text": "a"}, TASK, {"tokens": [1]}], predictions_per_task=4)
    assert [(item.index, getattr(item, "last", item.index)) for item in items] == [
        (0, 3),
        (4, 4),
        (5, 5),
        (6, 6),
        (7, 7),
        (8, 11),
    ]
    assert items[0].reason == "is not an ARC task: predictions_per_task 4 is for those alone"
    assert items[-1].record() == {"line": 3, "sample_idx": 8, "reason": items[-1].reason, "samples": 4}


def test_a_prediction_that_is_too_long_is_rejected_alone(tiny_folder, tmp_path):
    path = tmp_path / "stream"
    path.write_text(json.dumps({"text": "a"}) + "\n" + json.dumps(TASK) + "\n")
    spec = {"record": {"predictions_per_task": 8}, "max_seq_length": 512}
    lengths = [
        len(item.token_ids)
        for item in read_samples(str(path), "x", make_reader(tiny_folder, a_spec(**spec), 600, 999))
        if isinstance(item, Sample)
    ]
    limit = sorted(lengths)[4]
    items = list(
        read_samples(str(path), "x", make_reader(tiny_folder, a_spec(**spec | {"max_seq_length": limit}), 600, 999))
    )
    assert [item.index for item in items] == [0, *range(8, 16)]
    assert [isinstance(item, Reject) for item in items[1:]] == [length > limit for length in lengths]
    assert {(item.line, item.samples) for item in items[1:] if isinstance(item, Reject)} == {(1, 1)}


def test_a_field_may_hold_the_task(tiny_folder, tmp_path):
    records = [{"task": TASK, "text": "no"}, {"task": {"train": []}}, {"task": {"text": "no"}}]
    good, bad, other = prompts(tiny_folder, tmp_path, records, field="task")
    assert good == encode_task(TASK)
    assert bad == other == "`task` is an object, but not an ARC task with `train` and `test`"


@pytest.mark.skipif(not os.path.exists(DATA), reason="shared/data is not there")
def test_every_task_of_arc_is_written_without_its_test_output(tiny_folder, tmp_path):
    with open(DATA) as file:
        tasks = [json.loads(line) for line in file]
    made = prompts(tiny_folder, tmp_path, tasks, encoder="MinimalGridEncoder()")
    assert len(made) == 400
    for task, text in zip(tasks, made, strict=True):
        assert text.count("Example ") == len(task["train"])
        assert text.endswith("\n".join("".join(map(str, row)) for row in task["test"][-1]["input"]) + "\n\nOutput:\n")

"""ARC tasks as prompts: the versions, the chat templates, and the tasks that are rejected."""

import json
import os

import pytest

from arc_tasks import TASK, encode_task, prompts, read
from build import a_spec, fails
from gleaner_worker.records.chat.arc import MAX_CELLS, VERSIONS
from gleaner_worker.records.samples.sample import Reject, Sample
from gleaner_worker.records.samples.samples import read_samples
from gleaner_worker.records.samples.tokenize_lines import make_sample_settings

DATA = os.path.join(os.path.dirname(__file__), "../../../../shared/data/arc-agi-training.jsonl")
SYSTEM = VERSIONS["output-from-examples-v0"].system
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.mark.parametrize("version", ["nope", "code-from-examples-v0", "output-from-code-v0", "Output-From-Examples-V0"])
def test_an_unknown_prompt_version_fails_the_run_and_lists_the_known_versions(tiny_folder, version):
    with fails("model") as failure:
        make_sample_settings(tiny_folder, a_spec(record={"prompt_version": version}), 600, 64)
    says = f"record.prompt_version is {version!r}, this worker supports output-from-examples-v0, "
    assert says in failure.value.reason


def test_a_prompt_has_all_pairs_and_the_last_test_input_and_ends_at_the_beginning_of_the_grid():
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
def test_each_prompt_version_shows_its_own_grids(tiny_folder, tmp_path, version, encoder, begin, end, grids):
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
def test_a_chat_prompt_ends_inside_the_answer(tiny_folder, tmp_path, template, version, begin):
    folder = tmp_path / "model"
    folder.mkdir()
    os.link(f"{tiny_folder}/tokenizer.json", folder / "tokenizer.json")
    (folder / "chat_template.jinja").write_text(template)
    (item,) = read(str(folder), tmp_path, [TASK], prompt_version=version)
    assert item.prompt.is_complete
    assert item.prompt.content.startswith(begin)
    assert item.prompt.content.endswith("1 070\n```<|im_end|>\n<|im_start|>assistant\nOutput:\n```grid")


def test_a_failing_chat_template_rejects_the_task_with_the_reason(tiny_folder, tmp_path):
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
def test_a_task_with_an_invalid_grid_is_rejected_with_the_reason(change, reason, tiny_folder, tmp_path):
    (item,) = read(tiny_folder, tmp_path, [TASK | change], predictions_per_task=3)
    assert item.reason.startswith("is not an ARC task: ")
    assert reason in item.reason
    assert (item.index, item.last) == (0, 2)


@pytest.mark.parametrize("version", list(VERSIONS))
def test_prompts_are_independent_of_the_outputs_of_test_pairs(tiny_folder, tmp_path, version):
    tests = [TASK["test"][-1] | {"output": output} for output in ([[4, 4, 4]], [[3]], "x", None)] + [
        {"input": [[0, 7, 0]]}
    ]
    records = [TASK | {"test": [{"input": [[8]]}, test]} for test in tests]
    made = prompts(tiny_folder, tmp_path, records, predictions_per_task=9, prompt_version=version)
    assert len(made) == 9 * len(records)
    assert len({tuple(made[n * 9 : n * 9 + 9]) for n in range(len(records))}) == 1


def test_a_line_without_a_task_rejects_all_its_predictions(tiny_folder, tmp_path):
    items = read(tiny_folder, tmp_path, [{"text": "a"}, TASK, {"tokens": [1]}], predictions_per_task=4)
    assert [(item.index, getattr(item, "last", item.index)) for item in items] == [
        (0, 3),
        (4, 4),
        (5, 5),
        (6, 6),
        (7, 7),
        (8, 11),
    ]
    assert items[0].reason == "is not an ARC task: predictions_per_task 4 is for ARC tasks only"
    assert items[-1].record() == {"line": 3, "sample_idx": 8, "reason": items[-1].reason, "samples": 4}


def test_a_prediction_that_is_too_long_is_rejected_alone(tiny_folder, tmp_path):
    path = tmp_path / "stream"
    path.write_text(json.dumps({"text": "a"}) + "\n" + json.dumps(TASK) + "\n")
    spec = {"record": {"predictions_per_task": 8}, "max_seq_length": 512}
    lengths = [
        len(item.token_ids)
        for item in read_samples(str(path), "x", make_sample_settings(tiny_folder, a_spec(**spec), 600, 999))
        if isinstance(item, Sample)
    ]
    limit = sorted(lengths)[4]
    items = list(
        read_samples(
            str(path), "x", make_sample_settings(tiny_folder, a_spec(**spec | {"max_seq_length": limit}), 600, 999)
        )
    )
    assert [item.index for item in items] == [0, *range(8, 16)]
    assert [isinstance(item, Reject) for item in items[1:]] == [length > limit for length in lengths]
    assert {(item.line, item.samples) for item in items[1:] if isinstance(item, Reject)} == {(1, 1)}


def test_record_field_may_hold_the_task(tiny_folder, tmp_path):
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

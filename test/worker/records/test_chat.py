"""Chats compared with the results of transformers in golden_chat.jsonl (see make_golden_chat.py)."""

import json
import os
from functools import cache

import pytest

from build import a_spec, fails
from gleaner_worker.records.samples.sample import Reject, Sample
from gleaner_worker.records.samples.samples import read_samples
from gleaner_worker.records.samples.tokenize_lines import make_sample_settings

CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


@cache
def fixture():
    """The models by name: bos, files, and the cases with the results of transformers."""
    models = {}
    with open(os.path.join(os.path.dirname(__file__), "..", "golden_chat.jsonl"), encoding="utf-8") as file:
        for name, entry in ((entry.pop("name"), entry) for entry in map(json.loads, file)):
            if "files" in entry:
                models[name] = entry | {"cases": []}
            else:
                models[name]["cases"].append(entry)
    return models


def write_folder(folder, name, **changes):
    """The files of a model of the fixture; a change of None removes a file."""
    files = fixture()[name]["files"] | changes
    for file_name, text in files.items():
        if text is not None:
            (folder / file_name).parent.mkdir(exist_ok=True)
            (folder / file_name).write_text(text if isinstance(text, str) else json.dumps(text), encoding="utf-8")
    return str(folder)


def read(folder, tmp_path, records, **spec):
    path = tmp_path / "stream"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    settings = make_sample_settings(folder, a_spec(max_seq_length=512, **spec), 1000, 4096)
    return list(read_samples(str(path), "x", settings))


@pytest.mark.parametrize("has_prompt", [False, True])
@pytest.mark.parametrize("name", fixture())
def test_a_chat_has_the_token_ids_of_transformers(tmp_path, name, has_prompt):
    cases = [case for case in fixture()[name]["cases"] if case["add_generation_prompt"] == has_prompt]
    chats = [{"messages": case["messages"]} | ({"tools": case["tools"]} if case["tools"] else {}) for case in cases]
    items = read(write_folder(tmp_path, name), tmp_path, chats, record={"add_generation_prompt": has_prompt})
    for number, (case, item) in enumerate(zip(cases, items, strict=True)):
        if "error" in case:
            assert isinstance(item, Reject), number
            assert case["error"] in item.reason, number
        else:
            assert item.token_ids.tolist() == case["ids"], number
            assert item.preview == case["text"][:200], number


def test_the_fixture_has_templates_and_tokenizers_with_and_without_a_bos():
    """So the comparison above would show a doubled and a missing BOS."""
    counts = {}
    for name, model in fixture().items():
        ids = next(case["ids"] for case in model["cases"] if "ids" in case)
        tokens = {
            token["id"]: token["content"] for token in json.loads(model["files"]["tokenizer.json"])["added_tokens"]
        }
        counts[name] = [tokens.get(id) for id in ids].count(model["bos"]) if model["bos"] else 0
    assert counts == {"chatml": 0, "llama": 1, "gemma": 1, "mistral": 1, "many": 0, "no-bos-anywhere": 0}


@pytest.mark.parametrize("name", list(fixture()))
def test_a_text_gets_the_bos_of_its_tokenizer_once(tmp_path, name):
    folder = write_folder(tmp_path, name)
    bos = fixture()[name]["bos"]
    plain, written = read(folder, tmp_path, [{"text": "two and two"}, {"text": f"{bos or ''}two and two"}])
    tokenizer = make_sample_settings(folder, a_spec(), 1000, 64).tokenizer
    begin = [tokenizer.token_to_id(bos)] if bos else []
    expected = begin + tokenizer.encode("two and two", add_special_tokens=False).ids
    assert plain.token_ids.tolist() == written.token_ids.tolist() == expected


def test_the_chat_template_is_found_in_each_of_its_files_by_precedence(tmp_path):
    cases = {
        "string": {"tokenizer_config.json": {"chat_template": CHATML}},
        "list": {"tokenizer_config.json": {"chat_template": [{"name": "default", "template": CHATML}]}},
        "file": {"tokenizer_config.json": {}, "chat_template.jinja": CHATML},
        "file first": {"tokenizer_config.json": {"chat_template": "wrong"}, "chat_template.jinja": CHATML},
        "old file": {"tokenizer_config.json": None, "chat_template.json": {"chat_template": CHATML}},
        "old file last": {
            "tokenizer_config.json": {"chat_template": CHATML},
            "chat_template.json": {"chat_template": "wrong"},
        },
    }
    for name, files in cases.items():
        place = tmp_path / name
        place.mkdir()
        folder = write_folder(place, "chatml", **files)
        (sample,) = read(folder, tmp_path, [{"messages": [{"role": "user", "content": "hi"}]}])
        assert sample.preview == "<|im_start|>user\nhi<|im_end|>\n", name


def test_messages_with_tools_use_the_template_for_tools(tmp_path):
    both = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools {{ tools | length }}"}]
    folder = write_folder(tmp_path, "chatml", **{"tokenizer_config.json": {"chat_template": both}})
    said = [{"role": "user", "content": "hi"}]
    items = read(
        folder, tmp_path, [{"messages": said}, {"messages": said, "tools": [{}, {}]}, {"messages": said, "tools": 3}]
    )
    assert [getattr(item, "preview", None) for item in items] == ["plain", "tools 2", None]
    assert items[2].reason == "`tools` is a number, not a list of objects"


def test_a_template_sees_the_special_tokens_that_the_files_name(tmp_path):
    config = {"chat_template": "{{ image_token }} {{ tool_token }} {{ eos_token }}", "image_token": "<i>"}
    config |= {"extra_special_tokens": {"tool_token": "<t>"}, "eos_token": {"content": "<e>"}}
    folder = write_folder(tmp_path, "chatml", **{"tokenizer_config.json": config, "special_tokens_map.json": None})
    (sample,) = read(folder, tmp_path, [{"messages": [{"role": "user", "content": "hi"}]}])
    assert sample.preview == "<i> <t> <e>"


def test_chat_templates_in_files_of_their_own_replace_those_of_the_config(tmp_path):
    said = [{"role": "user", "content": "hi"}]
    records = [{"messages": said}, {"messages": said, "tools": [{}, {}]}, {"messages": said, "tools": []}]
    config = {"tokenizer_config.json": {"chat_template": "of the config"}}
    tools = {"additional_chat_templates/tool_use.jinja": "tools {{ tools | length }}"}
    tools |= {"additional_chat_templates/rag.jinja": "rag", "additional_chat_templates/notes.txt": "no template"}
    (tmp_path / "with").mkdir()
    folder = write_folder(tmp_path / "with", "chatml", **config, **tools, **{"chat_template.jinja": "plain"})
    assert [item.preview for item in read(folder, tmp_path, records)] == ["plain", "tools 2", "tools 0"]
    (tmp_path / "without").mkdir()
    plain, *others = read(write_folder(tmp_path / "without", "chatml", **config, **tools), tmp_path, records)
    assert "no default among its chat templates rag, tool_use" in plain.reason
    assert [item.preview for item in others] == ["tools 2", "tools 0"]


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("name", "config", "reason"),
    [
        ("none", {}, "the model has no chat template (in chat_template.jinja or tokenizer_config.json)"),
        ("broken", {"chat_template": "a\n{% if %}"}, "the model's chat template cannot be used: line 2: "),
        (
            "no default",
            {"chat_template": [{"name": "rag", "template": "x"}]},
            "no default among its chat templates rag",
        ),
        (
            "names a template by a list",
            {"chat_template": [{"name": ["a"], "template": "x"}]},
            "no default among its chat templates ['a']",
        ),
        ("too long", {"chat_template": "x" * 2_000_000}, "it is 2000000 characters long; the limit is 131072"),
        ("raises an error", {"chat_template": "{{ 1 / 0 }}"}, "line 1: ZeroDivisionError: division by zero"),
        (
            "asks for a long date",
            {"chat_template": "{{ strftime_now('%9999d' * 100) }}"},
            "line 1: it asks for the date with 600 characters; the limit is 100",
        ),
        ("gives a number as the format of the date", {"chat_template": "{{ strftime_now(3) }}"}, "line 1: TypeError: "),
        ("gets a date attribute", {"chat_template": "{{ strftime_now.DATE }}"}, "line 1: 'strftime_now' is undefined"),
        ("is a number", {"chat_template": 7}, "the model has no chat template"),
    ],
)
def test_an_unusable_template_rejects_chats_and_no_other_records(tmp_path, name, config, reason):
    folder = write_folder(tmp_path, "chatml", **{"tokenizer_config.json": config})
    chat, text = read(folder, tmp_path, [{"messages": [{"role": "user", "content": "hi"}]}, {"text": "hi"}])
    assert chat.reason.startswith("`messages` cannot be written with the chat template: ")
    assert reason in chat.reason
    assert isinstance(text, Sample)


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ strftime_now('%d %B %Y') }}", "26 July 2024"),
        ("{% set date = strftime_now('%Y-%m-%d') %}{{ date }}", "2024-07-26"),
        ("{% if strftime_now is defined %}{{ strftime_now('%d') }}{% else %}its own{% endif %}", "its own"),
        ("{% if strftime_now %}{{ strftime_now('%d') }}{% else %}its own{% endif %}", "its own"),
        ("{{ strftime_now | default('its own') }}", "its own"),
        ("nothing: {{ strftime_now }}", "nothing: "),
    ],
)
def test_the_date_of_a_prompt_is_the_same_every_day(tmp_path, template, text):
    folder = write_folder(tmp_path, "chatml", **{"tokenizer_config.json": {"chat_template": template}})
    (sample,) = read(folder, tmp_path, [{"messages": [{"role": "user", "content": "hi"}]}])
    assert sample.preview == text


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"tokenizer_config.json": "{"}, "Failed to read tokenizer_config.json of /nowhere: "),
        ({"tokenizer_config.json": "[]"}, "tokenizer_config.json of /nowhere: it is not a JSON object"),
        ({"tokenizer_config.json": "[" * 200_000}, "Failed to read tokenizer_config.json of /nowhere: "),
        ({"special_tokens_map.json": "3"}, "special_tokens_map.json of /nowhere: it is not a JSON object"),
        ({"tokenizer.json": None}, "the tokenizer of /nowhere: it has no tokenizer.json"),
        ({"tokenizer.json": "{"}, "Failed to read tokenizer.json of /nowhere: "),
    ],
)
def test_an_unreadable_model_folder_fails_the_run(tmp_path, files, reason):
    folder = write_folder(tmp_path, "chatml", **files)
    with fails("model") as failure:
        make_sample_settings(folder, a_spec(), 1000, 64)
    assert reason in failure.value.reason


def test_a_tokenizer_file_over_the_limit_is_refused_with_its_size(tmp_path):
    folder = write_folder(tmp_path, "chatml")
    os.truncate(tmp_path / "tokenizer.json", 300_000_000)  # the added bytes take no disk
    with fails("model", "of /nowhere: it has 300000000 bytes, and the limit is 268435456"):
        make_sample_settings(folder, a_spec(), 1000, 64)


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([], "`messages` is an empty list, not a list of messages"),
        ("hi", "`messages` is a string, not a list of messages"),
        (None, "`messages` is null, not a list of messages"),
        ([["hi"]], "`messages[0]` is not an object with `role` and `content`"),
        ([{"content": "hi"}], "`messages[0]` has no `role` that is a string"),
        ([{"role": 3, "content": "hi"}], "`messages[0]` has no `role` that is a string"),
        (
            [{"role": "user", "content": "a"}, {"role": "user", "content": 3}],
            "`messages[1]` has a `content` that is neither",
        ),
        ([{"role": "user", "content": {"text": "a"}}], "`messages[0]` has a `content` that is neither"),
        ([{"role": "user", "content": ["a"]}], "`messages[0]` has a `content` that is a list, but not of parts"),
        (
            [{"role": "user", "content": [{"text": "a"}]}],
            "`messages[0]` has a `content` that is a list, but not of parts",
        ),
        ([{"role": "user", "content": [{"type": "text", "text": 3}]}], "`messages[0]` has a part of type text without"),
        (
            [{"role": "user", "content": [{"type": "text", "text": "a"}]}],
            "`messages[0]` has a list as its `content`, and the model's chat template supports only strings",
        ),
        ([{"role": "user", "content": "a\ud800"}], "`messages` has a lone surrogate, \\ud800, at character 19"),
        ([{"role": "user\udfff", "content": "a"}], "`messages` has a lone surrogate, \\udfff"),
    ],
)
def test_unusable_messages_are_rejected_with_the_reason(tmp_path, messages, reason):
    folder = write_folder(tmp_path, "chatml", **{"tokenizer_config.json": {"chat_template": CHATML}})
    bad, good = read(folder, tmp_path, [{"messages": messages}, {"messages": [{"role": "user", "content": "hi"}]}])
    assert bad.reason.startswith(reason)
    assert isinstance(good, Sample)


def test_another_field_may_hold_the_messages(tmp_path):
    folder = write_folder(tmp_path, "chatml", **{"tokenizer_config.json": {"chat_template": CHATML}})
    records = [{"chat": [{"role": "user", "content": "hi"}], "text": "no"}, {"chat": [{"role": "user"}, 3]}]
    good, bad = read(folder, tmp_path, records, record={"field": "chat"})
    assert good.preview == "<|im_start|>user\nhi<|im_end|>\n"
    assert bad.reason == "`chat[1]` is not an object with `role` and `content`"


VARIABLES = "{% for m in messages %}{{ m.content }} {{ enable_thinking }} {{ effort }} {{ eos_token }} {% endfor %}"


@pytest.mark.parametrize(
    ("of_run", "of_record", "text"),
    [
        ({}, None, "two   <|im_end|> "),
        ({"enable_thinking": False}, None, "two False  <|im_end|> "),
        ({"enable_thinking": False, "effort": "low"}, {"enable_thinking": True}, "two True low <|im_end|> "),
        ({}, {"effort": [1, "x"]}, "two  [1, 'x'] <|im_end|> "),
        ({}, {"eos_token": "!"}, "two   ! "),
    ],
)
def test_variables_of_a_run_and_of_a_record_reach_the_chat_template(tmp_path, of_run, of_record, text):
    folder = write_folder(tmp_path, "chatml", **{"tokenizer_config.json": {"eos_token": "<|im_end|>"}})
    (tmp_path / "chat_template.jinja").write_text(VARIABLES)
    record = {"messages": [{"role": "user", "content": "two"}], "chat_template_kwargs": of_record}
    (item,) = read(folder, tmp_path, [record], record={"template_kwargs": of_run})
    assert isinstance(item, Sample)
    assert item.preview == text


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ("enable_thinking", "`chat_template_kwargs` is a string, not an object of variables"),
        ({"messages": []}, "has 'messages', which is not a variable that a record can set"),
        ({"a b": 1}, "has 'a b', which is not a variable"),
        ({"effort": "x" * 9_000_000}, "the limit is"),
    ],
)
def test_a_record_with_variables_that_cannot_reach_the_template_is_rejected(tmp_path, variables, reason):
    folder = write_folder(tmp_path, "chatml")
    (tmp_path / "chat_template.jinja").write_text(VARIABLES)
    record = {"messages": [{"role": "user", "content": "two"}], "chat_template_kwargs": variables}
    (item,) = read(folder, tmp_path, [record])
    assert isinstance(item, Reject)
    assert reason in item.reason


def test_variables_reach_the_template_of_a_task_and_of_answers(tmp_path):
    folder = write_folder(tmp_path, "chatml")
    template = CHATML.replace("{{ m.content }}", "{{ effort }}{{ m.content }}")
    (tmp_path / "chat_template.jinja").write_text(template)
    grid = [[1]]
    task = {"train": [{"input": grid, "output": grid}], "test": [{"input": grid}]}
    talk = {"messages": [{"role": "user", "content": "two"}, {"role": "assistant", "content": "two"}]}
    of_run = {"template_kwargs": {"effort": "and"}}
    (item,) = read(folder, tmp_path, [task], record=of_run)
    assert item.preview.startswith("<|im_start|>system\nandYou solve")
    (item,) = read(
        folder, tmp_path, [talk | {"chat_template_kwargs": {"effort": "two"}}], tokens="assistant", record=of_run
    )
    assert item.preview.endswith("twotwo<|im_end|>\n")


USER = {"role": "user", "content": "Is it?"}
TRIMMED = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</s>{% endfor %}"
PARTS = "{% for m in messages %}<{{ m.role }}>{% for part in m.content %}{{ part.text }}{% endfor %}</s>{% endfor %}"
FIRST = "{% for m in messages %}<{{ m.role }}>{{ m.content[:5] }}</s>{% endfor %}"
START = "<|im_start|>user\nIs it?<|im_end|>\n<|im_start|>assistant\n"


def answered(content):
    return [USER, {"role": "assistant", "content": content}]


@pytest.mark.parametrize(
    ("template", "messages", "text"),  # the texts of transformers' apply_chat_template(continue_final_message=True)
    [
        (CHATML, answered("Sure, the first"), START + "Sure, the first"),
        (CHATML, answered("Sure, "), START + "Sure, "),
        (CHATML, answered(""), START),
        (CHATML, [USER], "<|im_start|>user\nIs it?"),
        (
            CHATML,
            [*answered("a CONTINUE_FINAL_MESSAGE_TAG b"), USER],
            START + "a CONTINUE_FINAL_MESSAGE_TAG b<|im_end|>\n<|im_start|>user\nIs it?",
        ),
        (TRIMMED, answered("Sure, \n"), "<user>Is it?</s><assistant>Sure,"),
        (PARTS, [{"role": "user", "content": [{"type": "text", "text": "b "}, {"type": "image"}]}], "<user>b "),
        (FIRST, answered("Sure, the first"), None),
        (CHATML, answered(None), None),
        (PARTS, [{"role": "user", "content": [{"type": "image"}]}], None),
    ],
)
@pytest.mark.parametrize("is_of_run", [True, False])
def test_the_last_message_stays_open_as_in_transformers(tmp_path, template, messages, text, is_of_run):
    folder = write_folder(tmp_path, "chatml", **{"chat_template.jinja": template})
    own = {} if is_of_run else {"continue_final_message": True}
    records = [{"messages": messages} | own, {"messages": messages, "continue_final_message": False}]
    item, whole = read(folder, tmp_path, records, record={"continue_final_message": is_of_run})
    assert isinstance(whole, Reject) or whole.preview.endswith((">", ">\n"))
    if text is None:
        assert isinstance(item, Reject)
        assert "continue_final_message" in item.reason
    else:
        assert isinstance(item, Sample), item
        assert item.preview == text


def test_an_answer_that_stays_open_has_the_spans_of_its_part(tmp_path):
    folder = write_folder(tmp_path, "chatml", **{"chat_template.jinja": CHATML})
    record = {"messages": [*answered("four"), *answered("fi")], "continue_final_message": True}
    (item,) = read(folder, tmp_path, [record], tokens="assistant", mask="turns")
    settings = make_sample_settings(folder, a_spec(), 1000, 4096)
    decode = settings.tokenizer.decode
    chosen = item.token_ids[item.positions].tolist()
    assert decode(chosen, skip_special_tokens=False).replace(" ", "") == "four<|im_end|>fi"
    assert decode(item.token_ids[item.mask == 1].tolist(), skip_special_tokens=False).endswith("fi")


@pytest.mark.parametrize(
    ("record", "of_run", "reason"),
    [
        ({"continue_final_message": "yes"}, {}, "`continue_final_message` is a string, not true or false"),
        (
            {"continue_final_message": True},
            {"add_generation_prompt": True},
            "`continue_final_message` is true, and add_generation_prompt of run.json begins another message",
        ),
        (
            {"chat_template_kwargs": {"continue_final_message": True}},
            {},
            "`chat_template_kwargs` has 'continue_final_message', which is not a variable",
        ),
    ],
)
def test_a_last_message_that_cannot_stay_open_is_rejected(tmp_path, record, of_run, reason):
    folder = write_folder(tmp_path, "chatml")
    (item,) = read(folder, tmp_path, [{"messages": [USER]} | record], record=of_run)
    assert isinstance(item, Reject)
    assert reason in item.reason


def turns(*pairs):
    return [{"from": name, "value": value} for name, value in pairs]


def test_a_chat_of_sharegpt_has_the_token_ids_of_its_messages(tmp_path):
    names = ["system", "human", "gpt", "user", "assistant", "function_call", "observation", "tool"]
    roles = ["system", "user", "assistant", "user", "assistant", "assistant", "tool", "tool"]
    messages = [{"role": role, "content": f"{number} it"} for number, role in enumerate(roles)]
    chat = turns(*((name, f"{number} it") for number, name in enumerate(names)))
    beside = {"conversations": chat[1:], "system": "0 it"}
    records = [{"conversations": chat}, {"chat": chat}, {"conversations": messages}, {"messages": messages}, beside]
    records.append({"conversations": chat, "system": ""})
    folder = write_folder(tmp_path, "chatml", **{"chat_template.jinja": CHATML})
    first, _, *others = read(folder, tmp_path, records)
    (of_field,) = read(folder, tmp_path, records[1:2], record={"field": "chat"})
    assert isinstance(first, Sample)
    assert [item.token_ids.tolist() for item in (of_field, *others)] == [first.token_ids.tolist()] * 5


@pytest.mark.parametrize(
    ("chat", "reason"),
    [
        (turns(("human", "a"), ("critic", "b")), "`conversations[1]` has an unknown `from`: 'critic' (known: system, "),
        ([{"from": 1, "value": "a"}], "`conversations[0]` has an unknown `from`: 1 (known"),
        ([{"from": "human", "value": None}], "`conversations[0]` has no `value` that is a string"),
        ([*turns(("human", "a")), USER], "`conversations[1]` is not an object with `from` and `value` alone"),
        ([{"from": "human", "value": "a", "content": "b"}], "`conversations[0]` is not an object with `from` and"),
        ("human: a", "`conversations` is a string, not a list of messages"),
    ],
)
def test_a_chat_of_sharegpt_with_an_unknown_turn_is_rejected(tmp_path, chat, reason):
    (item,) = read(write_folder(tmp_path, "chatml"), tmp_path, [{"conversations": chat}])
    assert isinstance(item, Reject)
    assert reason in item.reason


@pytest.mark.parametrize(
    ("system", "reason"),
    [("b", "`conversations[0]` is a second system message beside `system`"), (1, "`system` is a number, not a string")],
)
def test_a_chat_of_sharegpt_beside_a_system_that_is_no_first_message_is_rejected(tmp_path, system, reason):
    record = {"conversations": turns(("system", "a"), ("human", "b")), "system": system}
    (item,) = read(write_folder(tmp_path, "chatml"), tmp_path, [record])
    assert isinstance(item, Reject)
    assert reason in item.reason

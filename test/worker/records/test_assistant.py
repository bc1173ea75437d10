"""`tokens: "assistant"`: the positions that the model itself wrote, by the chat templates of model families."""

import json

import pytest
from records.test_chat import fixture, read, write_folder

from build import a_spec
from gleaner_worker.records.chat.assistant import render_spans
from gleaner_worker.records.chat.chat import Chat
from gleaner_worker.records.chat.template import Template, TemplateProblem
from gleaner_worker.records.samples.sample import Reject, Sample
from gleaner_worker.records.samples.tokenize_process import limited_settings

TALK = [
    {"role": "user", "content": "two and two"},
    {"role": "assistant", "content": "four is it"},
    {"role": "user", "content": "and one"},
    {"role": "assistant", "content": "five"},
]
MARKED = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
    "<|im_end|>{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}\n{% endfor %}"
)
# As Qwen3 writes chats without tools: answers after the last question have their thoughts, the last answer always.
QWEN3 = """{%- if messages[0].role == 'system' %}<|im_start|>system
{{ messages[0].content }}<|im_end|>
{% endif %}
{%- set ns = namespace(last=messages | length - 1) %}
{%- for m in messages if m.role == 'user' %}{% set ns.last = messages.index(m) %}{% endfor %}
{%- for m in messages %}
{%- if m.role == 'user' or m.role == 'system' and not loop.first %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% elif m.role == 'assistant' %}<|im_start|>assistant
{% if loop.index0 > ns.last and (loop.last or m.reasoning_content) %}<think>
{{ m.reasoning_content }}
</think>

{% endif %}{{ m.content }}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
NEEDS_A_QUESTION = (
    "{% if 'user' not in messages | map(attribute='role') %}{{ raise_exception('No user query found') }}{% endif %}"
)
FAMILIES = [name for name in fixture() if name != "many"]  # `many` marks the text of every role


def written(folder, tmp_path, messages, **spec):
    """The text of each run of neighbouring chosen tokens."""
    (item,) = read(folder, tmp_path, [{"messages": messages}], tokens="assistant", **spec)
    if isinstance(item, Reject):
        return item.reason
    from gleaner_worker.records.tokens.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(folder, "a model")
    runs, last = [], None
    for position in item.positions.tolist():
        if last is None or position != last + 1:
            runs.append([])
        runs[-1].append(item.token_ids[position])
        last = position
    return [tokenizer.decode(ids, skip_special_tokens=False) for ids in runs]


@pytest.mark.parametrize("name", FAMILIES)
def test_each_assistant_answer_is_chosen_with_its_end_token(tmp_path, name):
    found = written(write_folder(tmp_path, name), tmp_path, TALK)
    assert not isinstance(found, str), found
    assert len(found) == 2
    for text, message in zip(found, (TALK[1], TALK[3]), strict=True):
        assert message["content"].replace(" ", "") in text.replace(" ", "")
        assert "two and" not in text and "assistant" not in text and "user" not in text


def test_the_chosen_tokens_of_a_chatml_answer_end_with_im_end(tmp_path):
    assert written(write_folder(tmp_path, "chatml"), tmp_path, TALK) == ["four is it<|im_end|>", "five<|im_end|>"]


@pytest.mark.parametrize("name", ["chatml", "llama"])
def test_an_answer_that_begins_a_chat_is_chosen_from_its_content_to_its_end_token(tmp_path, name):
    found = written(write_folder(tmp_path, name), tmp_path, TALK[1:])
    assert not isinstance(found, str), found
    end = "<|im_end|>" if name == "chatml" else "<|eot_id|>"
    assert [text.replace(" ", "") for text in found] == [f"fourisit{end}", f"five{end}"]


@pytest.mark.parametrize(
    ("template", "roles", "chosen"),
    [
        (QWEN3, "au", ["<0><|im_end|>"]),
        (QWEN3, "uaa", ["<1><|im_end|>", "<2><|im_end|>"]),
        (QWEN3, "uaaua", ["<1><|im_end|>", "<2><|im_end|>", "<4><|im_end|>"]),
        (NEEDS_A_QUESTION + QWEN3, "saua", ["<1><|im_end|>", "<3><|im_end|>"]),
    ],
)
def test_an_answer_whose_opening_cannot_be_rendered_is_chosen_from_its_content(template, roles, chosen):
    chat = Chat(Template(template, is_chat=True), None, {})
    names = {"u": "user", "a": "assistant", "s": "system"}
    messages = [{"role": names[role], "content": f"<{number}>"} for number, role in enumerate(roles)]
    text, spans = render_spans(chat, messages, False, None, ["<|im_end|>"])
    found = [text[begin:end] for begin, end in spans]
    assert [each.rpartition("</think>\n\n")[2] for each in found] == chosen
    assert "<|im_start|>" not in "".join(found)


# As R1 of DeepSeek: the opening of an answer begins its thoughts, and earlier answers have none.
THOUGHTS = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<assistant><think>\n{% endif %}"
)


@pytest.mark.parametrize("content", ["<table>x</table>", "<t", "<think>\nx</think>y", ""])
def test_an_answer_without_the_whole_opening_is_chosen_from_its_first_character(content):
    chat = Chat(Template(THOUGHTS, is_chat=True), None, {})
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": content}]
    text, ((begin, end),) = render_spans(chat, messages, False, None, ["<|end|>"])
    assert text[begin:end] == content.removeprefix("<think>\n") + "<|end|>"


@pytest.mark.parametrize(("answers", "size"), [(1500, 1), (90, 100_000)])
def test_a_record_with_too_many_answers_for_renders_of_each_is_rejected(answers, size):
    chat = Chat(Template(THOUGHTS, is_chat=True), None, {})
    messages = [{"role": "assistant", "content": "a" * size}] * answers
    with pytest.raises(TemplateProblem, match=f"^{answers} of {answers} messages are too many"):
        render_spans(chat, messages, False, None, [])


def test_a_truncated_chat_has_the_answer_as_far_as_it_goes(tmp_path):
    talk = [TALK[0], {"role": "assistant", "content": "four is it " * 2000}]
    folder = write_folder(tmp_path, "chatml")
    (item,) = read(folder, tmp_path, [{"messages": talk}], tokens="assistant", over_long="truncate")
    assert isinstance(item, Sample) and item.truncated and len(item.token_ids) == 512
    begin = item.positions[0]
    assert item.positions.tolist() == list(range(begin, 512)) and 0 < begin < 100


def test_empty_generation_blocks_mark_nothing(tmp_path):
    blocks = "{% for i in range(100000) %}{% generation %}{% endgeneration %}{% endfor %}"
    folder = write_folder(tmp_path, "chatml", **{"tokenizer_config.json": {"chat_template": blocks + MARKED}})
    assert written(folder, tmp_path, TALK) == ["four is it<|im_end|>", "five<|im_end|>"]


def test_generation_blocks_in_a_template_define_the_chosen_tokens(tmp_path):
    folder = write_folder(tmp_path, "chatml", **{"tokenizer_config.json": {"chat_template": MARKED}})
    assert written(folder, tmp_path, TALK) == ["four is it<|im_end|>", "five<|im_end|>"]
    (plain,) = read(folder, tmp_path, [{"messages": TALK}])
    assert isinstance(plain, Sample) and "\ue000" not in plain.preview and "four is it<|im_end|>" in plain.preview


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"text": "two"}, "has no list of messages"),
        ({"tokens": [1, 2]}, "has no list of messages"),
        ({"messages": TALK[:1]}, "the model wrote none of them"),
        ({"messages": [{"role": "user", "content": "a \ue000 b"}, *TALK[1:]]}, "U+E000"),
    ],
)
def test_a_record_without_text_of_the_model_is_rejected(tmp_path, record, reason):
    folder = write_folder(tmp_path, "chatml", **{"tokenizer_config.json": {"chat_template": MARKED}})
    (item,) = read(folder, tmp_path, [record], tokens="assistant")
    assert isinstance(item, Reject) and reason in item.reason


@pytest.mark.parametrize("text", ["\ue010", "\ue012", "a \ue010\ue011\ue012 b"])
@pytest.mark.parametrize("where", ["messages", "tools"])
def test_a_record_with_the_characters_of_a_placeholder_is_rejected(tmp_path, text, where):
    folder = write_folder(tmp_path, "chatml")
    record = {"messages": TALK, "tools": [{"name": "f"}]}
    record |= {"messages": [*TALK[:2], {"role": "user", "content": text}]} if where == "messages" else {}
    record |= {"tools": [{"name": text}]} if where == "tools" else {}
    (item,) = read(folder, tmp_path, [record], tokens="assistant")
    assert isinstance(item, Reject) and "U+E010 to U+E012; remove it" in item.reason


def test_a_record_that_names_the_characters_of_a_placeholder_in_ascii_is_stored(tmp_path):
    talk = [{"role": "user", "content": "a \\ue010 b"}, *TALK[1:]]
    (item,) = read(write_folder(tmp_path, "chatml"), tmp_path, [{"messages": talk}], tokens="assistant")
    assert isinstance(item, Sample)


def test_a_template_with_a_generation_block_inside_another_one_is_refused(tmp_path):
    nested = MARKED.replace("{% endgeneration %}", "{% generation %}b{% endgeneration %}{% endgeneration %}")
    folder = write_folder(tmp_path, "chatml", **{"tokenizer_config.json": {"chat_template": nested}})
    assert "line 2: a {% generation %} block is inside another one" in written(folder, tmp_path, TALK)


def test_a_chat_whose_template_drops_an_answer_is_rejected(tmp_path):
    template = "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}"
    folder = write_folder(tmp_path, "chatml", **{"tokenizer_config.json": {"chat_template": template}})
    assert "does not show which text is that of message 1" in written(folder, tmp_path, TALK)


@pytest.mark.parametrize(("bos", "begins"), [("auto", True), (True, True), (False, False)])
@pytest.mark.parametrize("over_long", ["truncate", "chunk", "pack"])
def test_bos_moves_the_chosen_positions_with_the_tokens(tmp_path, bos, begins, over_long):
    name = next(name for name in FAMILIES if name == "llama")
    folder = write_folder(tmp_path, name)
    items = read(folder, tmp_path, [{"messages": TALK}], tokens="assistant", over_long=over_long, bos=bos)
    (item,) = [item for item in items if isinstance(item, Sample)]
    from gleaner_worker.records.tokens.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(folder, "a model")
    assert (item.token_ids[0] == tokenizer.token_to_id(fixture()[name]["bos"])) == begins
    text = tokenizer.decode(item.token_ids[item.positions].tolist(), skip_special_tokens=False)
    assert "four" in text and "five" in text and "two" not in text


@pytest.mark.parametrize("adds", [True, False, None])
@pytest.mark.parametrize("name", ["chatml", "llama"])
def test_tokenizer_files_that_disagree_about_bos_cause_a_warning(tmp_path, caplog, name, adds):
    config = fixture()[name]["files"]["tokenizer_config.json"]
    config = json.loads(config) if isinstance(config, str) else dict(config)
    config.pop("add_bos_token", None)
    config |= {} if adds is None else {"add_bos_token": adds}
    folder = write_folder(tmp_path, name, **{"tokenizer_config.json": config})
    for bos in ("auto", False):
        caplog.clear()
        limited_settings(folder, a_spec(bos=bos), 1000, 4096).close()
        disagrees = bos == "auto" and adds is not None and adds != (name == "llama")
        assert ("disagree about BOS" in caplog.text) == disagrees


def test_bos_true_adds_bos_to_texts_without_bos(tmp_path):
    config = {"bos_token": "<|im_start|>"}
    folder = write_folder(tmp_path, "chatml", **{"tokenizer_config.json": config})
    records = [{"text": "two"}, {"text": "<|im_start|>two"}, {"tokens": [5]}, {"text": ""}]
    plain, with_bos, ids, empty = read(folder, tmp_path, records, bos=True)
    assert plain.token_ids.tolist() == with_bos.token_ids.tolist() and len(plain.token_ids) > 1
    assert ids.token_ids.tolist() == [5] and isinstance(empty, Reject)

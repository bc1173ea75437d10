"""Writes records as input of the tokenizer: the kinds of records, and their precedence.

The prompt comes from the first of these that exists: record.template (all fields of the record are its variables),
record.field (a field of any kind below), and these fields of the record:

    text          a string
    prompt        a string
    messages      a list of {role, content}; the model's chat template writes them, with `tools` and the variables
                  `chat_template_kwargs` beside them
    tokens        a list of token ids
    conversations a list of messages, or of {from, value} as in ShareGPT, where `system` beside it is the first message
    train, test   an ARC task; see arc.py. predictions_per_task makes several samples of a task
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tokenizers import Tokenizer

from ...failures import Failure
from ...limited import step
from ...spec.spec import Spec
from ..chat.arc import ArcPrompts, make_arc_prompts, parse_task
from ..chat.assistant import render_spans
from ..chat.augment import Task, augment
from ..chat.chat import Chat, check_messages, check_variables, find_unsupported_parts, load_chat
from ..chat.final_message import CONTINUE, continues, cut_at_tag, tag_final_message
from ..chat.sharegpt import as_messages
from ..chat.template import Template, TemplateProblem
from ..lines.parse import check_text, check_tokens, kind_of, list_fields
from ..lines.rejected import Rejected
from ..tokens.spans import Span, SpanFinder, make_span_finder
from ..tokens.tokenizer import special_texts

KNOWN_FIELDS = "`text`, `prompt`, `messages`, `tokens`, `conversations`, or an ARC task's `train` and `test`"


@dataclass(slots=True)
class Prompt:
    """A text, or token ids."""

    content: str | list[int]
    is_complete: bool  # the text holds its special tokens
    spans: tuple[list[Span], ...] = ()  # of each source of the run


@dataclass(frozen=True)
class PromptWriter:
    """The settings and templates that write a record as prompts."""

    field: str | None
    template: Template | None
    chat: Chat
    arc: ArcPrompts
    add_generation_prompt: bool
    continue_final_message: bool
    predictions: int  # samples per line
    seed: int
    specials: tuple[str, ...]  # texts of special tokens, which may end a message
    spans: SpanFinder


def make_prompt_writer(spec: Spec, folder: str, tokenizer: Tokenizer | None = None) -> PromptWriter:
    """folder: of the model's files. Raises Failure("model") for `record` of run.json that cannot be used."""
    record = spec.record
    step.begin("model", f"compile a template of {spec.model} or of run.json", "simplify the template")
    try:
        chat = load_chat(folder, spec.model).with_variables(record.template_kwargs)
        arc = make_arc_prompts(chat, record.encoder, record.prompt_version)
        template = None if record.template is None else Template(record.template, is_chat=False)
    except ValueError as error:
        raise Failure("model", f"Failed to use `record` of run.json: {error}") from error
    except TemplateProblem as problem:
        raise Failure("model", f"Failed to use record.template of run.json: {problem}; correct it") from problem
    return PromptWriter(
        record.field,
        template,
        chat,
        arc,
        record.add_generation_prompt,
        record.continue_final_message,
        record.predictions_per_task,
        spec.seed,
        special_texts(tokenizer) if tokenizer else (),
        make_span_finder(spec.span_sources, tokenizer),
    )


def write_prompts(record: dict, writer: PromptWriter) -> Iterator[Prompt | Rejected]:
    """The prompts, one per prediction, made on demand. Raises Rejected for the whole record."""
    if writer.template is not None:
        prompt: Prompt | None = _from_template(record, writer.template, writer)
    elif writer.field is not None:
        if writer.field not in record:
            raise Rejected(f"has no field `{writer.field}`, which record.field names; it has {list_fields(record)}")
        value = record[writer.field]
        prompt = None if isinstance(value, dict) else _from_value(value, record, writer.field, writer)
        record = value if isinstance(value, dict) else record
        if prompt is None and not _is_task(record):
            raise Rejected(f"`{writer.field}` is an object, but not an ARC task with `train` and `test`")
    else:
        prompt = _from_known(record, writer)
    if prompt is not None:
        if writer.predictions > 1:
            raise Rejected(f"is not an ARC task: predictions_per_task {writer.predictions} is for ARC tasks only")
        return iter((prompt,))
    try:
        task = parse_task(record)
    except ValueError as error:
        raise Rejected(f"is not an ARC task: {error}") from error
    arc = replace(writer.arc, chat=writer.arc.chat.with_variables(check_variables(record)))
    return (_from_task(augment(task, writer.seed, k), arc, record, writer) for k in range(writer.predictions))


def _from_known(record: dict, writer: PromptWriter) -> Prompt | None:
    """None for an ARC task."""
    for name in ("text", "prompt"):
        if name in record:
            return _plain(check_text(record[name], name), record, writer)
    for name in ("messages", "tokens", "conversations"):
        if name in record and name == "tokens":
            return _plain(check_tokens(record[name], name), record, writer)
        if name in record:
            return _from_messages(record[name], name, record, writer)
    if not _is_task(record):
        raise Rejected(f"has no known field: it has {list_fields(record)}; known are {KNOWN_FIELDS}")
    return None


def _is_task(record: dict) -> bool:
    return "train" in record and "test" in record


def _from_value(value: object, record: dict, name: str, writer: PromptWriter) -> Prompt:
    if not isinstance(value, list):
        return _plain(check_text(value, name), record, writer)
    if value and isinstance(value[0], dict):
        return _from_messages(value, name, record, writer)
    return _plain(check_tokens(value, name), record, writer)


def _plain(content: str | list[int], record: dict, writer: PromptWriter) -> Prompt:
    return Prompt(content, False, writer.spans.find(content, record, {}))


def _from_template(record: dict, template: Template, writer: PromptWriter) -> Prompt:
    try:
        text = template.render({"record": record, **record})
    except TemplateProblem as problem:
        raise Rejected(f"cannot be written with record.template: {problem}") from problem
    return _plain(check_text(text, "record.template"), record, writer)


def _from_messages(messages: Any, name: str, record: dict, writer: PromptWriter) -> Prompt:
    messages = as_messages(messages, name, record.get("system"))
    check_messages(messages, name)
    is_open = continues(record, writer.continue_final_message, writer.add_generation_prompt)
    shown, final = tag_final_message(messages) if is_open else (messages, "")
    tools = record.get("tools")
    if tools is not None and not (isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)):
        raise Rejected(f"`tools` is {kind_of(tools)}, not a list of objects")
    chat, add_generation_prompt = writer.chat.with_variables(check_variables(record)), writer.add_generation_prompt
    found: dict[str, list[Span]] = {}
    whole_texts: list[str] = []  # of the messages without an open end, in which the spans are
    try:
        for source in writer.spans.sources:
            if source.are_of_messages and not (source.kind == "assistant" and chat.marks_generation(tools)):
                whole, found[source.kind] = render_spans(
                    chat, messages, add_generation_prompt, tools, writer.specials, source.kind
                )
                whole_texts.append(whole)
        text, written = chat.render_marked(shown, add_generation_prompt, tools)
    except TemplateProblem as problem:
        raise Rejected(f"`{name}` cannot be written with the chat template: {problem}") from problem
    number = find_unsupported_parts(shown, text)
    if number is not None:
        raise Rejected(
            f"`{name}[{number}]` has a list as its `content`, and the model's chat template supports only strings"
        )
    text = check_text(cut_at_tag(text, final) if is_open else text, name)
    if is_open and not all(whole.startswith(text) for whole in whole_texts):
        raise Rejected(f"`{name}` has other text without {CONTINUE}, so its spans are not known")
    of_messages = {
        kind: [(begin, min(end, len(text))) for begin, end in spans if begin < len(text)]
        for kind, spans in {"assistant": written, **found}.items()
    }
    return Prompt(text, True, writer.spans.find(text, record, of_messages))


def _from_task(task: Task, arc: ArcPrompts, record: dict, writer: PromptWriter) -> Prompt | Rejected:
    try:
        text = check_text(arc.write(task), "train")
        return Prompt(text, arc.is_chat, writer.spans.find(text, record, {}))
    except TemplateProblem as problem:
        return Rejected(f"is an ARC task that cannot be written with the chat template: {problem}")
    except Rejected as reason:
        return reason

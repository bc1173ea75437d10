"""Finds the text of messages in a rendered list of them (spans `assistant` and `turns`).

A template with {% generation %} blocks marks that text (template.py). This file is for other templates. There, the text
of an assistant message begins after the opening that add_generation_prompt writes. It ends with its content and the
special token after the content. Where the template cannot write the opening, the text begins with the content. Qwen3
and Llama 3 cannot write it before the first message of a chat.

The span of a turn begins with the content of its message, and ends with the special token after it.
"""

import os
import re
from collections.abc import Sequence

from .chat import Chat
from .template import TemplateProblem, as_json

# Most bytes that the renders of one record may read, in all: seconds of work.
_MOST_RENDERED_BYTES = 512 * 1024 * 1024
_MESSAGE_BYTES = 256  # a message costs as much as this many bytes
# Private-use characters: real texts lack them, and templates do not change them. No record may have them.
_PLACEHOLDER = "\ue010\ue011\ue012"
_PRIVATE = re.compile(rb"(?<!\\)(?:\\\\)*\\ue01[0-2]")  # as JSON writes them


def render_spans(
    chat: Chat,
    messages: list[dict],
    add_generation_prompt: bool,
    tools: list[dict] | None,
    specials: Sequence[str],
    kind: str = "assistant",
) -> tuple[str, list[tuple[int, int]]]:
    """Renders the messages. Returns the text, and the characters [begin, end) of each part that the model wrote, or of
    each message for the kind "turns".

    specials: the texts of special tokens. Raises TemplateProblem, also for a template that hides where a part begins
    or ends, and for a record with too many messages: each span is found by renders of all messages.
    """
    values = as_json(chat.values(messages, add_generation_prompt, tools))
    if _PRIVATE.search(values):
        raise TemplateProblem("the record has a private-use character from U+E010 to U+E012; remove it")
    numbers = [number for number, message in enumerate(messages) if kind == "turns" or message["role"] == "assistant"]
    if len(numbers) * (len(values) + _MESSAGE_BYTES * len(messages)) > _MOST_RENDERED_BYTES:
        raise TemplateProblem(
            f"{len(numbers)} of {len(messages)} messages are too many to find each; divide the record, or for "
            "assistant add generation blocks to the model's chat template"
        )
    text = chat.render(messages, add_generation_prompt, tools)

    def span(number: int) -> tuple[int, int]:
        own = messages[number]
        message = {"role": "assistant"} if own["role"] == "assistant" else own  # tool calls end the text of the model
        replaced = [*messages[:number], message | {"content": _PLACEHOLDER}, *messages[number + 1 :]]
        earlier = [(messages[:number], False), (messages[:number], True)] if kind == "assistant" else []
        marked = chat.render(replaced, add_generation_prompt, tools)
        others = [_try_render(chat, *each, tools) for each in earlier]
        before, opening = others or ("", "")
        before = before if number else ""
        head, placeholder, rest = marked.rpartition(_PLACEHOLDER)
        if kind == "turns":
            opening, least = head, 0
        elif isinstance(before, TemplateProblem) or isinstance(opening, TemplateProblem) or not text.startswith(before):
            opening, least = head, len(head)  # the content itself
        else:
            # A template without an opening of answers shows only where the content begins.
            opening, least = head if opening == before else opening, len(before)
        # A template that writes a part of the opening stops before the content, which may begin like the other part.
        begin = len(opening if text.startswith(opening) else os.path.commonprefix([opening, text, marked]))
        end = len(text) - len(rest)
        if not placeholder or not least <= begin <= end or not text.endswith(rest):
            raise TemplateProblem(f"it does not show which text is that of message {number}")
        closing = next((special for special in specials if rest.startswith(special)), "")
        return begin, end + len(closing)

    return text, [span(number) for number in numbers]


def _try_render(
    chat: Chat, messages: list[dict], add_generation_prompt: bool, tools: list[dict] | None
) -> str | TemplateProblem:
    try:
        return chat.render(messages, add_generation_prompt, tools)
    except TemplateProblem as problem:
        return problem

"""The text that a model itself wrote, in a list of messages that its chat template writes (spec: tokens assistant).

A template with {% generation %} blocks marks that text (template.py). This file is for the other templates: a message
of the assistant begins where the opening of an answer ends, as add_generation_prompt writes it. It ends with its
content and the special token after it.
"""

import os
from collections.abc import Sequence

from .chat import Chat
from .template import TemplateProblem

# Private characters: no text has them, and no template treats them.
_PLACEHOLDER = "\ue010\ue011\ue012"


def render_assistant(
    chat: Chat, messages: list[dict], add_generation_prompt: bool, tools: list[dict] | None, specials: Sequence[str]
) -> tuple[str, list[tuple[int, int]]]:
    """The text of the messages, and the characters [begin, end) of each part that the model wrote.

    specials: the texts of special tokens. Raises TemplateProblem, also where the template does not show those parts.
    """
    text = chat.render(messages, add_generation_prompt, tools)

    def span(number: int) -> tuple[int, int]:
        message = {key: value for key, value in messages[number].items() if key == "role"}
        replaced = [*messages[:number], message | {"content": _PLACEHOLDER}, *messages[number + 1 :]]
        head, _, rest = chat.render(replaced, add_generation_prompt, tools).rpartition(_PLACEHOLDER)
        before = chat.render(messages[:number], False, tools) if number else ""
        opening = chat.render(messages[:number], True, tools)
        # A template without an opening of answers shows only where the content begins.
        begin = len(os.path.commonprefix([head if opening == before else opening, text]))
        end = len(text) - len(rest)
        if begin < len(before) or not begin <= end or not text.endswith(rest):
            raise TemplateProblem(f"it does not show which text of message {number} the model wrote")
        after = next((special for special in specials if rest.startswith(special)), "")
        return begin, end + len(after)

    return text, [span(number) for number, message in enumerate(messages) if message["role"] == "assistant"]

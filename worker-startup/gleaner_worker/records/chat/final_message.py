"""Leaves the last message of a chat open, so that the model continues it: transformers' continue_final_message."""

from typing import Any

from ..lines.parse import kind_of
from ..lines.rejected import Rejected

CONTINUE = "continue_final_message"
# Behind the last text, as in transformers. A template that trims the message removes the blank at its end.
_TAG = "CONTINUE_FINAL_MESSAGE_TAG "


def continues(record: dict, of_run: bool, add_generation_prompt: bool) -> bool:
    """Whether the record's last message stays open: as the record says, or else the run. Raises Rejected."""
    value = record.get(CONTINUE)
    if value is not None and not isinstance(value, bool):
        raise Rejected(f"`{CONTINUE}` is {kind_of(value)}, not true or false")
    if value and add_generation_prompt:
        raise Rejected(f"`{CONTINUE}` is true, and add_generation_prompt of run.json begins another message")
    return of_run if value is None else value


def tag_final_message(messages: list[dict]) -> tuple[list[dict], str]:
    """The messages with a tag behind the last text of the last one, and that text. Raises Rejected for none."""
    *earlier, last = messages
    content: Any = last.get("content")
    if isinstance(content, str):
        return [*earlier, last | {"content": content + _TAG}], content
    parts = content or []
    number = next((n for n in reversed(range(len(parts))) if isinstance(parts[n].get("text"), str)), None)
    if number is None:
        raise Rejected(f"has no text in its last message, which {CONTINUE} continues")
    text = parts[number]["text"]
    tagged = [*parts[:number], parts[number] | {"text": text + _TAG}, *parts[number + 1 :]]
    return [*earlier, last | {"content": tagged}], text


def cut_at_tag(rendered: str, final: str) -> str:
    """The rendered text up to the end of the text `final`. Raises Rejected for a template that changes that text."""
    tag = _TAG.strip()
    if final.strip() not in rendered or tag not in rendered:
        raise Rejected(f"has a last message that the model's chat template changes, so {CONTINUE} cannot find its end")
    end = rendered.rindex(tag)
    return rendered[:end] if rendered.startswith(_TAG, end) else rendered[:end].rstrip()

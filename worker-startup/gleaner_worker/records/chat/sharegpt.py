"""Chats in the layout of ShareGPT, `{"from": "human", "value": "…"}`, as messages with role and content."""

import json
from pathlib import Path
from typing import Any

from ..lines.parse import kind_of
from ..lines.rejected import Rejected

# The role of each `from`; `gleaner streams create` reads the same file.
ROLES = json.loads(Path(__file__).with_name("chat_roles.json").read_text())


def as_messages(chat: Any, field: str, system: Any = None) -> Any:
    """The messages of a chat in the layout of ShareGPT; any other value unchanged.

    The value of a turn is the content of its message, also that of a function call. `system`: the field of the record
    with the content of the first message. Raises Rejected for a `from` that is no role, and for a chat in two layouts.
    """
    if not isinstance(chat, list) or not any(map(_is_turn, chat)):
        return chat
    messages = [_message(turn, f"`{field}[{number}]`") for number, turn in enumerate(chat)]
    if system in (None, ""):
        return messages
    if not isinstance(system, str):
        raise Rejected(f"`system` is {kind_of(system)}, not a string")
    if messages[0]["role"] == "system":
        raise Rejected(f"`{field}[0]` is a second system message beside `system`")
    return [{"role": "system", "content": system}, *messages]


def _is_turn(turn: object) -> bool:
    return isinstance(turn, dict) and "from" in turn and "role" not in turn


def _message(turn: Any, where: str) -> dict[str, Any]:
    if not _is_turn(turn) or "content" in turn:
        raise Rejected(f"{where} is not an object with `from` and `value` alone, as other turns of the chat are")
    name, value = turn["from"], turn.get("value")
    if not isinstance(name, str) or name not in ROLES:
        raise Rejected(f"{where} has an unknown `from`: {name!r:.60} (known: {', '.join(ROLES)})")
    if not isinstance(value, str):
        raise Rejected(f"{where} has no `value` that is a string")
    others = {key: each for key, each in turn.items() if key not in ("from", "value")}
    return {"role": ROLES[name], "content": value, **others}

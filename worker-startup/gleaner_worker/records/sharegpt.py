"""Chats in the layout of ShareGPT, `{"from": "human", "value": "…"}`, as messages with role and content."""

from typing import Any

from .rejected import Rejected

# The role of each `from`; shared/contracts/chat-roles.json has the same table.
ROLES = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "function_call": "assistant",
    "observation": "tool",
    "tool": "tool",
}


def as_messages(chat: Any, field: str) -> Any:
    """The messages of a chat in the layout of ShareGPT; any other value unchanged.

    The value of a turn is the content of its message, also that of a function call. Raises Rejected for a `from` that
    is no role, and for a chat in two layouts.
    """
    if not isinstance(chat, list) or not any(map(_is_turn, chat)):
        return chat
    return [_message(turn, f"`{field}[{number}]`") for number, turn in enumerate(chat)]


def _is_turn(turn: object) -> bool:
    return isinstance(turn, dict) and "from" in turn and "role" not in turn


def _message(turn: Any, where: str) -> dict[str, Any]:
    if not _is_turn(turn) or "content" in turn:
        raise Rejected(f"{where} is not an object with `from` and `value` alone, as other turns of the chat are")
    name, value = turn["from"], turn.get("value")
    if not isinstance(name, str) or name not in ROLES:
        raise Rejected(f"{where} has the `from` {name!r:.60}, and the known ones are {', '.join(ROLES)}")
    if not isinstance(value, str):
        raise Rejected(f"{where} has no `value` that is a string")
    others = {key: each for key, each in turn.items() if key not in ("from", "value")}
    return {"role": ROLES[name], "content": value, **others}

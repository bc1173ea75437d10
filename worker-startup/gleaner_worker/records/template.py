"""Jinja templates from run.json or from a model's folder, compiled once and rendered for each record."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from .render_process import RenderProcess

MAX_TEMPLATE_CHARS = 128 * 1024
_PROCESS = RenderProcess()
# The characters that mark blocks in renderer.py, as JSON writes them.
_PRIVATE = re.compile(rb"(?<!\\)(?:\\\\)*\\ue00[01]")

Rendered = tuple[str, list[tuple[int, int]]]  # a text, and the characters [begin, end) of its {% generation %} blocks


class TemplateProblem(Exception):
    """The reason why a template gives no text, with the line of the template if known."""


class Template:
    """A compiled template; any thread may render it. It runs in a process of its own, with limits (renderer.py)."""

    def __init__(self, source: str, is_chat: bool):
        """is_chat: as transformers renders chat templates. Raises TemplateProblem if the template does not compile."""
        if len(source) > MAX_TEMPLATE_CHARS:
            raise TemplateProblem(f"it is {len(source)} characters long; the limit is {MAX_TEMPLATE_CHARS}")
        self._number, answer = _PROCESS.compile(source, is_chat)
        if "problem" in answer:
            raise TemplateProblem(answer["problem"])
        self.marks_generation: bool = answer["marks_generation"]

    def encode(self, values: Mapping[str, Any]) -> bytes:
        """Encodes the values as JSON, for `render_batch`. Raises TemplateProblem."""
        try:
            data = json.dumps(values).encode()
        except RecursionError:
            raise TemplateProblem("its values are nested too deeply") from None
        if self.marks_generation and _PRIVATE.search(data):
            raise TemplateProblem("the record has the private-use character U+E000 or U+E001; remove it")
        return data

    def render(self, values: Mapping[str, Any]) -> str:
        """Raises TemplateProblem, LimitExceeded."""
        (rendered,) = self.render_batch([self.encode(values)])
        if isinstance(rendered, TemplateProblem):
            raise rendered
        return rendered[0]

    def render_batch(self, values: Sequence[bytes]) -> list[Rendered | TemplateProblem]:
        """Renders many values with one message to the process. Raises LimitExceeded with a position in `values`."""
        return [
            TemplateProblem(answer["problem"])
            if "problem" in answer
            else (answer["text"], [(begin, end) for begin, end in answer["spans"]])
            for answer in _PROCESS.render(self._number, values)
        ]

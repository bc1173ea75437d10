"""A Jinja template from run.json or from a model's folder, compiled once and rendered record by record."""

import json
import re
from collections.abc import Mapping
from typing import Any

from .render_process import Ended, RenderProcess

MAX_TEMPLATE_CHARS = 128 * 1024
_PROCESS = RenderProcess()


class TemplateProblem(Exception):
    """The reason why a template gives no text, with the template's line where it is known."""


class Template:
    """A compiled template; any thread may render it. It runs in a process of its own, with limits (renderer.py)."""

    def __init__(self, source: str, is_chat: bool):
        """Raises TemplateProblem when it cannot be compiled. is_chat: as transformers runs chat templates."""
        if len(source) > MAX_TEMPLATE_CHARS:
            raise TemplateProblem(f"it is {len(source)} characters long; the limit is {MAX_TEMPLATE_CHARS}")
        try:
            self._number, answer = _PROCESS.compile(source, is_chat)
        except Ended as error:
            raise TemplateProblem(str(error) or "its process ended twice") from None
        if "problem" in answer:
            raise TemplateProblem(answer["problem"])
        self.marks_generation: bool = answer["marks_generation"]

    def render(self, values: Mapping[str, Any]) -> str:
        """values: JSON. Raises TemplateProblem."""
        return self.render_marked(values)[0]

    def render_marked(self, values: Mapping[str, Any]) -> tuple[str, list[tuple[int, int]]]:
        """The text, and the characters [begin, end) of each {% generation %} block. Raises TemplateProblem."""
        if self.marks_generation and re.search("[\ue000\ue001]", json.dumps(values, ensure_ascii=False)):
            raise TemplateProblem("the record has the private character U+E000 or U+E001; take it out")
        try:
            answer = _PROCESS.render(self._number, dict(values))
        except Ended as error:
            raise TemplateProblem(str(error) or "its process ended twice") from None
        if "problem" in answer:
            raise TemplateProblem(answer["problem"])
        return answer["text"], [(begin, end) for begin, end in answer["spans"]]

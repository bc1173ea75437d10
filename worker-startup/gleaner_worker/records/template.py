"""A Jinja template from run.json or from a model's folder, compiled once and rendered record by record."""

import json
import re
import threading
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from jinja2 import StrictUndefined, Undefined, nodes
from jinja2.exceptions import TemplateError, TemplateSyntaxError
from jinja2.ext import Extension
from jinja2.parser import Parser

from .filters import install
from .sandbox import Sandbox

MAX_TEMPLATE_CHARS = 1 << 20
MAX_TEXT_BYTES = 8 * 1024 * 1024  # of one prompt
DATE = datetime(2024, 7, 26)  # the date in Llama 3.2's own template
_MAX_FORM_CHARS = 100
_REASON_CHARS = 300
# Around the text of each {% generation %} block, until the text is complete. No record may have these characters.
_BEGIN, _END = "\ue000\ue001", "\ue001\ue000"
_MARK = re.compile(f"{_BEGIN}|{_END}")


class TemplateProblem(Exception):
    """The reason why a template gives no text, with the template's line where it is known."""


class Template:
    """A compiled template; any thread may render it."""

    def __init__(self, source: str, is_chat: bool):
        """Raises TemplateProblem when it cannot be compiled.

        `is_chat`: as transformers runs chat templates. Line breaks after a block and blanks before it are removed,
        undefined names are empty, and `raise_exception` and a date for `strftime_now` exist. Otherwise the text stays
        as written, and undefined names are errors.
        """
        if len(source) > MAX_TEMPLATE_CHARS:
            raise TemplateProblem(f"it is {len(source)} characters long; the limit is {MAX_TEMPLATE_CHARS}")
        self._lock = threading.Lock()
        self._sandbox = Sandbox(
            trim_blocks=is_chat,
            lstrip_blocks=is_chat,
            keep_trailing_newline=not is_chat,
            undefined=Undefined if is_chat else StrictUndefined,
        )
        install(self._sandbox)
        if is_chat:
            self._sandbox.add_extension(_Generation)
            self._sandbox.globals["raise_exception"] = _raise_exception
            self._sandbox.globals["strftime_now"] = _Date(name="strftime_now")
        try:
            self._template = self._sandbox.from_string(source)
        except Exception as error:  # hostile sources raise any error in the parser
            raise TemplateProblem(_describe(error)) from None
        self.marks_generation = is_chat and re.search(r"{%[+-]?\s*generation\b", source) is not None

    def render(self, values: Mapping[str, Any]) -> str:
        """Raises TemplateProblem."""
        return self.render_marked(values)[0]

    def render_marked(self, values: Mapping[str, Any]) -> tuple[str, list[tuple[int, int]]]:
        """The text, and the characters [begin, end) of each {% generation %} block. Raises TemplateProblem."""
        text = self._render(values)
        if not self.marks_generation:
            return text, []
        if re.search("[\ue000\ue001]", json.dumps(values, ensure_ascii=False, default=str)):
            raise TemplateProblem("the record has the private character U+E000 or U+E001; take it out")
        plain, spans, size = [], [], 0
        last = begin = 0
        for mark in _MARK.finditer(text):
            plain.append(text[last : mark.start()])
            size, last = size + len(plain[-1]), mark.end()
            if mark[0] == _BEGIN:
                begin = size
            else:
                spans.append((begin, size))
        return "".join([*plain, text[last:]]), spans

    def _render(self, values: Mapping[str, Any]) -> str:
        with self._lock:
            self._sandbox.refill()
            try:
                text = self._template.render(values)
            except (Exception, RecursionError) as error:  # hostile templates raise any error
                raise TemplateProblem(_describe(error)) from None
        if len(text) > MAX_TEXT_BYTES:
            raise TemplateProblem(f"it makes {len(text)} characters; the limit is {MAX_TEXT_BYTES}")
        return text


class _Generation(Extension):
    """{% generation %}…{% endgeneration %} marks the text that the model wrote."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        begin, end = (nodes.Output([nodes.TemplateData(mark)], lineno=line) for mark in (_BEGIN, _END))
        return nodes.Scope([begin, *body, end], lineno=line)


class _Date(Undefined):
    """strftime_now: undefined for a template that tests it, and DATE for a template that calls it."""

    unsafe_callable = alters_data = False  # attributes that the sandbox and the context read
    jinja_pass_arg = None

    def __call__(self, form: str) -> str:
        if len(form) > _MAX_FORM_CHARS:
            raise TemplateError(f"it asks for the date with {len(form)} characters; the limit is {_MAX_FORM_CHARS}")
        return DATE.strftime(form)


def _raise_exception(message: object) -> None:
    raise TemplateError(str(message))


def _describe(error: BaseException) -> str:
    line = error.lineno if isinstance(error, TemplateSyntaxError) else None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    if isinstance(error, RecursionError):
        text = "it is nested too deeply"
    elif isinstance(error, TemplateError):
        text = str(error.message if isinstance(error, TemplateSyntaxError) else error)
    else:
        text = f"{type(error).__name__}: {error}"
    return f"{f'line {line}: ' if line else ''}{text[:_REASON_CHARS]}"

"""Jinja templates from run.json or from a model's folder, compiled once and rendered for each record.

Templates are untrusted: Jinja's sandbox keeps them away from Python, and a process with limits bounds their time and
memory.
"""

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

# Python needs _pylong at the first division of huge integers, when a process with limits cannot open a file.
import _pylong  # noqa: F401  # pyrefly: ignore[missing-import]
from jinja2 import StrictUndefined, Undefined, nodes
from jinja2 import filters as jinja
from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace, pass_context

MAX_TEMPLATE_CHARS = 128 * 1024
MAX_TEXT_CHARS = 8 * 1024 * 1024  # of one prompt
DATE = datetime(2024, 7, 26)  # the date in Llama 3.2's own template
_MAX_FORM_CHARS = 100
_REASON_CHARS = 300
# Excludes Jinja's filters that draw random numbers, write HTML or write addresses of objects.
_FILTERS = (
    "abs attr capitalize count d default dictsort e escape first float format groupby indent int items join last "
    "length list lower map max min reject rejectattr replace reverse round safe select selectattr sort string "
    "striptags title trim truncate unique upper urlencode wordcount"
).split()
_BYTES_OF_STRINGS = frozenset({"encode", "translate", "maketrans"})
_WRITABLE = (str, int, float, type(None), list, tuple, dict, Undefined)
# Marks around the text of each {% generation %} block, which _render removes. No record may have these characters.
_BEGIN, _END = "\ue000\ue001", "\ue001\ue000"
_MARK = re.compile(f"{_BEGIN}|{_END}")
_PRIVATE = re.compile(rb"(?<!\\)(?:\\\\)*\\ue00[01]")  # as JSON writes them

Rendered = tuple[str, list[tuple[int, int]]]  # a text, and the characters [begin, end) of its {% generation %} blocks


class TemplateProblem(Exception):
    """The reason why a template gives no text, with the line of the template if known."""


class Template:
    """A compiled template."""

    def __init__(self, source: str, is_chat: bool):
        """is_chat: as transformers renders chat templates. Raises TemplateProblem if the template does not compile."""
        if len(source) > MAX_TEMPLATE_CHARS:
            raise TemplateProblem(f"it is {len(source)} characters long; the limit is {MAX_TEMPLATE_CHARS}")
        self.marks_generation = is_chat and re.search(r"{%[+-]?\s*generation\b", source) is not None
        try:
            self._template = _environment(is_chat).from_string(source)
        except MemoryError:
            raise
        except Exception as error:  # a template can raise any error
            raise TemplateProblem(_describe(error)) from None

    def render(self, values: Mapping[str, Any]) -> str:
        """Raises TemplateProblem."""
        return self.render_marked(values)[0]

    def render_marked(self, values: Mapping[str, Any]) -> Rendered:
        """The text, and where the model wrote it. Raises TemplateProblem."""
        if self.marks_generation and _PRIVATE.search(as_json(values)):
            raise TemplateProblem("the record has the private-use character U+E000 or U+E001; remove it")
        try:
            text = self._template.render(values)
        except MemoryError:
            raise
        except Exception as error:
            raise TemplateProblem(_describe(error)) from None
        text, spans = _unmarked(text) if self.marks_generation else (text, [])
        if len(text) > MAX_TEXT_CHARS:
            raise TemplateProblem(f"it makes {len(text)} characters; the limit is {MAX_TEXT_CHARS}")
        return text, spans


def as_json(values: Mapping[str, Any]) -> bytes:
    """Raises TemplateProblem."""
    try:
        return json.dumps(values).encode()
    except RecursionError:
        raise TemplateProblem("its values are nested too deeply") from None


def warm_up() -> None:
    """Python and Jinja open files at first use. These templates use a literal, a date and errors before limits hold."""
    for source in ("{{ 'é' | upper }}{{ strftime_now('%d %B') }}", "{{ 1 / 0 }}", "{{ a b }}"):
        try:
            Template(source, is_chat=True).render({})
        except TemplateProblem:
            pass


class _Environment(ImmutableSandboxedEnvironment):
    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, (int, float, bytes)) or (isinstance(obj, str) and attr in _BYTES_OF_STRINGS):
            return False
        return super().is_safe_attribute(obj, attr, value)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        if tree.find(nodes.ScopedEvalContextModifier):
            raise SecurityError("{% autoescape %} is for HTML; remove it")
        return tree


class _Generation(Extension):
    """{% generation %}…{% endgeneration %} marks the text that the model wrote."""

    tags = {"generation"}
    _is_open = False

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        if self._is_open:
            parser.fail("a {% generation %} block is inside another one; remove the inner block", line)
        self._is_open = True
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        self._is_open = False
        begin, end = (nodes.Output([nodes.TemplateData(mark)], lineno=line) for mark in (_BEGIN, _END))
        return nodes.Scope([begin, *body, end], lineno=line)


class _Namespace(Namespace):
    def __init__(*args: Any, **values: Any) -> None:
        self, args = args[0], args[1:]
        entries = dict(*args, **values)
        for name in entries:
            _check_name(name)
        Namespace.__init__(self, entries)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        Namespace.__setitem__(self, name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace cannot hold {name[:40]!r}: it begins with an underscore")


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


@pass_context  # with a context, Jinja evaluates no constant while it compiles
def _check_output(context: Context, value: Any) -> Any:
    if not isinstance(value, _WRITABLE):
        raise TemplateError(f"it writes a {type(value).__name__}, which has no text form")
    return value


def _to_json(value: Any, ensure_ascii=False, indent=None, separators=None, sort_keys=False) -> str:
    """JSON as in transformers, without the HTML escapes of Jinja's own filter."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _environment(is_chat: bool) -> _Environment:
    """`is_chat`: as transformers runs chat templates. Line breaks after a block and blanks before it are removed,
    undefined names are empty, and `raise_exception` and a date for `strftime_now` exist. Otherwise the text stays as
    written, and undefined names are errors."""
    environment = _Environment(
        trim_blocks=is_chat,
        lstrip_blocks=is_chat,
        keep_trailing_newline=not is_chat,
        undefined=Undefined if is_chat else StrictUndefined,
        finalize=_check_output,
        extensions=[loopcontrols],
        optimized=False,
    )
    names: dict[str, Any] = {name: environment.globals[name] for name in ("range", "dict", "cycler", "joiner")}
    environment.globals = names | {"namespace": _Namespace}
    environment.filters = {name: jinja.FILTERS[name] for name in _FILTERS} | {"tojson": _to_json}
    if is_chat:
        environment.add_extension(_Generation)
        names = {"raise_exception": _raise_exception, "strftime_now": _Date(name="strftime_now")}
        environment.globals |= names
    return environment


def _unmarked(text: str) -> tuple[str, list[tuple[int, int]]]:
    """The text without marks, and the characters [begin, end) between each pair of marks."""
    plain: list[str] = []
    spans: list[tuple[int, int]] = []
    size = last = begin = 0
    for mark in _MARK.finditer(text):
        plain.append(text[last : mark.start()])
        size, last = size + len(plain[-1]), mark.end()
        if mark[0] == _BEGIN:
            begin = size
        elif begin < size:
            spans.append((begin, size))
    return "".join([*plain, text[last:]]), spans


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

"""The process that renders templates: `python renderer.py`, started by render_process.py.

It reads requests from stdin and writes answers to stdout, each as JSON behind its length in 4 bytes:

    {template, source, is_chat, cpu_s}    compiles     {marks_generation}
    {template, values: [...], cpu_s}      renders      {text, spans} for each value, as soon as it is rendered
                                                       {problem} or {exceeds} in place of any answer

Templates are untrusted: Jinja's sandbox keeps them away from Python, and the limits of this process bound their time
and memory. When stdin ends, the process ends. A render that exceeds its CPU time ends the process by SIGPROF.
"""

import json
import re
import resource
import signal
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import Any, cast

# Python needs _pylong at the first division of huge integers, when this process cannot open a file.
import _pylong  # noqa: F401  # pyrefly: ignore[missing-import]
from jinja2 import StrictUndefined, Template, Undefined, nodes
from jinja2 import filters as jinja
from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace, pass_context

MEMORY_BYTES = 1 << 30
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


Compiled = dict[int, tuple[Template, bool]]  # by number; whether it marks the text that the model wrote


def answers(request: dict, compiled: Compiled) -> Iterator[bytes]:
    """The answers to a request, each with its length."""
    parts = [request] if "source" in request else request["values"]
    for part in parts:
        signal.setitimer(signal.ITIMER_PROF, request["cpu_s"])
        try:
            data = json.dumps(
                _compile(part, compiled) if part is request else _render(part, compiled[request["template"]])
            )
        except MemoryError:
            data = json.dumps({"exceeds": f"it needs more than {MEMORY_BYTES >> 20} MiB of memory"})
        except Exception as error:  # a template can raise any error
            data = json.dumps({"problem": _describe(error)})
        signal.setitimer(signal.ITIMER_PROF, 0)
        yield len(data).to_bytes(4, "big") + data.encode()


def _compile(request: dict, compiled: Compiled) -> dict:
    source = request["source"]
    is_marked = request["is_chat"] and re.search(r"{%[+-]?\s*generation\b", source) is not None
    compiled[request["template"]] = _environment(request["is_chat"]).from_string(source), is_marked
    return {"marks_generation": is_marked}


def _render(values: dict, compiled: tuple[Template, bool]) -> dict:
    template, is_marked = compiled
    text = template.render(values)
    text, spans = _unmarked(text) if is_marked else (text, [])
    if len(text) > MAX_TEXT_CHARS:
        return {"problem": f"it makes {len(text)} characters; the limit is {MAX_TEXT_CHARS}"}
    return {"text": text, "spans": spans}


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


def main() -> None:
    # Python and Jinja open files at first use. These templates use a literal, a date and errors before the limits hold.
    for source in ("{{ 'é' | upper }}{{ strftime_now('%d %B') }}", "{{ 1 / 0 }}", "{{ a b }}"):
        warm: Compiled = {}
        list(answers({"template": 0, "source": source, "is_chat": True, "cpu_s": 60}, warm))
        list(answers({"template": 0, "values": [{}] if warm else [], "cpu_s": 60}, warm))
    # The process has stdin, stdout and stderr, and can open no file, socket or process.
    limits = {"RLIMIT_AS": MEMORY_BYTES, "RLIMIT_NOFILE": 3, "RLIMIT_FSIZE": 0, "RLIMIT_CORE": 0, "RLIMIT_NPROC": 0}
    for name, most in limits.items():
        try:
            resource.setrlimit(getattr(resource, name), (most, most))
        except (AttributeError, ValueError, OSError):
            pass  # macOS lacks some of these limits; the CPU time limit applies there too
    compiled: Compiled = {}
    while header := sys.stdin.buffer.read(4):
        request = cast(dict, json.loads(sys.stdin.buffer.read(int.from_bytes(header, "big"))))
        for data in answers(request, compiled):
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()

"""The filters and tests that a template may use, each counting its work; see sandbox.py.

Jinja's filters that draw random numbers, write HTML or run without end on little input are left out.
"""

import json
from collections.abc import Callable
from types import GeneratorType
from typing import Any, cast

from jinja2 import filters as jinja
from jinja2 import tests as jinja_tests
from jinja2.runtime import Context
from jinja2.utils import _PassArg, pass_context

from .sandbox import Sandbox, TooMuch

_FILTERS = (
    "abs attr capitalize count d default dictsort e escape first float groupby int items last length list lower map "
    "max min reject rejectattr reverse safe select selectattr sort string striptags title trim truncate unique upper "
    "urlencode wordcount"
).split()
_MOST_DIGITS = 100  # of a number, and columns of an indent


def install(sandbox: Sandbox) -> None:
    sandbox.filters = {name: _counted(jinja.FILTERS[name]) for name in _FILTERS} | {
        name: pass_context(function)
        for name, function in {
            "join": _join,
            "replace": _replace,
            "indent": _indent,
            "format": _format,
            "round": _round,
            "tojson": _to_json,
        }.items()
    }
    sandbox.tests = {name: _counted(test) for name, test in jinja_tests.TESTS.items()}


def _sandbox_of(context: Context) -> Sandbox:
    return cast(Sandbox, context.environment)


def _counted(function: Callable[..., Any]) -> Callable[..., Any]:
    wanted = _PassArg.from_obj(function)

    # Jinja evaluates a filter of constants at compile time, but never a filter that takes the context.
    @pass_context
    def counted(context: Context, *args: Any, **values: Any) -> Any:
        sandbox = _sandbox_of(context)
        for value in (*args, *values.values()):
            sandbox.weigh(value)
        if wanted is _PassArg.context:
            made = function(context, *args, **values)
        elif wanted is _PassArg.eval_context:
            made = function(context.eval_ctx, *args, **values)
        elif wanted is _PassArg.environment:
            made = function(sandbox, *args, **values)
        else:
            made = function(*args, **values)
        if isinstance(made, GeneratorType):
            return sandbox.metered(made)
        sandbox.step(len(made) if isinstance(made, str) else sandbox.size(made))
        return made

    return counted


def _join(context: Context, value: Any, d: str = "", attribute: str | int | None = None) -> Any:
    sandbox = _sandbox_of(context)
    items = list(sandbox.metered(value))
    sandbox.step(sandbox.size(items) + sandbox.size(d) * len(items))
    return jinja.do_join(context.eval_ctx, items, d, attribute)


def _replace(context: Context, s: str, old: str, new: str, count: int | None = None) -> str:
    sandbox = _sandbox_of(context)
    s, old, new = str(s), str(old), str(new)
    sandbox.weigh(s)
    sandbox.step(len(s) + s.count(old) * len(new))
    return s.replace(old, new, -1 if count is None else count)


def _indent(context: Context, s: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    sandbox = _sandbox_of(context)
    columns = width if isinstance(width, int) else len(width)
    if columns > _MOST_DIGITS:
        raise TooMuch(f"it indents by more than {_MOST_DIGITS}")
    sandbox.step(len(s) + (s.count("\n") + 1) * (columns + 1))
    return jinja.do_indent(s, width, first, blank)


def _round(context: Context, value: float, precision: int = 0, method: Any = "common") -> float:
    if abs(precision) > _MOST_DIGITS:
        raise TooMuch(f"it rounds to more than {_MOST_DIGITS} digits")
    _sandbox_of(context).step()
    return jinja.do_round(value, precision, method)


def _format(context: Context, value: str, *args: Any, **values: Any) -> str:
    if args and values:
        raise TypeError("format takes values by position or by name, not both")
    return _sandbox_of(context).call_binop(context, "%", str(value), values or args)


def _to_json(
    context: Context,
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As in transformers: without the HTML escapes of Jinja's own filter."""
    sandbox = _sandbox_of(context)
    if isinstance(indent, (int, str)) and (indent if isinstance(indent, int) else len(indent)) > _MOST_DIGITS:
        raise TooMuch(f"it indents by more than {_MOST_DIGITS}")
    sandbox.step(sandbox.size(value))
    text = json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    sandbox.step(len(text))
    return text

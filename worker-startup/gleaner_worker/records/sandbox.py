"""Runs untrusted Jinja templates on untrusted records.

Jinja's own sandbox keeps a template away from Python. This sandbox also limits time and memory: it counts all work, and
a template that exceeds the count ends with an error. Counts, unlike a clock, are the same on every machine. The counts:

  steps   rounds of loops, calls, filters, tests, comparisons
  chars   of every string that is made, which limits memory too; containers count by their size

Templates have no time, no random number and no other template: one record always gives the same text.
"""

import re
from collections.abc import Callable, Iterator
from types import BuiltinMethodType, MethodType
from typing import Any, cast

from jinja2 import Undefined, nodes
from jinja2.exceptions import SecurityError, TemplateRuntimeError
from jinja2.ext import loopcontrols
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter
from jinja2.utils import Namespace, pass_context

from .metering import add_counting

MAX_STEPS = 2_000_000  # a few seconds
MAX_CHARS = 1 << 28
_CHARS_PER_STEP = 256  # of text that is searched or copied
_MAX_WIDTH = 100_000  # that one call may pad to
_MAX_BITS = 1 << 16  # of a whole number
_CALL_STEPS = 4
_ITEM_CHARS = 16  # of one item of a container
_FORBIDDEN_OF_STRINGS = frozenset({"encode", "translate", "maketrans", "expandtabs"})


class TooMuch(TemplateRuntimeError):
    """The template exceeds its limit of steps or characters."""


class Sandbox(ImmutableSandboxedEnvironment):
    """An environment for one template at a time; call `refill` before each use."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, **options: Any):
        super().__init__(finalize=_count_output, extensions=[loopcontrols], **options)
        self.globals = {
            "range": self.globals["range"],
            "dict": lambda *args, **values: dict(*args, **values),
            "namespace": _Namespace,
            "cycler": self.globals["cycler"],
            "joiner": self.globals["joiner"],
        }
        self.refill()

    def refill(self) -> None:
        self._steps, self._chars = MAX_STEPS, MAX_CHARS

    def step(self, chars: int = 0, steps: int = 1) -> bool:
        """Counts work and the characters that it makes; returns True, so that conditions can call it."""
        self._steps -= steps
        self._chars -= chars
        if self._steps < 0:
            raise TooMuch(f"it takes more than {MAX_STEPS} steps")
        if self._chars < 0:
            raise TooMuch(f"it makes more than {MAX_CHARS} characters")
        return True

    def size(self, value: Any) -> int:
        """The approximate characters of the written value; each part of a container counts as a step.

        A part that is reached twice counts twice, as in the written text.
        """
        if isinstance(value, str):
            return len(value)
        total, parts, rest = 0, 0, [value]
        while rest:
            value = rest.pop()
            parts += 1
            if parts % 1024 == 0:
                self.step(steps=1024)
            if isinstance(value, str):
                total += len(value)
                continue
            total += _ITEM_CHARS
            if isinstance(value, (list, tuple)):
                rest.extend(value)
            elif isinstance(value, dict):
                rest.extend(value)
                rest.extend(value.values())
            elif isinstance(value, Namespace):
                rest.append(value._Namespace__attrs)
            elif isinstance(value, range):
                self.step(steps=len(value))
            elif isinstance(value, int):
                total += value.bit_length() // 3
        self.step(steps=parts % 1024)
        return total

    def weigh(self, value: Any) -> Any:
        """Counts the work of comparing or copying the value."""
        self.step(steps=1 + self.size(value) // _CHARS_PER_STEP)
        return value

    def concat_values(self, *values: Any) -> str:
        self.step(sum(map(self.size, values)))
        return "".join(map(str, values))

    def metered(self, values: Any) -> Iterator[Any]:
        for value in values:
            self.step()
            yield value

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = add_counting(super()._parse(source, name, filename))
        tree.set_environment(self)
        return tree

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        counts = [value for value in (left, right) if isinstance(value, int)]
        if operator == "%" and isinstance(left, str):
            self._check_format(left, right)
        elif operator == "**" and len(counts) == 2:
            if counts[0].bit_length() * abs(counts[1]) > _MAX_BITS:
                raise TooMuch("it raises to a power that is too large")
        elif operator == "*" and len(counts) == 1 and not isinstance(left, float) and not isinstance(right, float):
            repeated = right if left is counts[0] else left
            self.step(self.size(repeated) * max(counts[0], 0))
        else:
            self.step(self.size(left) + self.size(right))
            if len(counts) == 2 and sum(value.bit_length() for value in counts) > _MAX_BITS:
                raise TooMuch("it makes a number that is too long")
        return super().call_binop(context, operator, left, right)

    def _check_format(self, text: str, values: Any) -> None:
        if re.search(r"%[^A-Za-z%]*(?:\*|\d{4})", text):
            raise TooMuch("it formats with a width that is too large")
        self.step(len(text) + text.count("%") * (self.size(values) + 1000))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, (int, float, bytes)) or (isinstance(obj, str) and attr in _FORBIDDEN_OF_STRINGS):
            return False
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        if super().wrap_str_format(value) is None:
            return None
        text, by_name = value.__self__, value.__name__ == "format_map"

        def bounded(*args: Any, **values: Any) -> str:
            self.step(len(text))
            formatter = _Formatter(self)
            return formatter.vformat(text, (), *args) if by_name else formatter.vformat(text, args, values)

        return bounded

    def call(self, context: Context, function: Any, /, *args: Any, **values: Any) -> Any:
        owner = getattr(function, "__self__", None) if isinstance(function, (MethodType, BuiltinMethodType)) else None
        if owner is self:
            return function(*args)
        self.step(steps=_CALL_STEPS)
        if isinstance(function, BuiltinMethodType):
            args = self._bounded_args(owner, function.__name__, args)
        made = super().call(context, function, *args, **values)
        if isinstance(made, str):
            self.step(len(made))
        elif isinstance(made, (list, tuple, dict)) and getattr(function, "__name__", "") != "get":
            self.step(_ITEM_CHARS * len(made))
        return made

    def _bounded_args(self, owner: Any, name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
        if any(isinstance(arg, int) and arg > _MAX_WIDTH for arg in args):
            raise TooMuch(f"it calls {name} with a number over {_MAX_WIDTH}")
        if not isinstance(owner, str):
            self.step(steps=len(owner) // _ITEM_CHARS if isinstance(owner, (list, tuple, dict, range)) else 0)
            return args
        self.step(steps=len(owner) // _CHARS_PER_STEP)
        if name == "join" and args:
            items = list(self.metered(args[0]))
            self.step(self.size(items) + len(owner) * len(items))
            return (items, *args[1:])
        if name == "replace" and len(args) >= 2 and isinstance(args[0], str) and isinstance(args[1], str):
            self.step(owner.count(args[0]) * len(args[1]))
        return args


@pass_context
def _count_output(context: Context, value: Any) -> Any:
    sandbox = cast(Sandbox, context.environment)
    sandbox.step(len(value) if isinstance(value, str) else 0 if isinstance(value, Undefined) else sandbox.size(value))
    return value


class _Namespace(Namespace):
    def __init__(*args: Any, **values: Any) -> None:
        self, args = args[0], args[1:]
        given = dict(*args, **values)
        for name in given:
            _check_name(name)
        Namespace.__init__(self, given)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        Namespace.__setitem__(self, name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace cannot hold {name[:40]!r}: it begins with an underscore")


class _Formatter(SandboxedFormatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        if re.search(r"\d{4}", format_spec):
            raise TooMuch("it formats with a width that is too large")
        sandbox = cast(Sandbox, self._env)
        sandbox.step(sandbox.size(value))
        text = super().format_field(value, format_spec)
        sandbox.step(len(text))
        return text

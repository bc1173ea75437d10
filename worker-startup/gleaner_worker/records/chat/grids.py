"""Encoders of grids as text, and the expression of record.encoder that combines them.

An expression such as GridShapeEncoder(RowNumberEncoder(MinimalGridEncoder())) is parsed, never evaluated. The text
of each encoder for the grid [[0, 7], [7, 7]]:

    MinimalGridEncoder()                      07
                                              77
    GridWithSeparationEncoder('|')            0|7
                                              7|7
    RepeatNumberEncoder(2)                    0077
                                              7777
    RepeatNumberEncoder(BASE, 2)              the text of BASE, each digit twice
    ReplaceNumberEncoder(BASE, [ten strings]) the text of BASE, digit n as string n
    RowNumberEncoder(BASE)                    1 07
                                              2 77
    GridCodeBlockEncoder(BASE)                ```grid, the lines of BASE, ```
    GridShapeEncoder(BASE)                    ```grid shape: 2x2, the lines of BASE, ```
"""

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Grid = tuple[str, ...]  # a string of digits for each row

DEFAULT_ENCODER = "GridShapeEncoder(RowNumberEncoder(MinimalGridEncoder()))"
OPENING = "```grid"
_SYMBOLS = ("ñ", "ò", "÷", "û", "ą", "ć", "ď", "ę", "Ě", "Ğ")  # each is one token in the vocabularies of Qwen
_MAX_EXPRESSION_CHARS = 1000
_MAX_CELL_CHARS = 256  # of the text of one cell


@dataclass(frozen=True)
class Encoder:
    """Writes a grid as text."""

    to_text: Callable[[Grid], str]
    cell_chars: int  # the longest text of a cell


def parse_encoder(expression: str) -> Encoder:
    """Parses an expression of encoders. Raises ValueError that names its fault and the known encoders."""
    try:
        if len(expression) > _MAX_EXPRESSION_CHARS:
            raise ValueError(f"it is longer than {_MAX_EXPRESSION_CHARS} characters")
        return _build(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, UnicodeError, RecursionError, MemoryError):
        reason = "it is not a valid expression"
    except ValueError as error:
        reason = str(error)
    raise ValueError(f"{expression[:200]!r} is not an encoder of grids: {reason}; known are {', '.join(_KNOWN)}")


def _build(node: ast.expr) -> Encoder:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise ValueError(f"it has {ast.unparse(node)[:40]} in place of an encoder")
    name = node.func.id
    if name not in _ENCODERS:
        raise ValueError(f"{name[:40]} is unknown")
    make, kinds = _ENCODERS[name]
    arguments: list[tuple[Any, ast.expr]] = [
        *zip(kinds, node.args, strict=False),
        *((keyword.arg, keyword.value) for keyword in node.keywords),
    ]
    values = {key: _value(value) for key, value in arguments}
    if len(node.args) > len(kinds) or len(values) < len(arguments) or not values.keys() <= kinds.keys():
        raise ValueError(f"{name} takes {' and '.join(kinds) or 'no arguments'}")
    for key, value in values.items():
        if type(value) not in kinds[key]:
            raise ValueError(f"{name} needs {' or '.join(_KINDS[kind] for kind in kinds[key])} as its {key}")
    if name not in _NO_REQUIRED_ARGUMENT and next(iter(kinds)) not in values:
        raise ValueError(f"{name} lacks its {next(iter(kinds))}")
    encoder = make(**values)
    if encoder.cell_chars > _MAX_CELL_CHARS:
        raise ValueError(f"it makes more than {_MAX_CELL_CHARS} characters per cell")
    return encoder


def _value(node: ast.expr) -> object:
    if isinstance(node, ast.Call):
        return _build(node)
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, (ast.List, ast.Tuple)):
        constants = [item.value for item in node.elts if isinstance(item, ast.Constant)]
        if len(constants) == len(node.elts):
            return tuple(constants)
    raise ValueError(f"it has {ast.unparse(node)[:40]} in place of an argument")


def _minimal() -> Encoder:
    return Encoder("\n".join, 1)


def _separated(split_symbol: str) -> Encoder:
    _check_symbol(split_symbol)
    return Encoder(lambda grid: "\n".join(map(split_symbol.join, grid)), 1 + len(split_symbol))


def _code_block(base_encoder: Encoder) -> Encoder:
    return Encoder(lambda grid: f"{OPENING}\n{base_encoder.to_text(grid)}\n```", base_encoder.cell_chars)


def _shape(base_encoder: Encoder) -> Encoder:
    def to_text(grid: Grid) -> str:
        return f"{OPENING} shape: {len(grid)}x{len(grid[0])}\n{base_encoder.to_text(grid)}\n```"

    return Encoder(to_text, base_encoder.cell_chars)


def _row_numbers(base_encoder: Encoder) -> Encoder:
    def to_text(grid: Grid) -> str:
        return "\n".join(f"{number} {line}" for number, line in enumerate(base_encoder.to_text(grid).split("\n"), 1))

    return Encoder(to_text, base_encoder.cell_chars + 8)


def _repeated(base_encoder: Encoder | int | None = None, n: int = 3) -> Encoder:
    if isinstance(base_encoder, int):  # RepeatNumberEncoder(2) has no base encoder
        base_encoder, n = None, base_encoder
    if not 1 <= n <= 16:
        raise ValueError(f"RepeatNumberEncoder repeats 1 to 16 times, not {n}")
    return _translated(base_encoder or _minimal(), tuple(digit * n for digit in "0123456789"))


def _replaced(base_encoder: Encoder, symbols: tuple[str, ...] = _SYMBOLS) -> Encoder:
    if len(set(symbols)) != 10 or len(symbols) != 10:
        raise ValueError("ReplaceNumberEncoder needs ten different strings, for the digits 0 to 9")
    for symbol in symbols:
        _check_symbol(symbol)
    return _translated(base_encoder, symbols)


def _translated(base: Encoder, symbols: tuple[str, ...]) -> Encoder:
    table = {ord(digit): symbol for digit, symbol in zip("0123456789", symbols, strict=True)}
    return Encoder(lambda grid: base.to_text(grid).translate(table), base.cell_chars * max(map(len, symbols)))


def _check_symbol(symbol: object) -> None:
    # Printable text has no line breaks and no lone surrogates.
    if not isinstance(symbol, str) or not 1 <= len(symbol) <= 16 or not (symbol.isprintable() or symbol == "\t"):
        raise ValueError(f"{str(symbol)[:20]!r} is not a string of 1 to 16 printable characters")


# By name: the function that makes the encoder, and the kinds of each argument in order.
_ENCODERS: dict[str, tuple[Callable[..., Encoder], dict[str, tuple[type, ...]]]] = {
    "MinimalGridEncoder": (_minimal, {}),
    "GridWithSeparationEncoder": (_separated, {"split_symbol": (str,)}),
    "GridCodeBlockEncoder": (_code_block, {"base_encoder": (Encoder,)}),
    "GridShapeEncoder": (_shape, {"base_encoder": (Encoder,)}),
    "RowNumberEncoder": (_row_numbers, {"base_encoder": (Encoder,)}),
    "RepeatNumberEncoder": (_repeated, {"base_encoder": (Encoder, int), "n": (int,)}),
    "ReplaceNumberEncoder": (_replaced, {"base_encoder": (Encoder,), "symbols": (tuple,)}),
}
_NO_REQUIRED_ARGUMENT = ("MinimalGridEncoder", "RepeatNumberEncoder")
_KNOWN = (
    "MinimalGridEncoder()",
    "GridWithSeparationEncoder('|')",
    "GridCodeBlockEncoder(BASE)",
    "GridShapeEncoder(BASE)",
    "RowNumberEncoder(BASE)",
    "RepeatNumberEncoder(BASE, 3)",
    "ReplaceNumberEncoder(BASE, [ten strings])",
)
_KINDS = {Encoder: "an encoder", str: "a string", int: "a number", tuple: "a list of strings"}

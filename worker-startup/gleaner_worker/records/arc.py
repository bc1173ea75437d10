"""ARC tasks as text, always the same text for the same task.

The task is written as its training pairs and then the last test input, whose output is left for the model to give
(it is never written, even when the record has it). Each grid is a shape line, then numbered rows of one digit per cell:

    Each example turns an input grid into an output grid.

    Example 1
    input 2x3
    1 077
    2 700
    output 1x3
    1 777

    Test
    input 1x3
    1 070
    output
"""


def encode_task(record: dict) -> str:
    """Text of a record {train: [{input, output}], test: [{input}]}; raises ValueError naming the cell that is wrong."""
    train, test = record.get("train"), record.get("test")
    if not isinstance(train, list) or not isinstance(test, list):
        raise ValueError("an ARC task needs lists `train` and `test`")
    if not test:
        raise ValueError("`test` is empty")
    parts = ["Each example turns an input grid into an output grid.\n"]
    for number, pair in enumerate(train):
        given, wanted = (_grid(pair, key, f"train[{number}]") for key in ("input", "output"))
        parts.append(f"\nExample {number + 1}\ninput {given}output {wanted}")
    parts.append(f"\nTest\ninput {_grid(test[-1], 'input', f'test[{len(test) - 1}]')}output\n")
    return "".join(parts)


def _grid(pair: object, key: str, where: str) -> str:
    if not isinstance(pair, dict):
        raise ValueError(f"{where} is not an object")
    rows = pair.get(key)
    where = f"{where}.{key}"
    if not isinstance(rows, list) or not rows or not all(isinstance(row, list) and row for row in rows):
        raise ValueError(f"{where} is not a list of rows")
    width = len(rows[0])
    lines = [f"{len(rows)}x{width}"]
    for number, row in enumerate(rows, 1):
        if len(row) != width:
            raise ValueError(f"{where} row {number} has {len(row)} cells, row 1 has {width}")
        for cell in row:
            if type(cell) is not int or not 0 <= cell <= 9:
                raise ValueError(f"{where} row {number} has a cell that is not a digit 0 to 9: {str(cell)[:20]}")
        lines.append(f"{number} {''.join(map(str, row))}")
    return "\n".join(lines) + "\n"

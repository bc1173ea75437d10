"""Tables of values that readers of Parquet change, and the right JSON of each row, by pyarrow.

`python test/reference/hard_values.py` writes test/fixtures/hard-values.parquet and hard-values.jsonl again.
"""

import datetime
import decimal
import json
import os
import random
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FIXTURES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "fixtures")
TEXTS = ["", "a", "\ufeffx", 'é\n"\\', "\u2028", "0" * 50, "\x00", "😀", "1.0", "null"]
KEYS = ["10", "2", "z", "é", "__proto__"]
NAMES = ["a", "b", "10", "2", "x y", "toString", "constructor", "length"]
LEAVES = [
    *(pa.int8(), pa.uint8(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64(), pa.bool_(), pa.null()),
    *(pa.float16(), pa.float32(), pa.float64(), pa.decimal128(9, 3), pa.decimal128(38, 10), pa.decimal256(60, 5)),
    *(pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())),
    *(pa.date32(), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    *(pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("us", "UTC"), pa.timestamp("ns")),
]


def random_type(draw: random.Random, depth: int) -> pa.DataType:
    """A type with at most `depth` lists, structs and maps inside of each other."""
    kind = draw.choice(["list", "struct", "map", "leaf", "leaf", "leaf"]) if depth else "leaf"
    if kind == "list":
        return pa.list_(random_type(draw, depth - 1))
    if kind == "struct":
        names = draw.sample(NAMES, draw.randint(1, 3))
        return pa.struct([pa.field(name, random_type(draw, depth - 1)) for name in names])
    if kind == "map":
        return pa.map_(draw.choice([pa.string(), pa.int32()]), random_type(draw, depth - 1))
    return draw.choice(LEAVES)


def random_value(draw: random.Random, kind: pa.DataType) -> object:
    """A value of a type, as pyarrow takes it; often null, or at an end of the range of the type."""
    if draw.random() < 0.25 or pa.types.is_null(kind):
        return None
    if pa.types.is_list(kind):
        return [random_value(draw, kind.value_type) for _ in range(draw.choice([0, 1, 2, 5]))]
    if pa.types.is_struct(kind):
        return {field.name: random_value(draw, field.type) for field in kind}
    if pa.types.is_map(kind):
        keys = draw.sample(KEYS if pa.types.is_string(kind.key_type) else range(-5, 20), draw.randint(0, 3))
        return [(key, random_value(draw, kind.item_type)) for key in keys]
    if pa.types.is_boolean(kind):
        return draw.random() < 0.5
    if pa.types.is_integer(kind):
        low = -(2 ** (kind.bit_width - 1)) if pa.types.is_signed_integer(kind) else 0
        return draw.choice([0, 1, low, low + 2**kind.bit_width - 1, low + 2 ** (kind.bit_width - 1)])
    if pa.types.is_float16(kind):
        return np.float16(draw.choice([0.0, -0.0, 1.0, 0.1, 65504, 6e-8, -2.5]))
    if pa.types.is_floating(kind):
        least = 5e-324 if kind == pa.float64() else 1e-45
        return draw.choice([0.0, -0.0, 1.0, 0.1, 1e16, 1e22, least, 123456.789, -1e-7, float(2**53)])
    if pa.types.is_decimal(kind):
        return decimal.Decimal(draw.choice([0, 1, -1, 5, 12345, -99999])).scaleb(-kind.scale)
    if pa.types.is_date(kind):
        return datetime.date(draw.choice([1, 1500, 1969, 1970, 2024, 9999]), 2, 28)
    if pa.types.is_time(kind):
        return datetime.time(draw.randint(0, 23), 5, 9, draw.choice([0, 500_000, 1000]))
    if pa.types.is_timestamp(kind):
        year = draw.choice([1970, 1969, 2024, 1900] if kind.unit == "ns" else [1, 1500, 1969, 2024, 9999])
        micros = 0 if kind.unit == "s" else draw.choice([0, 1000, 500_000])
        return datetime.datetime(year, 2, 28, 1, 2, 3, micros, tzinfo=datetime.UTC if kind.tz else None)
    return draw.choice(TEXTS)


def json_value(value: object, kind: pa.DataType) -> object:
    """The value of `to_pylist` as `json` can write it: decimals and times are texts, maps and JSON are values."""
    if value is None:
        return None
    if isinstance(value, list):
        if pa.types.is_map(kind):
            return {str(key): json_value(each, kind.item_type) for key, each in value}
        return [json_value(each, kind.value_type) for each in value]
    if isinstance(value, dict):
        return {field.name: json_value(value[field.name], field.type) for field in kind}
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, np.floating):
        return float(value)
    if isinstance(value, bytes):
        return value.decode()
    if kind == pa.json_():
        return json.loads(cast(str, value))
    if isinstance(value, (datetime.date, datetime.time)):
        zone = "Z" if getattr(value, "tzinfo", None) else ""
        text = value.replace(tzinfo=None).isoformat() if isinstance(value, datetime.datetime) else value.isoformat()
        return text + zone
    return value


def expected(table: pa.Table) -> list[dict]:
    """The right JSON of each row."""
    return [
        {field.name: json_value(row[field.name], field.type) for field in table.schema} for row in table.to_pylist()
    ]


def random_table(seed: int) -> tuple[pa.Table, dict]:
    """A table, and options of `write_table` for it."""
    draw = random.Random(seed)
    names = draw.sample(["text", "10", "2", "s", "with.dot"], draw.randint(1, 4))
    fields = [pa.field(name, random_type(draw, 3)) for name in names]
    rows = draw.choice([1, 3, 50, 300])
    columns = [pa.array([random_value(draw, field.type) for _ in range(rows)], field.type) for field in fields]
    options = {
        "row_group_size": draw.choice([7, 100, 1000]),
        "data_page_size": draw.choice([20, 1 << 20]),
        "data_page_version": draw.choice(["1.0", "2.0"]),
        "use_dictionary": draw.random() < 0.6,
        "compression": draw.choice(["none", "snappy", "gzip", "zstd", "brotli", "lz4"]),
        "write_batch_size": draw.choice([3, 1024]),
        "version": draw.choice(["2.4", "2.6"]),
    }
    return pa.Table.from_arrays(columns, schema=pa.schema(fields)), options


def fixed_table() -> pa.Table:
    """A column of each kind, with rows of ordinary, extreme and absent values."""
    precise = datetime.datetime(2023, 11, 14, 22, 13, 20, 123456)
    last = datetime.datetime(9999, 12, 31, 23, 59, 59, 999999, datetime.UTC)
    columns = {
        "text": (pa.string(), ["\ufeffThe first line", "", "\ufeff\ufefftwice \u2028\x00😀"]),
        "bytes": (pa.binary(), [b"caf\xc3\xa9", b"", None]),
        "price": (pa.decimal128(5, 2), [decimal.Decimal("4.35"), decimal.Decimal("1.10"), decimal.Decimal("-0.05")]),
        "wide": (pa.decimal256(60, 5), [decimal.Decimal("1" * 50 + ".00001"), decimal.Decimal("-1.00000"), None]),
        "u64": (pa.uint64(), [2**64 - 1, 0, None]),
        "u32": (pa.uint32(), [2**32 - 1, 0, None]),
        "i64": (pa.int64(), [-(2**63), 2**53 + 1, None]),
        "f64": (pa.float64(), [1.0, -0.0, 0.1]),
        "f32": (pa.float32(), [16777216.0, 0.1, None]),
        "f16": (pa.float16(), [np.float16(0.1), np.float16(-2), None]),
        "day": (pa.date32(), [datetime.date(2024, 2, 29), datetime.date(1, 1, 1), None]),
        "t_ms": (pa.time32("ms"), [datetime.time(1, 2, 3), datetime.time(23, 59, 59), None]),
        "t_us": (pa.time64("us"), [datetime.time(0, 0, 0, 1), datetime.time(1, 2, 3), None]),
        "at_us": (pa.timestamp("us"), [precise, datetime.datetime(1, 1, 1), None]),
        "at_utc": (pa.timestamp("us", "UTC"), [last, None, None]),
        "list": (pa.list_(pa.list_(pa.int32())), [[[1, None], [], None], [], None]),
        "struct": (pa.struct([("z", pa.float64()), ("10", pa.string()), ("2", pa.list_(pa.int32()))]), [
            {"z": 1.0, "10": "ten", "2": [2]}, {"z": None, "10": None, "2": None}, None]),
        "map": (pa.map_(pa.string(), pa.int64()), [[("z", 1), ("10", None), ("2", 2**62)], [], None]),
        "flags": (pa.list_(pa.bool_()), [[True, False, None], [], None]),
        "json": (pa.json_(), ['{"z":1.0,"10":12345678901234567890,"2":{"10":[],"2":null}}', "1.0", None]),
        "nothing": (pa.null(), [None, None, None]),
    }  # fmt: skip
    arrays = [
        pa.array(values, pa.string()).cast(kind) if kind == pa.json_() else pa.array(values, kind)
        for kind, values in columns.values()
    ]
    return pa.Table.from_arrays(arrays, names=list(columns))


def main() -> None:
    table = fixed_table()
    pq.write_table(table, os.path.join(FIXTURES, "hard-values.parquet"), compression="zstd", write_statistics=False)
    with open(os.path.join(FIXTURES, "hard-values.jsonl"), "w") as file:
        for row in expected(table):
            file.write(json.dumps(row, separators=(",", ":"), ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()

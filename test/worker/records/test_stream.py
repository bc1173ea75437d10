import gzip

import pytest

from build import fails
from gleaner_worker.records.lines.stream import MAX_LINE_BYTES, count_lines, read_lines

BOM = b"\xef\xbb\xbf"


def lines_of(tmp_path, data):
    path = tmp_path / "stream"
    path.write_bytes(data)
    return [line.data for line in read_lines(str(path), "datasets/r/stream_000.jsonl")]


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("a newline at the end makes no line", b"a\nb\n", [b"a", b"b"]),
        ("no newline at the end", b"a\nb", [b"a", b"b"]),
        ("CRLF", b"a\r\nb\r\n", [b"a", b"b"]),
        ("a blank line counts", b"a\n\nb\n", [b"a", b"", b"b"]),
        ("blank lines at the end count", b"a\n\n\n", [b"a", b"", b""]),
        ("a BOM is no part of the first line", BOM + b"a\nb\n", [b"a", b"b"]),
        ("a BOM after the first line is kept", b"a\n" + BOM + b"b\n", [b"a", BOM + b"b"]),
        ("a BOM alone is an empty stream", BOM, []),
        ("a BOM and a newline is one blank line", BOM + b"\n", [b""]),
        ("an empty file has no line", b"", []),
        ("one newline is one blank line", b"\n", [b""]),
        ("a carriage return alone ends no line", b"a\rb\n", [b"a\rb"]),
        ("line separators of Unicode end no line", "a\u2028b\x0bc\n".encode(), ["a\u2028b\x0bc".encode()]),
    ],
)
def test_lines_are_split_at_newlines_only(tmp_path, name, data, expected):
    assert lines_of(tmp_path, data) == expected
    assert lines_of(tmp_path, gzip.compress(data)) == expected
    assert count_lines(str(tmp_path / "stream"), "x") == len(expected)


def test_a_gzip_file_of_two_members_is_one_stream(tmp_path):
    assert lines_of(tmp_path, gzip.compress(b"a\nb") + gzip.compress(b"c\nd\n")) == [b"a", b"bc", b"d"]


@pytest.mark.parametrize("ending", [b"", b"\n", b"\r\n"])
@pytest.mark.parametrize("extra", [0, 1, 5_000_000])
def test_a_line_beyond_the_limit_is_measured_but_not_kept(tmp_path, ending, extra):
    size = MAX_LINE_BYTES + extra
    path = tmp_path / "stream"
    path.write_bytes(b"first\n" + b"x" * size + ending + (b"last" if ending else b""))
    lines = list(read_lines(str(path), "x"))
    assert [line.index for line in lines] == list(range(3 if ending else 2))
    assert (lines[1].data is None) == (extra > 0)
    assert abs(lines[1].size_bytes - size) <= 1  # the carriage return of a long line counts
    if ending:
        assert lines[2].data == b"last"


def test_the_lease_is_checked_within_a_long_line(tmp_path):
    path = tmp_path / "stream"
    path.write_bytes(gzip.compress(b"x" * (MAX_LINE_BYTES + 5_000_000)))
    checks = []
    assert count_lines(str(path), "x", lambda: checks.append(None)) == 1
    assert len(checks) >= 4


@pytest.mark.parametrize("extra", range(-4, 5))
def test_a_bom_does_not_count_for_the_limit(tmp_path, extra):
    size = MAX_LINE_BYTES + extra
    path = tmp_path / "stream"
    path.write_bytes(BOM + b"x" * size + b"\nlast\n")
    lines = list(read_lines(str(path), "x"))
    assert [line.size_bytes for line in lines] == [size, 4]
    assert (lines[0].data is None) == (extra > 0)


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: data[:40] + b"\xff" * 20 + data[60:]])
def test_a_damaged_gzip_stream_is_a_failure_of_the_stream(tmp_path, damage):
    with fails("stream", "datasets/r/stream_000.jsonl.*gzip data is damaged"):
        lines_of(tmp_path, damage(gzip.compress(bytes(range(256)) * 50)))

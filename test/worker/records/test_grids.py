"""Grids as text: the encoders of record.encoder."""

import pytest

from build import a_spec, fails
from gleaner_worker.records.chat.grids import DEFAULT_ENCODER, parse_encoder
from gleaner_worker.records.samples.tokenize_lines import make_sample_settings

GRID = ("07", "70", "11")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("MinimalGridEncoder()", "07\n70\n11"),
        ("GridWithSeparationEncoder('|')", "0|7\n7|0\n1|1"),
        ('GridWithSeparationEncoder(", ")', "0, 7\n7, 0\n1, 1"),
        ("GridWithSeparationEncoder('\\t')", "0\t7\n7\t0\n1\t1"),
        ("GridCodeBlockEncoder(MinimalGridEncoder())", "```grid\n07\n70\n11\n```"),
        ("GridShapeEncoder(MinimalGridEncoder())", "```grid shape: 3x2\n07\n70\n11\n```"),
        ("RowNumberEncoder(MinimalGridEncoder())", "1 07\n2 70\n3 11"),
        (DEFAULT_ENCODER, "```grid shape: 3x2\n1 07\n2 70\n3 11\n```"),
        ("RepeatNumberEncoder()", "000777\n777000\n111111"),
        ("RepeatNumberEncoder(2)", "0077\n7700\n1111"),
        ("RepeatNumberEncoder(n=2)", "0077\n7700\n1111"),
        ("RepeatNumberEncoder(GridWithSeparationEncoder(' '), 2)", "00 77\n77 00\n11 11"),
        ("RowNumberEncoder(RepeatNumberEncoder(2))", "1 0077\n2 7700\n3 1111"),
        ("ReplaceNumberEncoder(MinimalGridEncoder())", "ñę\nęñ\nòò"),
        (
            "ReplaceNumberEncoder(MinimalGridEncoder(), ['1', '0', 'c', 'd', 'e', 'f', 'g', 'hh', 'i', 'j'])",
            "1hh\nhh1\n00",
        ),
        ("ReplaceNumberEncoder(RowNumberEncoder(MinimalGridEncoder()))", "ò ñę\n÷ ęñ\nû òò"),
        ("ReplaceNumberEncoder(RepeatNumberEncoder(1))", "ñę\nęñ\nòò"),
        (" GridCodeBlockEncoder( GridWithSeparationEncoder( '|' ) ) ", "```grid\n0|7\n7|0\n1|1\n```"),
    ],
)
def test_an_expression_of_encoders_writes_a_grid(expression, expected):
    assert parse_encoder(expression).to_text(GRID) == expected


def test_each_of_the_ten_digits_has_its_own_text():
    assert parse_encoder("ReplaceNumberEncoder(MinimalGridEncoder())").to_text(("0123456789",)) == "ñò÷ûąćďęĚĞ"
    assert parse_encoder("RepeatNumberEncoder(2)").to_text(("0123456789",)) == "00112233445566778899"


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("", "it is not a valid expression"),
        ("MinimalGridEncoder", "it has MinimalGridEncoder in place of an encoder"),
        ("NopeEncoder()", "NopeEncoder is unknown"),
        ("MinimalGridEncoder(1)", "MinimalGridEncoder takes no arguments"),
        ("GridShapeEncoder()", "GridShapeEncoder lacks its base_encoder"),
        ("GridShapeEncoder('|')", "GridShapeEncoder needs an encoder as its base_encoder"),
        ("GridShapeEncoder(NopeEncoder())", "NopeEncoder is unknown"),
        ("GridShapeEncoder(base=MinimalGridEncoder())", "GridShapeEncoder takes base_encoder"),
        ("GridShapeEncoder(MinimalGridEncoder(), 3)", "GridShapeEncoder takes base_encoder"),
        ("GridWithSeparationEncoder()", "GridWithSeparationEncoder lacks its split_symbol"),
        ("GridWithSeparationEncoder('')", "'' is not a string of 1 to 16 printable characters"),
        ("GridWithSeparationEncoder('\\n')", "'\\n' is not a string of 1 to 16 printable characters"),
        ("GridWithSeparationEncoder('\\ud800')", "is not a string of 1 to 16 printable characters"),
        ("RepeatNumberEncoder(0)", "RepeatNumberEncoder repeats 1 to 16 times, not 0"),
        ("RepeatNumberEncoder(10**9)", "it has 10 ** 9 in place of an argument"),
        ("RepeatNumberEncoder(True)", "RepeatNumberEncoder needs an encoder or a number as its base_encoder"),
        (
            "RepeatNumberEncoder(RepeatNumberEncoder(RepeatNumberEncoder(16), 16), 16)",
            "more than 256 characters per cell",
        ),
        ("ReplaceNumberEncoder(MinimalGridEncoder(), ['a'])", "needs ten different strings"),
        ("ReplaceNumberEncoder(MinimalGridEncoder(), 3)", "needs a list of strings as its symbols"),
        ("__import__('os').system('true')", "it has __import__('os').system('true') in place of an encoder"),
        ("open('/etc/passwd')", "open is unknown"),
        ("GridShapeEncoder(*[MinimalGridEncoder()])", "in place of an argument"),
        ("GridShapeEncoder(" * 200 + ")" * 200, "it is longer than 1000 characters"),
        ("(" * 900, "it is not a valid expression"),
        ("MinimalGridEncoder(); 1", "it is not a valid expression"),
        ("a\0b", "it is not a valid expression"),
        ("\ud800", "it is not a valid expression"),
    ],
)
def test_an_invalid_encoder_fails_the_run_and_lists_the_known_encoders(tiny_folder, expression, reason):
    with fails("model") as failure:
        make_sample_settings(tiny_folder, a_spec(record={"encoder": expression or " "}), 600, 64)
    assert reason in failure.value.reason
    assert (
        "known are MinimalGridEncoder(), GridWithSeparationEncoder('|'), GridCodeBlockEncoder(BASE)"
        in failure.value.reason
    )
    failure.value.reason.encode("utf-8")

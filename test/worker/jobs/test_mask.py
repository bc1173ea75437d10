"""The secrets of a job in its output: hidden wherever the pieces of the output end."""

import base64
import itertools
import random
import urllib.parse

import pytest

from gleaner_worker.jobs.mask import Mask, hide

KEY = "0123456789abcdef/+ü"


def shown(secrets, *pieces):
    mask = Mask(secrets)
    return b"".join([*map(mask.hide, pieces), mask.end()])


@pytest.mark.parametrize(
    ("secret", "text", "expected"),
    [
        (KEY, f"a {KEY} b {KEY}{KEY}\n", "a *** b ******\n"),
        (KEY, base64.b64encode(KEY.encode()).decode(), "***="),
        ("???>>>???>>>", base64.urlsafe_b64encode(b"???>>>???>>>").decode(), "***"),
        (KEY, urllib.parse.quote(KEY, safe=""), "***"),
        ("two words and", "two+words+and two%20words%20and", "*** ***"),
        ("line one of it\nshort\r\nline two of it\n", "x line two of it\nshort\nline one of it", "x ***\nshort\n***"),
        ("1234567", "1234567 is too short", "1234567 is too short"),
        (KEY, f"broken off: {KEY[:9]}", "broken off: ***"),
        (KEY, f"a begin of it: {KEY[:7]}", f"a begin of it: {KEY[:7]}"),
        (KEY, f"{KEY[:-1]} and more", f"{KEY[:-1]} and more"),
    ],
)
def test_a_secret_its_lines_and_its_encoded_forms_are_hidden(secret, text, expected):
    assert hide(text, [secret]) == expected


def test_a_text_without_secrets_is_unchanged_and_waits_for_nothing():
    mask = Mask([])
    assert [mask.hide(b"\xff\r12%"), mask.end()] == [b"\xff\r12%", b""]
    assert hide("a \udcff", []) == "a \udcff"


def test_only_what_may_begin_a_secret_waits():
    mask = Mask([KEY])
    assert [mask.hide(b"10%\r"), mask.hide(b"20%\r012"), mask.hide(b"\r")] == [b"10%\r", b"20%\r", b"012\r"]
    assert len(mask.hide(KEY.encode() * 1000 + KEY.encode()[:-1])) == 3000


def test_every_split_of_an_output_hides_the_same():
    """Over secrets that overlap, repeat and hold each other."""
    draw = random.Random(7)
    for _ in range(40):
        letters = draw.choice(["a", "ab", "abc"])
        secrets = ["".join(draw.choices(letters, k=draw.randint(8, 11))) for _ in range(draw.randint(1, 3))]
        text = "".join(draw.choice([*letters, *secrets, "x"]) for _ in range(draw.randint(1, 8))).encode()
        whole = shown(secrets, text)
        assert not any(secret.encode() in whole for secret in secrets)
        for one, two in itertools.combinations_with_replacement(range(len(text) + 1), 2):
            assert shown(secrets, text[:one], text[one:two], text[two:]) == whole, (secrets, text, one, two)
        assert shown(secrets, *(bytes([byte]) for byte in text)) == whole

"""Hides the secrets of a job in its output."""

import base64
import urllib.parse
from collections.abc import Iterable

_HIDDEN = b"***"
_LEAST_BYTES = 8  # of a text that is hidden; a shorter one would hide common words


def hide(text: str, secrets: Iterable[str]) -> str:
    """The whole text without the secrets."""
    mask = Mask(secrets)
    data = text.encode("utf-8", "surrogatepass")
    return (mask.hide(data) + mask.end()).decode("utf-8", "surrogatepass")


class Mask:
    """Replaces each secret, each of its lines, and its base64 and percent-encoded forms by `***`.

    The output comes in pieces, which end anywhere. So a suffix that may begin one of these texts waits for the next
    piece, at most as long as the text.
    """

    def __init__(self, secrets: Iterable[str]):
        self._texts = sorted({text for secret in secrets for text in _forms(secret) if len(text) >= _LEAST_BYTES})
        self._waiting = b""
        self._hidden = 0  # bytes at the start of `_waiting` that end a text which `***` has replaced already

    def hide(self, piece: bytes) -> bytes:
        """The output up to the suffix that waits."""
        data = self._waiting + piece
        cut = min((self._begin_of(text, data) for text in self._texts), default=len(data))
        return self._replace(data, cut, self._found(data))

    def end(self) -> bytes:
        """The rest of the output. A secret that it breaks off is hidden too."""
        data = self._waiting
        begins = {self._begin_of(text, data) for text in self._texts}
        broken = [(begin, len(data)) for begin in begins if len(data) - begin >= _LEAST_BYTES]
        return self._replace(data, len(data), self._found(data) + broken)

    def _found(self, data: bytes) -> list[tuple[int, int]]:
        """The places of all texts, which may overlap."""
        found = []
        for text in self._texts:
            begin = data.find(text)
            while begin >= 0:
                found.append((begin, begin + len(text)))
                begin = data.find(text, begin + 1)
        return found

    def _replace(self, data: bytes, cut: int, found: list[tuple[int, int]]) -> bytes:
        """Returns the bytes before `cut`, with one `***` for each chain of overlapping places. The others wait."""
        shown, done = [], self._hidden
        for begin, end in sorted(found):
            if begin >= cut:
                break
            if begin >= done:
                shown += [data[done:begin], _HIDDEN]
            done = max(done, end)
        shown.append(data[done:cut])
        self._waiting, self._hidden = data[cut:], max(0, done - cut)
        return b"".join(shown)

    @staticmethod
    def _begin_of(text: bytes, data: bytes) -> int:
        """Where the longest suffix of `data` begins that is a beginning of `text`, and not all of it."""
        begin = data.find(text[:_LEAST_BYTES], max(0, len(data) - len(text) + 1))
        while begin >= 0:
            if text.startswith(data[begin:]):
                return begin
            begin = data.find(text[:_LEAST_BYTES], begin + 1)
        lengths = range(min(_LEAST_BYTES - 1, len(data)), 0, -1)
        return len(data) - next((length for length in lengths if data.endswith(text[:length])), 0)


def _forms(secret: str) -> set[bytes]:
    whole = secret.encode()
    # A text with padding holds the one without it.
    encoded = {encode(whole).rstrip(b"=") for encode in (base64.b64encode, base64.urlsafe_b64encode)}
    quoted = {quote(secret, safe="").encode() for quote in (urllib.parse.quote, urllib.parse.quote_plus)}
    return {whole, *whole.splitlines(), *encoded, *quoted}

"""The messages between this process and the processes with limits: JSON, and bytes beside it.

A frame is its length in 8 bytes, the length of its JSON in 4, the JSON, and the bytes.
"""

import json
import struct
from io import BufferedRWPair
from typing import IO, NamedTuple

_LENGTHS = struct.Struct(">QI")


class Frame(NamedTuple):
    """One message. facts: its JSON. data: the bytes behind the JSON."""

    facts: dict
    data: bytes = b""


def write_frame(file: IO[bytes] | BufferedRWPair, frame: Frame) -> None:
    """Writes and flushes the frame. Raises OSError when the reader has ended."""
    facts = json.dumps(frame.facts).encode()
    file.write(_LENGTHS.pack(len(facts) + len(frame.data), len(facts)) + facts)
    file.write(frame.data)
    file.flush()


def read_frame(file: IO[bytes] | BufferedRWPair) -> Frame | None:
    """The next frame; None where the file ends."""
    lengths = file.read(_LENGTHS.size)
    if len(lengths) < _LENGTHS.size:
        return None
    size, split = _LENGTHS.unpack(lengths)
    content = file.read(size)
    return Frame(json.loads(content[:split]), content[split:]) if len(content) == size else None

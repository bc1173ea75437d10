"""Limits of what is parsed: memory stays in proportion to the bytes of a file, whatever its headers state."""

MAX_HEADER_BYTES = 1 << 24  # of a safetensors header
MAX_TENSORS = 100_000
MAX_FRAMES = 1 << 24  # of a seekable zstd file
MAX_FRAME_BYTES = 1 << 26  # of a frame, decompressed
MAX_TAR_HEADER_BYTES = 1 << 16  # of the longest name or the extended facts of a member
MAX_TAR_FACTS = 100  # extended facts of a member
MAX_TAR_FILES = 100_000
MAX_TAR_BYTES = 20 << 30  # unpacked
MAX_SMALL_OBJECT_BYTES = 1 << 28  # metadata.json and others that are read as a whole

# Arrays may need this many bytes for each byte of their file, beyond the first. A worker's gzip stores at most 229
# bytes in one, where all values of a shard are equal. Values beside the arrays need less.
BYTES_PER_BYTE = 256
FREE_BYTES = 1 << 27


def is_inflated(needed: int, stored: int) -> bool:
    """Whether `needed` bytes of memory are more than an honest file of `stored` bytes describes."""
    return needed > FREE_BYTES + BYTES_PER_BYTE * stored


def is_number(text: str, max_digits: int) -> bool:
    """True for at most `max_digits` ASCII digits: int() refuses digits such as ², and thousands of digits."""
    return text.isascii() and text.isdigit() and len(text) <= max_digits

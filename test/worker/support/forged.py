"""Other bytes of the same size and CRC-32C."""

from gleaner_reader.format.checksums import crc32c

_POLYNOMIAL = 0x82F63B78
_ALL = 0xFFFFFFFF


def forged(data: bytes) -> bytes:
    """The data with its last five bytes changed so that its checksum stays."""
    begin = data[:-5] + bytes([data[-5] ^ 1])
    wanted = crc32c(data) ^ _ALL
    for _ in range(32):  # the register before the last four bytes, if these are zero
        wanted = ((wanted ^ _POLYNOMIAL) << 1 | 1 if wanted >> 31 else wanted << 1) & _ALL
    return begin + (wanted ^ crc32c(begin) ^ _ALL).to_bytes(4, "little")

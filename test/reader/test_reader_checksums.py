"""CRC-32C as Cloud Storage computes it."""

import numpy as np

from gleaner_reader.format.checksums import as_text, combine, crc32c


def test_checksums_equal_those_of_cloud_storage():
    import google_crc32c

    data = np.random.default_rng(0).integers(0, 256, 10_000_001, dtype=np.uint8)
    for size in (0, 1, 3, 1023, 1024, 1025, 5000, len(data)):
        expected = google_crc32c.extend(0, data[:size])
        assert crc32c(data[:size]) == expected
        assert (
            as_text(expected) == __import__("base64").b64encode(google_crc32c.Checksum(data[:size]).digest()).decode()
        )
    assert crc32c(b"123456789") == 0xE3069283  # the check value of its specification
    assert combine(crc32c(data[:777]), crc32c(data[777:]), len(data) - 777) == crc32c(data)

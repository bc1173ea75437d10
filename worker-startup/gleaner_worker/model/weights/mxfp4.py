"""Unpacks MXFP4, the 4-bit floats of gpt-oss: groups of 32 values of 4 bits, which share a power of two.

Source: the Microscaling (MX) specification 1.0 of the Open Compute Project, section 5.3.3. bf16 holds every value.
"""

import numpy as np

GROUP = 32
_BIAS = 127  # of a scale
_MAGNITUDES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
_VALUES = np.concatenate([_MAGNITUDES, -_MAGNITUDES])
_PAIRS = np.stack([np.tile(_VALUES, 16), np.repeat(_VALUES, 16)], axis=1)  # of each byte: the low half, the high half


def unpack(expert: int, rows: slice, blocks: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """fp32 [out, in], those rows of one expert; blocks uint8 [experts, out, in / 32, 16], scales uint8 [experts, out,
    in / 32]."""
    values = _PAIRS[blocks[expert, rows]]  # [out, in / 32, 16, 2]
    powers = scales[expert, rows].astype(np.int32) - _BIAS
    return np.ldexp(values, powers[..., None, None]).reshape(len(values), -1)

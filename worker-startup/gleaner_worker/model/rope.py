"""Rotary position embeddings: their parameters in old and new config.json files, and their frequencies.

The formulas are those of transformers' modeling_rope_utils.py, in the same order in fp32. So positions in the tens of
thousands have the same angles.
"""

import math
from dataclasses import dataclass

import numpy as np

from .config_parser import Fields, shown
from .families import FULL, SLIDING, Family

KINDS = ("default", "linear", "llama3", "yarn")


@dataclass(frozen=True)
class Rope:
    """The parameters of one rotary embedding. Hashable, as a part of DecoderConfig."""

    kind: str
    theta: float
    factor: float = 1.0
    original_positions: int = 0  # of all kinds but default: the context length before scaling
    low_freq_factor: float = 1.0  # llama3
    high_freq_factor: float = 1.0  # llama3
    beta_fast: float = 32.0  # yarn
    beta_slow: float = 1.0  # yarn
    attention_factor: float = 1.0  # yarn: factor of cosines and sines
    truncate: bool = True  # yarn: whether the ramp begins and ends at whole dimensions


def parse_ropes(
    fields: Fields, family: Family, types: tuple[str, ...], max_positions: int
) -> tuple[tuple[Rope, ...], tuple[int, ...]]:
    """The different embeddings of a model, and the index of each layer's embedding.

    Hub files have rope_theta, rope_scaling and rope_local_base_freq; transformers 5 writes rope_parameters, one object
    or one for each type of layer. As in transformers, rope_scaling has precedence.
    """
    parameters, scaling = fields.table("rope_parameters"), fields.table("rope_scaling")
    if family.local_rope:
        theta = {FULL: _theta(fields, "rope_theta", 1e6), SLIDING: _theta(fields, "rope_local_base_freq", 1e4)}
        if flat := sorted(set(parameters.raw) - set(theta)):
            parameters.refuse(flat[0], f"supported are the keys {FULL} and {SLIDING}")
        objects = {kind: parameters.table(kind) for kind in theta}
        if scaling.raw:
            objects[FULL] = Fields(objects[FULL].raw | scaling.raw, scaling.prefix, fields.problems)
    else:
        theta = dict.fromkeys((FULL, SLIDING), _theta(fields, "rope_theta", 1e4))
        chosen = scaling if scaling.raw else parameters
        if nested := sorted(chosen.raw.keys() & theta.keys()):
            chosen.refuse(nested[0], "this family has one embedding for all layers")
        objects = dict.fromkeys(theta, chosen)
    ropes = {kind: _parse(objects[kind], fields, theta[kind], max_positions) for kind in dict.fromkeys(types)}
    different = tuple(dict.fromkeys(ropes.values()))
    return different, tuple(different.index(ropes[kind]) for kind in types)


def _theta(fields: Fields, key: str, default: float) -> float:
    return fields.number(key, 2, 1e15) if key in fields.raw else default


def _parse(table: Fields, config: Fields, theta: float, max_positions: int) -> Rope:
    kind = table.raw.get("rope_type", table.raw.get("type", "default"))
    if not isinstance(kind, str) or kind not in KINDS:
        table.problems.append(f"{table.prefix}rope_type is {shown(kind)}, supported is {', '.join(KINDS)}")
        kind = "default"
    if table.raw.get("partial_rotary_factor") not in (None, 1):
        table.refuse("partial_rotary_factor", "only a full rotation is supported")
    theta = _theta(table, "rope_theta", theta)
    if kind == "default":
        return Rope(kind, theta)
    factor = table.number("factor", 1e-3, 1e6)
    # A few files have the key beside the rope's object, where the key takes precedence. Without either key, the
    # model's own length counts.
    source = next((fields for fields in (config, table) if fields.has("original_max_position_embeddings")), None)
    original = source.size("original_max_position_embeddings", 2**31 - 1) if source else max_positions
    if kind == "linear":
        return Rope(kind, theta, factor, original)
    if kind == "llama3":
        low, high = table.number("low_freq_factor", 1e-6, 1e6), table.number("high_freq_factor", 1e-6, 1e6)
        if low >= high:
            table.refuse("low_freq_factor", "it must be smaller than high_freq_factor")
        return Rope(kind, theta, factor, original, low, high)
    return _parse_yarn(table, theta, factor, original)


def _parse_yarn(table: Fields, theta: float, factor: float, original: int) -> Rope:
    optional = {
        key: table.number(key, 1e-6, 1e6)
        for key in ("attention_factor", "mscale", "mscale_all_dim", "beta_fast", "beta_slow")
        if table.has(key)
    }
    attention = optional.get("attention_factor")
    if attention is None:
        both = "mscale" in optional and "mscale_all_dim" in optional
        above, below = (optional["mscale"], optional["mscale_all_dim"]) if both else (1.0, 0.0)
        attention = _yarn_scale(factor, above) / _yarn_scale(factor, below)
    return Rope(
        "yarn",
        theta,
        factor,
        original,
        beta_fast=optional.get("beta_fast", 32.0),
        beta_slow=optional.get("beta_slow", 1.0),
        attention_factor=attention,
        truncate=table.flag("truncate") if "truncate" in table.raw else True,
    )


def _yarn_scale(factor: float, mscale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


def inverse_frequencies(rope: Rope, head_dim: int) -> np.ndarray:
    """Radians per position of each pair of dimensions: fp32 [head_dim / 2]."""
    exponent = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    wavelength = (rope.theta ** exponent.astype(np.float64)).astype(np.float32)  # over 2 pi
    plain = np.float32(1) / wavelength
    if rope.kind == "default":
        return plain
    if rope.kind == "linear":
        return plain / np.float32(rope.factor)
    return _llama3(rope, plain) if rope.kind == "llama3" else _yarn(rope, wavelength)


def _llama3(rope: Rope, plain: np.ndarray) -> np.ndarray:
    """Divides low frequencies by the factor, keeps high frequencies, and blends the frequencies between."""
    factor, low, high = np.float32(rope.factor), np.float32(rope.low_freq_factor), np.float32(rope.high_freq_factor)
    positions = np.float32(rope.original_positions)
    wavelength = np.float32(2 * math.pi) / plain
    is_slow, is_fast = wavelength > positions / low, wavelength < positions / high
    smooth = (positions / wavelength - low) / (high - low)
    blended = (1 - smooth) * plain / factor + smooth * plain
    return np.where(is_slow, plain / factor, np.where(is_fast, plain, blended))


def _yarn(rope: Rope, wavelength: np.ndarray) -> np.ndarray:
    """Peng et al. 2023, section 3.2: a ramp over the dimensions, from high frequencies, kept, to low, divided."""
    dim = 2 * len(wavelength)

    def dimension(turns: float) -> float:
        return dim * math.log(rope.original_positions / (turns * 2 * math.pi)) / (2 * math.log(rope.theta))

    first, last = dimension(rope.beta_fast), dimension(rope.beta_slow)
    if rope.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, dim - 1)
    if first == last:
        last += 0.001
    ramp = np.clip((np.arange(len(wavelength), dtype=np.float32) - np.float32(first)) / np.float32(last - first), 0, 1)
    kept = 1 - ramp
    slowed = np.float32(1) / (np.float32(rope.factor) * wavelength)
    return slowed * (1 - kept) + np.float32(1) / wavelength * kept

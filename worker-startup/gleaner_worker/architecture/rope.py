"""Rotary position embeddings: their parameters in old and new config.json files, and their frequencies.

The formulas are those of transformers' modeling_rope_utils.py, in the same order in fp32. So positions in the tens of
thousands have the same angles.
"""

import math
from dataclasses import dataclass

import numpy as np

from .config_parser import Fields, shown
from .families import FULL, SLIDING, Family


@dataclass(frozen=True)
class Rope:
    """The parameters of one rotary embedding. Hashable, as a part of DecoderConfig."""

    kind: str  # "none" turns nothing
    theta: float = 1.0
    factor: float = 1.0
    original_positions: int = 0  # of scaled kinds: the context length before scaling
    low_freq_factor: float = 1.0  # llama3
    high_freq_factor: float = 1.0  # llama3
    beta_fast: float = 32.0  # yarn
    beta_slow: float = 1.0  # yarn
    attention_factor: float = 1.0  # yarn, longrope: factor of cosines and sines
    truncate: bool = True  # yarn: whether the ramp begins and ends at whole dimensions
    short_factors: tuple[float, ...] = ()  # longrope: of each pair, for samples of at most original_positions tokens
    long_factors: tuple[float, ...] = ()  # longrope: of each pair, for longer samples


def parse_ropes(
    fields: Fields, family: Family, types: tuple[str, ...], max_positions: int, head_dim: int
) -> tuple[tuple[Rope, ...], tuple[int, ...], int]:
    """The different embeddings of a model, the index of each layer's embedding, and the dimensions that they turn.

    Hub files have rope_theta, rope_scaling and rope_local_base_freq; transformers 5 writes rope_parameters, one object
    or one for each type of layer. As in transformers, rope_scaling has precedence.
    """
    if not family.ropes:
        return (Rope("none"),), (0,) * len(types), 0
    parameters, scaling = fields.table("rope_parameters"), fields.table("rope_scaling")
    theta = dict.fromkeys((FULL, SLIDING), _theta(fields, "rope_theta"))
    if family.local_rope:
        is_read = "rope_local_base_freq" in family.reads
        theta[SLIDING] = _theta(fields if is_read else Fields(family.defaults), "rope_local_base_freq")
        if flat := sorted(set(parameters.raw) - set(theta)):
            parameters.refuse(flat[0], f"supported are the keys {FULL} and {SLIDING}")
        objects = {kind: parameters.table(kind) for kind in theta}
        if nested := sorted(scaling.raw.keys() & theta.keys()):
            scaling.refuse(nested[0], "it is of all layers with full attention")
        if scaling.raw:
            objects[FULL] = Fields(objects[FULL].raw | scaling.raw, scaling.prefix, fields.problems)
    else:
        chosen = scaling if scaling.raw else parameters
        if nested := sorted(chosen.raw.keys() & theta.keys()):
            chosen.refuse(nested[0], "this family has one embedding for all layers")
        objects = dict.fromkeys(theta, chosen)
    rotary = _rotary_dim(objects[FULL], fields, family, head_dim)
    ropes = {
        kind: _parse(objects[kind], fields, family, theta[kind], max_positions, rotary) for kind in dict.fromkeys(types)
    }
    turned = rope_layers(fields, family, len(types))
    layers = [ropes[kind] if turns else Rope("none") for kind, turns in zip(types, turned, strict=True)]
    different = tuple(dict.fromkeys(layers))
    return different, tuple(different.index(rope) for rope in layers), rotary


def rope_layers(fields: Fields, family: Family, layers: int) -> tuple[bool, ...]:
    """Whether each layer has a rotary embedding."""
    if "no_rope_layers" not in family.reads:
        return (True,) * layers
    listed = fields.get("no_rope_layers")  # of a model whose layers 0 and 2 have none: [0, 1, 0]
    if listed is None:
        interval = fields.size("no_rope_layer_interval")
        return tuple((layer + 1) % interval != 0 for layer in range(layers))
    if not isinstance(listed, list) or len(listed) < layers or not all(value in (0, 1) for value in listed):
        fields.refuse("no_rope_layers", f"it must list 0 or 1 for each of {layers} layers")
        return (True,) * layers
    return tuple(value == 1 for value in listed[:layers])


def _rotary_dim(table: Fields, config: Fields, family: Family, head_dim: int) -> int:
    if "partial_rotary_factor" in family.reads:
        source = table if table.states("partial_rotary_factor") else config
        return int(head_dim * source.number("partial_rotary_factor", 0, 1))
    return head_dim


def _theta(fields: Fields, key: str) -> float:
    return fields.number(key, 2, 1e15)


def _parse(table: Fields, config: Fields, family: Family, theta: float, max_positions: int, rotary: int) -> Rope:
    name = next((key for key in ("rope_type", "type") if table.states(key)), None)
    kind = table.get(name) if name else "default"
    if family.local_rope and name == "type" and kind != "default":
        table.refuse("type", "which transformers leaves unread in this family: name the key rope_type")
    if "longrope" in family.ropes and kind in ("su", "yarn") and "yarn" not in family.ropes:
        kind = "longrope"  # as the first files of Phi-3 name it
    if not isinstance(kind, str) or kind not in family.ropes:
        table.problems.append(f"{table.prefix}rope_type is {shown(kind)}, supported is {', '.join(family.ropes)}")
        kind = "default"
    if "partial_rotary_factor" not in family.reads and table.get("partial_rotary_factor") not in (None, 1):
        table.refuse("partial_rotary_factor", "only a full rotation is supported")
    theta = _theta(table, "rope_theta") if table.states("rope_theta") else theta
    if kind in ("default", "dynamic"):  # dynamic scaling begins after max_position_embeddings, where no sample gets
        return Rope("default", theta)
    # A few files have the key beside the rope's object, where the key takes precedence. Without either key, the
    # model's own length counts.
    sources = (table,) if family.local_rope else (config, table)
    source = next((fields for fields in sources if fields.has("original_max_position_embeddings")), None)
    original = source.size("original_max_position_embeddings", 2**31 - 1) if source else max_positions
    has_factor = table.has("factor") or kind not in ("yarn", "longrope")
    factor = table.number("factor", 1e-3, 1e6) if has_factor else max_positions / original
    if kind == "linear":
        return Rope(kind, theta, factor, original)
    if kind == "llama3":
        low, high = table.number("low_freq_factor", 1e-6, 1e6), table.number("high_freq_factor", 1e-6, 1e6)
        if low >= high:
            table.refuse("low_freq_factor", "it must be smaller than high_freq_factor")
        return Rope(kind, theta, factor, original, low, high)
    if kind == "longrope":
        return _parse_longrope(table, theta, factor, original, rotary)
    if rotary % 2:
        table.refuse("rope_type", f"which turns an even number of dimensions, and here {rotary}")
    return _parse_yarn(table, theta, factor, original, family)


def _parse_longrope(table: Fields, theta: float, factor: float, original: int, rotary: int) -> Rope:
    """Ding et al. 2024, as modeling_rope_utils.py has it."""
    if table.has("attention_factor"):
        attention = table.number("attention_factor", 1e-6, 1e6)
    elif factor <= 1 or original == 1:
        attention = 1.0
    else:
        attention = math.sqrt(1 + math.log(factor) / math.log(original))
    factors = [_pair_factors(table, key, rotary) for key in ("short_factor", "long_factor")]
    return Rope(
        "longrope",
        theta,
        factor,
        original,
        attention_factor=attention,
        short_factors=factors[0],
        long_factors=factors[1],
    )


def _pair_factors(table: Fields, key: str, rotary: int) -> tuple[float, ...]:
    values = table.get(key)
    is_list = isinstance(values, list) and 2 * len(values) == rotary
    if not is_list or not all(type(value) in (int, float) and 1e-6 <= value <= 1e6 for value in values):
        table.refuse(key, f"it must list a positive number for each of {rotary // 2} pairs of dimensions")
        return (1.0,) * (-(-rotary // 2))
    return tuple(map(float, values))


def _parse_yarn(table: Fields, theta: float, factor: float, original: int, family: Family) -> Rope:
    # transformers reads 0 as no value.
    optional = {
        key: table.number(key, 1e-6, 1e6)
        for key in ("mscale", "mscale_all_dim", "beta_fast", "beta_slow")
        if table.has(key) and table.get(key) != 0
    }
    if table.has("attention_factor"):
        attention = table.number("attention_factor", 1e-6, 1e6)
    else:
        both = "mscale" in optional and "mscale_all_dim" in optional
        above, below = (optional["mscale"], optional["mscale_all_dim"]) if both else (1.0, 0.0)
        attention = _yarn_scale(factor, above) / _yarn_scale(factor, below)
    truncate = table.flag("truncate") if table.states("truncate") else True
    if family.local_rope and not truncate:
        table.refuse("truncate", "transformers reads it in families with one embedding alone")
    return Rope(
        "yarn",
        theta,
        factor,
        original,
        beta_fast=optional.get("beta_fast", 32.0),
        beta_slow=optional.get("beta_slow", 1.0),
        attention_factor=attention,
        truncate=truncate,
    )


def _yarn_scale(factor: float, mscale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


def inverse_frequencies(rope: Rope, rotary_dim: int, is_long: bool = False) -> np.ndarray:
    """Radians per position of each pair of dimensions: fp32 [rotary_dim / 2], rounded up.

    is_long: of samples that are longer than rope.original_positions, for which longrope has other frequencies.
    """
    exponent = np.arange(0, rotary_dim, 2, dtype=np.float32) / np.float32(rotary_dim)
    wavelength = (rope.theta ** exponent.astype(np.float64)).astype(np.float32)  # over 2 pi
    plain = np.float32(1) / wavelength
    if rope.kind == "none":
        return np.zeros_like(plain)
    if rope.kind == "default":
        return plain
    if rope.kind == "linear":
        return plain / np.float32(rope.factor)
    if rope.kind == "longrope":
        factors = rope.long_factors if is_long else rope.short_factors
        return np.float32(1) / (np.asarray(factors, np.float32) * wavelength)
    return _llama3(rope, plain) if rope.kind == "llama3" else _yarn(rope, wavelength)


def _llama3(rope: Rope, plain: np.ndarray) -> np.ndarray:
    """Divides low frequencies by the factor, keeps high frequencies, and blends the frequencies between."""
    factor, low, high = np.float32(rope.factor), np.float32(rope.low_freq_factor), np.float32(rope.high_freq_factor)
    positions, one = np.float32(rope.original_positions), np.float32(1)
    # torch divides a number by a tensor as the tensor's reciprocal times the number. Late positions show each rounding.
    wavelength = one / plain * np.float32(2 * math.pi)
    is_slow, is_fast = wavelength > positions / low, wavelength < positions / high
    smooth = (one / wavelength * positions - low) / (high - low)
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

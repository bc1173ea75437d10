"""The parameters of reductions: matched with the tensors of their files, and folded into the one form of an encoder."""

from collections.abc import Iterable
from dataclasses import dataclass

import jax
import numpy as np

from ...architecture.config import DecoderConfig
from ...architecture.reductions import Encoder, Reduction
from ...architecture.saes import LAYOUTS, Sae
from ...architecture.sites import TABLE, layers_with_site, site_width
from ...limited.process import call
from ...limited.values import from_json
from ...spec.spec import ReductionSpec, Spec
from ..files.identity import READ_FILES
from ..files.reduction_files import ReductionFiles, reduction_failure
from ..program.reduce import places_of_ids
from .weights import DTYPES, StoredTensor, stored_tensors

_MOST_FEATURES = 1 << 20
_DEFAULT_K = 64
# Columns of an encoder that are converted at once.
_COLUMNS = 1 << 12


@dataclass(frozen=True)
class ReductionWeights:
    """The parameters of a reduction in its files."""

    reduction: Reduction
    files: ReductionFiles
    saes: dict[int, Sae]  # by layer, of features
    tensors: dict[int, dict[str, StoredTensor]]  # by layer, by the names of the file

    def layer(self, layer: int, ways: int, dtype: str) -> dict[str, np.ndarray]:
        """The parameters of one layer as Reduction.parameters shapes them, split `ways` ways. Raises as `stored`."""
        found = self.stored(layer)
        if self.reduction.encoder is None:
            return found
        return _padded(_folded(found, self.saes[layer], DTYPES[dtype]), self.reduction.encoder, ways)

    def stored(self, layer: int) -> dict[str, np.ndarray]:
        """The tensors of one layer, fp32: those of the autoencoder by SAELens's names and shapes, or `directions`.

        Raises Failure("model") for a file that cannot be read or that holds a value that is not finite, and the errors
        of its bucket.
        """
        if self.reduction.encoder:
            layout = LAYOUTS[self.saes[layer].layout]
            is_transposed, names = layout.is_transposed, {name: layout.names[name] for name in self.saes[layer].tensors}
        else:
            is_transposed, names = False, {"directions": _matrix(self.files.entry, self.tensors[layer], layer).name}
        try:
            found = {name: _values(self.tensors[layer][own]) for name, own in names.items()}
        except (OSError, ValueError) as error:
            raise reduction_failure(self.files.entry, f"layer {layer}: {error}", "copy it again") from error
        return {name: array.T if is_transposed else array for name, array in found.items()}


def find_reduction(spec: Spec, config: DecoderConfig, files: ReductionFiles) -> ReductionWeights:
    """Reads the configs and the headers of the files. Raises Failure("model") for what does not fit the model."""
    entry, where = files.entry, f"{files.entry.name} ({files.entry.weights})"
    headers = {name: stored_tensors([file], where) for name, file in files.tensors.items()}
    tensors = {p.layer: {tensor.name: tensor for tensor in headers[p.tensors]} for p in files.places}
    if entry in spec.project:
        return ReductionWeights(_projection(entry, config, tensors), files, {}, tensors)
    facts = {"folder": files.folder, "where": where, "places": [vars(place) for place in files.places]}
    saes = [from_json(Sae, found) for found in call(f"{READ_FILES}:saes_of", facts)["saes"]]
    by_layer = {place.layer: sae for place, sae in zip(files.places, saes, strict=True)}
    return ReductionWeights(_features(spec, entry, config, by_layer, tensors), files, by_layer, tensors)


def _projection(entry: ReductionSpec, config: DecoderConfig, tensors: dict[int, dict[str, StoredTensor]]) -> Reduction:
    site = entry.site or "resid_post"
    layers, width = _layers(entry, config, site, tuple(tensors)), site_width(config, site)
    shapes = {layer: _matrix(entry, tensors[layer], layer).shape for layer in layers}
    for layer, shape in shapes.items():
        if len(shape) != 2 or shape[1] != width or not 1 <= shape[0] <= 1024:
            raise reduction_failure(
                entry,
                f"the matrix of layer {layer} is {list(shape)}, and {site} of the model needs [1 to 1024, {width}]",
                "correct the file, or `site`",
            )
    if len({shape[0] for shape in shapes.values()}) > 1:
        raise reduction_failure(entry, "its layers have different numbers of directions", "store them as two entries")
    return Reduction(entry.name, site, layers, width, shapes[layers[0]][0], entry.dtype)


def _features(
    spec: Spec,
    entry: ReductionSpec,
    config: DecoderConfig,
    saes: dict[int, Sae],
    tensors: dict[int, dict[str, StoredTensor]],
) -> Reduction:
    sites = {entry.site or sae.site for sae in saes.values()}
    site = sites.pop()
    if site is None or sites:
        raise reduction_failure(entry, "its config names no site, or several", "name one as `site`")
    layers, width = _layers(entry, config, site, tuple(saes)), site_width(config, site)
    encoders, own = set(), set()
    for layer in layers:
        sae = saes[layer]
        if not entry.site and sae.layer not in (None, layer):
            raise reduction_failure(
                entry, f"the autoencoder of layer {layer} is of layer {sae.layer} by its config", "correct `path`"
            )
        d_sae = _d_sae(entry, layer, sae, tensors[layer], width, site)
        encoders.add(
            Encoder(d_sae, sae.architecture, sae.norm, sae.encoder == "gated", sae.encoder == "jumprelu", sae.k)
        )
        own.add(sae.k)
    if len(encoders) > 1:
        raise reduction_failure(
            entry, "its layers have different architectures, widths or k", "make an entry for each kind"
        )
    encoder = encoders.pop()
    k = entry.k or encoder.most or min(_DEFAULT_K, encoder.d_sae)
    if k > (encoder.most or encoder.d_sae):
        raise reduction_failure(
            entry, f"k is {k}, and a vector has at most {encoder.most or encoder.d_sae} features", "lower `k`"
        )
    return Reduction(entry.name, site, layers, width, k, "fp32" if spec.compute_dtype == "fp32" else "bf16", encoder)


def _layers(entry: ReductionSpec, config: DecoderConfig, site: str, layers: tuple[int, ...]) -> tuple[int, ...]:
    if TABLE[site].dtype or TABLE[site].end == "head":
        raise reduction_failure(entry, f"{site} has no vectors to reduce", "set `site` to another one")
    found = layers_with_site(config, site, layers)
    if absent := sorted(set(layers) - set(found)):
        raise reduction_failure(
            entry, f"layer {', '.join(map(str, absent))} has no {site}", "correct `layers` or `site`"
        )
    return found


def _d_sae(entry: ReductionSpec, layer: int, sae: Sae, tensors: dict[str, StoredTensor], width: int, site: str) -> int:
    """The number of features. Raises Failure for tensors that are absent or do not fit the model and each other."""
    names = LAYOUTS[sae.layout].names
    if absent := [names[name] for name in sae.tensors if names[name] not in tensors]:
        raise reduction_failure(
            entry, f"the {sae.architecture} of layer {layer} has no tensor {', '.join(absent)}", "correct `path`"
        )
    shape = tensors[names["W_enc"]].shape
    d_in, d_sae = (shape[::-1] if LAYOUTS[sae.layout].is_transposed else shape) if len(shape) == 2 else (0, 0)
    if d_in != width:
        raise reduction_failure(
            entry,
            f"the encoder of layer {layer} is {list(shape)}, and {site} of the model has {width} values",
            "take autoencoders of this model, or correct `site`",
        )
    stated = [(sae.d_in, d_in, "d_in"), (sae.d_sae, d_sae, "d_sae")]
    wrong = [
        f"{key} {value} in its config, {real} in its file" for value, real, key in stated if value not in (None, real)
    ]
    wrong += [
        f"{names[name]} {list(tensors[names[name]].shape)}"
        for name in sae.tensors
        if tensors[names[name]].shape != sae.shape_of(name, d_in, d_sae)
    ]
    if wrong or not 1 <= d_sae <= _MOST_FEATURES:
        problem = "; ".join(wrong) or f"it has {d_sae} features, and at most {_MOST_FEATURES} are supported"
        raise reduction_failure(entry, f"layer {layer}: {problem}", "copy it again, or take another one")
    return d_sae


def _matrix(entry: ReductionSpec, tensors: dict[str, StoredTensor], layer: int) -> StoredTensor:
    """The matrix of a layer: the tensor of its number, or W."""
    found = tensors.get(str(layer)) or tensors.get("W")
    if found is None:
        raise reduction_failure(
            entry,
            f"the file of layer {layer} has no tensor {layer} and no tensor W",
            "name the tensors by the numbers of their layers",
        )
    return found


def _values(tensor: StoredTensor) -> np.ndarray:
    """fp32, of the whole tensor. Raises ValueError for another type, and for a value that is not finite."""
    if not tensor.is_float:
        raise ValueError(f"{tensor.name} is {tensor.dtype}, which is no supported type of floats")
    values = np.empty(tensor.shape, np.float32)
    for read in tensor.reads(values):
        read.run()
    if not np.isfinite(values).all():
        raise ValueError(f"{tensor.name} has a value that is not finite")
    return values


def _folded(found: dict[str, np.ndarray], sae: Sae, dtype: np.dtype) -> dict[str, np.ndarray]:
    """encode [d_sae, d_in] as the device rounds it, and the vectors of the form in architecture/reductions.py, fp32.

    With W as rounded, (x - b_dec) W is x W - b_dec W with the same W. Sums in fp64, some columns at a time.
    """
    d_sae = found["W_enc"].shape[1]
    scale = np.full(d_sae, sae.scale)
    if sae.rescales:
        scale *= np.linalg.norm(found["W_dec"].astype(np.float64), axis=1)
    encode, offset = np.empty((d_sae, len(found["W_enc"])), dtype), np.zeros(d_sae)
    for begin in range(0, d_sae, _COLUMNS):
        columns = slice(begin, begin + _COLUMNS)
        encode[columns] = (found["W_enc"][:, columns].astype(np.float64) * scale[columns]).T
        if sae.subtracts_b_dec:
            offset[columns] = encode[columns].astype(np.float64) @ found["b_dec"].astype(np.float64)
    vectors: dict[str, np.ndarray] = {}
    if sae.encoder == "gated":
        u = np.exp(found["r_mag"].astype(np.float64))
        vectors = {"u": u, "g": found["b_gate"] - offset, "b": found["b_mag"] - offset * u}
    else:
        bias = found["b_enc"].astype(np.float64)
        vectors["b"] = (bias * scale / sae.scale if sae.rescales else bias) - offset
    if sae.encoder == "jumprelu":
        vectors["theta"] = np.full(d_sae, sae.threshold) if sae.threshold is not None else found["threshold"]
    return {"encode": encode} | {name: values.astype(np.float32) for name, values in vectors.items()}


def _padded(p: dict[str, np.ndarray], encoder: Encoder, ways: int) -> dict[str, np.ndarray]:
    """With features that are never active, because relu(-1) is 0, in the order that `largest` needs."""
    missing, order = encoder.padded - encoder.d_sae, places_of_ids(encoder.padded, ways)
    never = {"b": -1.0, "g": -1.0}

    def padded(name: str, values: np.ndarray) -> np.ndarray:
        more = np.full((missing, *values.shape[1:]), never.get(name, 0), values.dtype)
        return np.concatenate([values, more])[order]

    return {name: padded(name, values) for name, values in p.items()}


def reduction_shapes(reductions: Iterable[Reduction], dtype: str) -> dict:
    """The shapes of the parameters on the devices: {name: {parameter: [layers, ...]}}."""

    def shape(parameter: str, size: tuple[int, ...]):
        return jax.ShapeDtypeStruct(size, DTYPES[dtype if parameter == "encode" else "fp32"])

    return {each.name: {name: shape(name, size) for name, size in each.parameters.items()} for each in reductions}

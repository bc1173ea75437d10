"""The parameters of reductions: matched with the tensors of their files, and folded into the one form of an encoder."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...architecture.config import DecoderConfig
from ...architecture.reductions import Encoder, Reduction, places_of_ids
from ...architecture.saes import LAYOUTS, Sae
from ...architecture.sites import TABLE, Capture, layers_with_site, site_width
from ...limited.process import call
from ...limited.values import from_json
from ...spec.spec import Spec, capture_of
from ..files.identity import READ_FILES, ModelFiles
from ..files.model_source import read_config
from ..files.reduction_files import ReductionFiles, naming
from .stored_tensors import DTYPES, FLOATS, StoredTensor, stored_tensors

_MOST_FEATURES = 1 << 20
_DEFAULT_K = 64
_VECTORS = {"standard": ("b",), "gated": ("b", "g", "u"), "jumprelu": ("b", "theta")}
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

    def stored(self, layer: int, more: Sequence[str] = ()) -> dict[str, np.ndarray]:
        """The tensors of one layer, fp32: those of the autoencoder by SAELens's names and shapes, or `directions`.
        more: names of further tensors, each of which the file may lack.

        Raises Failure("model") for a file that cannot be read or that holds a value that is not finite, and the errors
        of its bucket.
        """
        sae = self.saes.get(layer)
        names = sae.names if sae else {"directions": _matrix(self.tensors[layer], layer).name}
        if sae:
            names |= {name: own for name in more if (own := LAYOUTS[sae.layout].names[name]) in self.tensors[layer]}
        with naming(self.files.entry, f"layer {layer}: "):
            found = {name: _values(self.tensors[layer][own]) for name, own in names.items()}
        return {name: array.T if sae and sae.is_transposed else array for name, array in found.items()}


def read_capture(spec: Spec, files: ModelFiles) -> tuple[Capture, list[ReductionWeights]]:
    """The vectors that a run stores of its model, and the weights of its reductions. Raises Failure("model")."""
    config, layers = read_config(spec, files.folder)
    weights = []
    for each in files.reduction_files:
        with naming(each.entry):
            weights.append(find_reduction(spec, config, each))
    return capture_of(spec, config, layers, tuple(each.reduction for each in weights)), weights


def find_reduction(spec: Spec, config: DecoderConfig, files: ReductionFiles) -> ReductionWeights:
    """Reads the configs and the headers of the files. Raises ValueError with the remedy for what does not fit the
    model, and Failure("model") for a file that cannot be read."""
    entry, where = files.entry, f"{files.entry.name} ({files.entry.weights})"
    headers = {name: stored_tensors([file], where) for name, file in files.tensors.items()}
    tensors = {p.layer: {tensor.name: tensor for tensor in headers[p.tensors]} for p in files.places}
    if len(files.tensors) < len(tensors):  # one matrix is not that of several layers
        tensors = {layer: {name: each[name] for name in each if name != "W"} for layer, each in tensors.items()}
    saes: dict[int, Sae] = {}
    if entry in spec.features:
        facts = {"folder": files.folder, "where": where, "places": [vars(place) for place in files.places]}
        found = call(f"{READ_FILES}:saes_of", facts)["saes"]
        saes = {place.layer: from_json(Sae, each) for place, each in zip(files.places, found, strict=True)}
    site, *others = {entry.site or sae.site for sae in saes.values()} or {entry.site or "resid_post"}
    if site is None or others:
        raise ValueError("its config names no site, or several; name one as `site`")
    if TABLE[site].dtype or TABLE[site].end == "head":
        raise ValueError(f"{site} has no vectors to reduce; set `site` to another one")
    if absent := sorted(set(tensors) - set(layers_with_site(config, site, tuple(tensors)))):
        raise ValueError(f"layer {', '.join(map(str, absent))} has no {site}; correct `layers` or `site`")
    if not entry.site and (
        wrong := {layer: sae.layer for layer, sae in saes.items() if sae.layer not in (None, layer)}
    ):
        layer, own = wrong.popitem()
        raise ValueError(f"the autoencoder of layer {layer} is of layer {own} by its config; correct `path`")
    width = site_width(config, site)
    forms = {_encoder(layer, saes[layer], of, width, site) for layer, of in tensors.items()} if saes else {None}
    numbers = {_directions(layer, of, width, site) for layer, of in tensors.items()} if not saes else {entry.k or 0}
    if len(forms) > 1 or len(numbers) > 1:
        different = "architectures, widths or k" if saes else "numbers of directions"
        raise ValueError(f"its layers have different {different}; make an entry for each kind")
    (encoder,), (k,), dtype = forms, numbers, entry.dtype
    if encoder:
        most, dtype = encoder.most or encoder.d_sae, "fp32" if spec.compute_dtype == "fp32" else "bf16"
        k = k or encoder.most or min(_DEFAULT_K, most)
        if k > most:
            raise ValueError(f"k is {k}, and a vector has at most {most} features; lower `k`")
    return ReductionWeights(Reduction(entry.name, site, tuple(tensors), width, k, dtype, encoder), files, saes, tensors)


def _directions(layer: int, tensors: dict[str, StoredTensor], width: int, site: str) -> int:
    """The number of directions. Raises ValueError for a matrix that does not fit the model."""
    shape = _matrix(tensors, layer).shape
    if len(shape) != 2 or shape[1] != width or not 1 <= shape[0] <= 1024:
        raise ValueError(
            f"the matrix of layer {layer} is {list(shape)}, and {site} of the model needs [1 to 1024, {width}]; "
            "correct the file, or `site`"
        )
    return shape[0]


def _encoder(layer: int, sae: Sae, tensors: dict[str, StoredTensor], width: int, site: str) -> Encoder:
    """Raises ValueError for tensors that are absent or do not fit the model and each other."""
    if absent := [own for own in sae.names.values() if own not in tensors]:
        raise ValueError(f"the {sae.architecture} of layer {layer} has no tensor {', '.join(absent)}; correct `path`")
    shape = tensors[sae.names["W_enc"]].shape
    d_in, d_sae = (shape[::-1] if sae.is_transposed else shape) if len(shape) == 2 else (0, 0)
    if d_in != width:
        raise ValueError(
            f"the encoder of layer {layer} is {list(shape)}, and {site} of the model has {width} values; take "
            "autoencoders of this model, or correct `site`"
        )
    stated = (("d_in", sae.d_in, d_in), ("d_sae", sae.d_sae, d_sae))
    wrong = [f"{of} {said} in its config, {real} in the file" for of, said, real in stated if said not in (None, real)]
    shapes = {own: (tensors[own].shape, sae.shape_of(name, d_in, d_sae)) for name, own in sae.names.items()}
    wrong += [f"{own} {list(found)}" for own, (found, wanted) in shapes.items() if found != wanted]
    if not 0 < d_sae <= _MOST_FEATURES:
        wrong.append(f"{d_sae} features, and at most {_MOST_FEATURES} are supported")
    if wrong:
        raise ValueError(f"layer {layer} has {'; '.join(wrong)}; copy it again, or take another one")
    return Encoder(d_sae, sae.architecture, sae.norm, _VECTORS[sae.encoder], sae.k)


def _matrix(tensors: dict[str, StoredTensor], layer: int) -> StoredTensor:
    """The matrix of a layer: the tensor of its number, or W."""
    found = tensors.get(str(layer)) or tensors.get("W")
    if found is None:
        raise ValueError(f"the file of layer {layer} has no tensor {layer} and no tensor W; name its tensors so")
    return found


def _values(tensor: StoredTensor) -> np.ndarray:
    """fp32, of the whole tensor. Raises ValueError for another type, and for a value that is not finite."""
    if tensor.dtype not in FLOATS:
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
    w, p = found["W_enc"], {name: values.astype(np.float64) for name, values in found.items() if name != "W_enc"}
    norms = np.linalg.norm(p["W_dec"], axis=1) if sae.rescales else np.ones(w.shape[1])
    encode, offset = np.empty(w.shape[::-1], dtype), np.zeros(w.shape[1])
    for begin in range(0, len(offset), _COLUMNS):
        columns = slice(begin, begin + _COLUMNS)
        encode[columns] = (w[:, columns].astype(np.float64) * (sae.scale * norms[columns])).T
        if sae.subtracts_b_dec:
            offset[columns] = encode[columns].astype(np.float64) @ p["b_dec"]
    if sae.encoder == "gated":
        u = np.exp(p["r_mag"])
        vectors = {"u": u, "g": p["b_gate"] - offset, "b": p["b_mag"] - offset * u}
    else:
        vectors = {"b": p["b_enc"] * norms - offset}
    if sae.encoder == "jumprelu":
        vectors["theta"] = p["threshold"] if sae.threshold is None else np.full(len(offset), sae.threshold)
    return {"encode": encode} | {name: values.astype(np.float32) for name, values in vectors.items()}


def _padded(p: dict[str, np.ndarray], encoder: Encoder, ways: int) -> dict[str, np.ndarray]:
    """With features that are never active, because relu(-1) is 0, in the order that `largest` needs."""
    missing, order = encoder.padded - encoder.d_sae, places_of_ids(encoder.padded, ways)
    more = {name: np.zeros((missing, *values.shape[1:]), values.dtype) for name, values in p.items()}
    for name in more.keys() & {"b", "g"}:
        more[name] -= 1
    return {name: np.concatenate([values, more[name]])[order] for name, values in p.items()}

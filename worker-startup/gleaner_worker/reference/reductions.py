"""Reductions by the formulas of their publishers, in numpy, from the tensors as they are stored."""

import numpy as np

from ..architecture.saes import Sae
from ..model.weights.reduction_weights import ReductionWeights


def reduced(weights: ReductionWeights, layer: int, x: np.ndarray) -> np.ndarray:
    """fp32 [rows, k] dot products, or [rows, d_sae] of which the k largest features are not 0; x fp32 [rows, d]."""
    found = weights.stored(layer)
    if weights.reduction.encoder is None:
        return x @ found["directions"].T
    values = encode(weights.saes[layer], found, x)
    order = np.argsort(-values, axis=1, kind="stable")  # of equal values, the lower id
    np.put_along_axis(values, order[:, weights.reduction.k :], 0, axis=1)
    return values


def encode(sae: Sae, tensors: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """All features of x as SAELens's `encode` gives them, fp32 [rows, d_sae]."""
    if sae.norm == "layer_norm":
        x = x - x.mean(axis=1, keepdims=True)
        x = x / (x.std(axis=1, keepdims=True, ddof=1) + 1e-5)
    if sae.norm == "constant_norm_rescale":
        x = x * (x.shape[1] ** 0.5 / np.linalg.norm(x, axis=1, keepdims=True))
    if sae.subtracts_b_dec:
        x = x - tensors["b_dec"]
    w = tensors["W_enc"] * np.float32(sae.scale)
    if sae.encoder == "gated":
        values = np.maximum(x @ (w * np.exp(tensors["r_mag"])) + tensors["b_mag"], 0)
        return np.where(x @ w + tensors["b_gate"] > 0, values, 0)
    h = x @ w + tensors["b_enc"]
    if sae.encoder == "jumprelu":
        threshold = tensors["threshold"] if sae.threshold is None else np.float32(sae.threshold)
        return np.where(h > threshold, np.maximum(h, 0), 0)
    if sae.rescales:
        h = h * np.linalg.norm(tensors["W_dec"], axis=1)
    if sae.k:
        np.put_along_axis(h, np.argsort(-h, axis=1, kind="stable")[:, sae.k :], 0, axis=1)
    return np.maximum(h, 0)


def reconstructed(weights: ReductionWeights, layer: int, values: np.ndarray, x: np.ndarray) -> np.ndarray | None:
    """x as the features values [rows, d_sae] reconstruct it, fp32 [rows, d]; None of a transcoder, which gives the
    output of an MLP, and without a decoder."""
    sae = weights.saes[layer]
    tensors = weights.stored(layer, ("W_dec", "b_dec"))
    if "transcoder" in sae.architecture or not {"W_dec", "b_dec"} <= tensors.keys():
        return None
    if sae.rescales:
        values = values / np.linalg.norm(tensors["W_dec"], axis=1)
    found = values @ tensors["W_dec"] + tensors["b_dec"]
    if sae.norm == "constant_norm_rescale":
        return found * np.linalg.norm(x, axis=1, keepdims=True) / x.shape[1] ** 0.5
    if sae.norm == "layer_norm":
        return found * x.std(axis=1, keepdims=True, ddof=1) + x.mean(axis=1, keepdims=True)
    return found / np.float32(sae.scale)


def dense(values: np.ndarray, ids: np.ndarray, d_sae: int) -> np.ndarray:
    """Stored features [rows, k] as rows of all features, fp32 [rows, d_sae]."""
    rows = np.zeros((len(ids), d_sae + 1), np.float32)
    np.put_along_axis(rows, np.where(ids < 0, d_sae, ids), values, axis=1)
    return rows[:, :d_sae]

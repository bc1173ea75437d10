"""One layer's residual stream of the same token rows, computed and stored, compared with common libraries.

Every side makes fp32 activations of fp32 weights in batches of 2,048 tokens, and its stored rows are compared with
ours. SAELens writes an Arrow dataset, as its runner does. TransformerLens and nnsight leave storage to their users, and
get safetensors.
"""

import os
import shutil
from collections.abc import Callable
from functools import partial

import nnsight
import numpy as np
import torch
from datasets import Dataset
from sae_lens import CacheActivationsRunner, CacheActivationsRunnerConfig
from safetensors.torch import save_file
from transformer_lens import HookedTransformer
from transformer_lens.model_bridge import TransformerBridge

from gleaner_reader.header import parse_tensors

from .job import load, put_stream, store
from .sink import running_sink
from .timing import Report, speed_up, take_turns
from .workplace import HUB_NAME, Workplace

CLAIM = "one layer's resid_post, computed and stored: SAELens, TransformerLens and nnsight over ours"
_BATCH_TOKENS = 2048
_CLOSE = 1e-4  # relative error, fp32: equal outputs


def run(place: Workplace) -> Report:
    report = Report("libraries", CLAIM)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    place.put_in_hub_cache()
    layer = place.layers // 2
    width = 32 if place.is_quick else 256
    ids = place.token_rows(_BATCH_TOKENS // width * (1 if place.is_quick else 2), width)
    with running_sink() as bucket:
        stream = put_stream(bucket, [{"tokens": row.tolist()} for row in ids])
        ours = load(place, place.spec(layers=[layer], dtype="fp32"))
        sides: dict[str, Callable[[], np.ndarray | None]] = {
            "ours": lambda: store(place, ours, bucket, stream) and None
        }
        sides["SAELens"] = _sae_lens(place, ids, layer)
        lens = HookedTransformer.from_pretrained_no_processing(HUB_NAME, device="cpu")
        bridge = TransformerBridge.boot_transformers(HUB_NAME, device="cpu")
        for name, model, hook in (
            ("TransformerLens", lens, f"blocks.{layer}.hook_resid_post"),
            ("TransformerLens bridge", bridge, f"blocks.{layer}.hook_out"),
        ):
            sides[name] = partial(_lens, place, model, ids, hook, None)
            sides[f"{name}, stopped there"] = partial(_lens, place, model, ids, hook, layer + 1)
        traced = nnsight.LanguageModel(HUB_NAME, device_map="cpu", dtype=torch.float32, dispatch=True)
        sides["nnsight"] = partial(_nnsight, place, traced, ids, layer, False)
        sides["nnsight, stopped there"] = partial(_nnsight, place, traced, ids, layer, True)
        sides["ours"]()
        expected = _stored(bucket, layer)
        for name, side in sides.items():
            if (stored := side()) is not None and not _is_close(stored.reshape(expected.shape), expected):
                raise RuntimeError(f"Failed to measure: {name} stored something else than we did")
        seconds = take_turns(sides, place.rounds(3), warm_up=False)
    rate = ids.size / min(seconds["ours"])
    for name in list(sides)[1:]:
        detail = f"{ids.size / min(seconds[name]):.0f} tok/s, ours {rate:.0f}"
        report.figures.append(speed_up(f"fp32, layer {layer}, {name}", seconds[name], seconds["ours"], 2.0, detail))
    return report


def _stored(bucket, layer: int) -> np.ndarray:
    """The rows of the shard that was stored last."""
    info = max(bucket.list("activations/"), key=lambda info: (info.name.endswith(".safetensors"), info.generation))
    tensors, _ = parse_tensors(bucket.read(info.name))
    return tensors[f"resid_post.{layer}"]


def _is_close(found: np.ndarray, expected: np.ndarray) -> bool:
    return float(np.linalg.norm(found - expected)) <= _CLOSE * float(np.linalg.norm(expected))


def _sae_lens(place: Workplace, ids: np.ndarray, layer: int) -> Callable[[], np.ndarray]:
    folder, width, d_model = place.path("sae-lens"), ids.shape[1], place.config["hidden_size"]
    hook = f"blocks.{layer}.hook_resid_post"
    dataset = Dataset.from_dict({"tokens": ids.tolist()})
    runner = CacheActivationsRunner(
        CacheActivationsRunnerConfig(
            dataset_path="not used",
            model_name=HUB_NAME,
            model_batch_size=_BATCH_TOKENS // width,
            hook_name=hook,
            d_in=d_model,
            training_tokens=ids.size,
            context_size=width,
            new_cached_activations_path=folder,
            shuffle=False,
            dtype="float32",
            device="cpu",
            # Exactly the available rows: for more rows SAELens starts again from the first.
            buffer_size_gb=ids.size * d_model * 4 / 1e9,
            prepend_bos=False,
            streaming=False,
        ),
        override_dataset=dataset,
    )

    def side() -> np.ndarray:
        shutil.rmtree(folder, ignore_errors=True)
        runner.activations_store.iterable_dataset = iter(dataset)
        stored = runner.run().with_format("numpy")
        return np.asarray(stored[hook][:])

    return side


def _batches(ids: np.ndarray):
    height = _BATCH_TOKENS // ids.shape[1]
    for at in range(0, len(ids), height):
        yield torch.tensor(ids[at : at + height], dtype=torch.long)


def _lens(place: Workplace, model, ids: np.ndarray, hook: str, stop: int | None) -> np.ndarray:
    kept = []
    with torch.inference_mode():
        for number, batch in enumerate(_batches(ids)):
            _, cache = model.run_with_cache(batch, names_filter=hook, stop_at_layer=stop)
            save_file({hook: cache[hook].contiguous()}, place.path(f"lens-{number}.safetensors"))
            kept.append(cache[hook])
    return torch.cat(kept).numpy()


def _nnsight(place: Workplace, model, ids: np.ndarray, layer: int, is_stopped: bool) -> np.ndarray:
    kept = []
    with torch.inference_mode():
        for number, batch in enumerate(_batches(ids)):
            with model.trace(batch) as tracer:
                output = model.model.layers[layer].output.save()
                if is_stopped:
                    tracer.stop()
            rows = output[0] if isinstance(output, tuple) else output
            save_file({"rows": rows.contiguous()}, place.path(f"nnsight-{number}.safetensors"))
            kept.append(rows)
    return torch.cat(kept).numpy()

"""One layer's residual stream of real prompts, computed and stored, compared with common libraries.

The prompts are spread over all of the data, and fill a row of ours, as the prompts of a longer stream do. Every side
computes in fp32 with fp32 weights and stores fp32, after a turn that does not count. The prompts are sorted by length;
the libraries take batches of at most 2,048 tokens, padded to the longest prompt of the batch, and store the rows of
real tokens. These rows are compared with ours.
SAELens has only context windows, so it is compared with `over_long: pack` and windows of the same size. SAELens writes
an Arrow dataset, as its runner does. The other libraries leave storage to their users, and get safetensors.

TransformerLens 4 has the bridge alone, and SAELens needs TransformerLens 3: `--lens-4` compares the bridge of
version 4.
"""

import importlib.metadata
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import partial

import nnsight
import numpy as np
import torch
from datasets import Dataset
from safetensors.numpy import load as load_tensors
from safetensors.torch import save_file
from transformer_lens.model_bridge import TransformerBridge
from transformers import AutoModel, AutoModelForCausalLM

from gleaner_worker.model.model import Model
from gleaner_worker.model.program.rows import pack

from .job import load, put_stream, store
from .prompts import every_nth, real_prompts
from .sink import running_sink
from .timing import Report, speed_up, take_turns
from .workplace import HUB_NAME, Workplace

CLAIM = "one layer's resid_post of real prompts, computed and stored: each library over ours"
_BATCH_TOKENS = 2048
_CONTEXT = 256  # tokens of a window of SAELens
_CLOSE = 1e-4  # relative error, fp32: equal outputs
_ROWS = 1  # of 2,048 tokens, that the prompts of a mix fill

_LENS = importlib.metadata.version("transformer-lens")
_IS_LENS_4 = int(_LENS.partition(".")[0]) >= 4

Batch = tuple[torch.Tensor, torch.Tensor]  # token ids and attention mask, int64 [B, T]
Side = Callable[[], np.ndarray]  # stores the rows, and returns them


def run(place: Workplace) -> Report:
    report = Report(CLAIM)
    ids = real_prompts(512 if place.is_quick else 8192)
    if ids is None:
        report.notes.append("skipped: shared/data is not there")
        return report
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    place.put_in_hub_cache()
    layer = place.layers // 2
    length = 256 if place.is_quick else _BATCH_TOKENS
    mixes = {name: [prompt[:length] for prompt in every_nth(prompts, 200)] for name, prompts in ids.items()}
    mixes["both"] = [prompt for pair in zip(mixes["GSM8K"], mixes["ARC"], strict=True) for prompt in pair]
    shape = {"layers": [layer], "dtype": "fp32", "max_seq_length": length}
    ours = load(place, place.spec(**shape))
    packing = load(place, place.spec(**shape | {"over_long": "pack", "context_size": _CONTEXT, "bos": False}))
    libraries = _libraries(layer)
    for name, candidates in mixes.items():
        prompts = sorted(_filling(candidates, ours), key=len)
        sides = {side: partial(call, place, _padded(prompts)) for side, call in libraries.items()}
        _compare(place, report, name, layer, prompts, ours, sides)
        if not _IS_LENS_4:
            windows = _windows(place, packing, prompts)
            _compare(
                place, report, name, layer, prompts, packing, {_named("SAELens"): _sae_lens(place, windows, layer)}
            )
    return report


def _compare(
    place: Workplace, report: Report, mix: str, layer: int, prompts: list[list[int]], model: Model, sides: dict
) -> None:
    """Checks that all sides store the same rows, and reports their speeds over ours."""
    with running_sink() as bucket:
        stream = put_stream(bucket, [{"tokens": prompt} for prompt in prompts])
        rows: dict[str, np.ndarray] = {}  # of each side's last turn

        def turn(name: str, side: Side) -> None:
            print(f"{mix}: {name}", file=sys.stderr)
            rows[name] = side()

        def store_ours() -> np.ndarray:
            store(place, model, bucket, stream)
            return _stored(bucket)[f"resid_post.{layer}"]

        all_sides = {name: partial(turn, name, side) for name, side in [("ours", store_ours), *sides.items()]}
        seconds = take_turns(all_sides, place.rounds(3))
    for name, stored in rows.items():
        if not _is_close(stored, rows["ours"][: len(stored)]):
            raise RuntimeError(f"Failed to measure: {name} stored other rows than ours for {mix}")
    tokens = {name: len(stored) for name, stored in rows.items()}
    each = {name: [s / tokens[name] for s in times] for name, times in seconds.items()}  # of a token
    for name in sides:
        detail = f"{tokens[name]} tokens, {1 / min(each[name]):.0f} a second, ours {1 / min(each['ours']):.0f}"
        report.figures.append(speed_up(f"{mix}, {name}", each[name], each["ours"], None, detail))


def _filling(candidates: list[list[int]], model: Model) -> list[list[int]]:
    """The first candidates that fill _ROWS rows; a candidate that does not fit any more is left out."""
    chosen: list[list[int]] = []
    for prompt in candidates:
        sizes = [(len(other), len(other)) for other in [*chosen, prompt]]
        if len(pack(sizes, model.row_limits)) <= _ROWS:
            chosen.append(prompt)
    return chosen


def _windows(place: Workplace, packing: Model, prompts: list[list[int]]) -> np.ndarray:
    """The windows that we make of the prompts, with the token between two prompts, int [windows, _CONTEXT].

    Whole batches alone, because SAELens would fill the last batch with windows of another epoch.
    """
    with running_sink() as bucket:
        store(place, packing, bucket, put_stream(bucket, [{"tokens": prompt} for prompt in prompts]))
        ids = _stored(bucket)["token_ids"]
    windows = ids[: len(ids) // _CONTEXT * _CONTEXT].reshape(-1, _CONTEXT)
    batch = min(len(windows), _BATCH_TOKENS // _CONTEXT)
    return windows[: len(windows) // batch * batch]


def _stored(bucket) -> dict[str, np.ndarray]:
    """The tensors of the shard that was stored last."""
    info = max(bucket.list("activations/"), key=lambda info: (info.name.endswith(".safetensors"), info.generation))
    return load_tensors(bucket.read(info.name))


def _is_close(found: np.ndarray, expected: np.ndarray) -> bool:
    return found.shape == expected.shape and float(np.linalg.norm(found - expected)) <= _CLOSE * float(
        np.linalg.norm(expected)
    )


def _padded(prompts: list[list[int]]) -> list[Batch]:
    batches: list[list[list[int]]] = [[]]
    for prompt in prompts:
        longest = max(len(other) for other in [*batches[-1], prompt])
        if batches[-1] and longest * (len(batches[-1]) + 1) > _BATCH_TOKENS:
            batches.append([])
        batches[-1].append(prompt)
    return [_padded_batch(batch) for batch in batches]


def _padded_batch(prompts: list[list[int]]) -> Batch:
    width = max(len(prompt) for prompt in prompts)
    ids = torch.zeros((len(prompts), width), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, : len(prompt)] = torch.tensor(prompt)
        mask[row, : len(prompt)] = 1
    return ids, mask


def _libraries(layer: int) -> dict[str, Callable[[Workplace, list[Batch]], np.ndarray]]:
    """By name: stores the real rows of the batches, and returns them."""
    reference = AutoModelForCausalLM.from_pretrained(HUB_NAME, dtype=torch.float32)
    ended = AutoModel.from_pretrained(HUB_NAME, dtype=torch.float32, num_hidden_layers=layer + 1)
    ended.norm = torch.nn.Identity()  # so that the last hidden state is the residual stream
    bridge = TransformerBridge.boot_transformers(HUB_NAME, device="cpu")
    traced = nnsight.LanguageModel(HUB_NAME, device_map="cpu", dtype=torch.float32, dispatch=True)

    def transformers(ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return reference(ids, attention_mask=mask, output_hidden_states=True, logits_to_keep=1).hidden_states[layer + 1]

    def transformers_ended(ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return ended(ids, attention_mask=mask).last_hidden_state

    def cached(model, hook: str, stop: int | None) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
        # Padding stands on the right, where causal attention hides it from every real token.
        return lambda ids, mask: model.run_with_cache(ids, names_filter=hook, stop_at_layer=stop)[1][hook]

    def trace(is_stopped: bool, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        with traced.trace({"input_ids": ids, "attention_mask": mask}) as tracer:
            output = traced.model.layers[layer].output.save()
            if is_stopped:
                tracer.stop()
        return output[0] if isinstance(output, tuple) else output

    lenses = [(f"TransformerLens bridge {_LENS}", bridge, f"blocks.{layer}.hook_out")]
    if not _IS_LENS_4:
        from transformer_lens import HookedTransformer

        lens = HookedTransformer.from_pretrained_no_processing(HUB_NAME, device="cpu")
        lenses.append((f"TransformerLens {_LENS}", lens, f"blocks.{layer}.hook_resid_post"))
    sides: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {_named("transformers"): transformers}
    sides[f"{_named('transformers')}, stopped there"] = transformers_ended
    for name, model, hook in lenses:
        sides[name] = cached(model, hook, None)
        sides[f"{name}, stopped there"] = cached(model, hook, layer + 1)
    sides[_named("nnsight")] = partial(trace, False)
    sides[f"{_named('nnsight')}, stopped there"] = partial(trace, True)
    return {name: partial(_store_batches, side) for name, side in sides.items()}


def _named(library: str) -> str:
    """The library with its version."""
    return f"{library} {importlib.metadata.version({'SAELens': 'sae-lens'}.get(library, library))}"


def _store_batches(side, place: Workplace, batches: Sequence[Batch]) -> np.ndarray:
    kept = []
    with torch.inference_mode():
        for number, (ids, mask) in enumerate(batches):
            rows = side(ids, mask)[mask.bool()].contiguous()
            save_file({"rows": rows}, place.path(f"library-{number}.safetensors"))
            kept.append(rows)
    return torch.cat(kept).numpy()


def _sae_lens(place: Workplace, windows: np.ndarray, layer: int) -> Side:
    from sae_lens import CacheActivationsRunner, CacheActivationsRunnerConfig

    folder, d_model = place.path("sae-lens"), place.config["hidden_size"]
    hook = f"blocks.{layer}.hook_resid_post"
    tokens = windows.size
    dataset = Dataset.from_dict({"tokens": windows.tolist()})
    runner = CacheActivationsRunner(
        CacheActivationsRunnerConfig(
            dataset_path="not used",
            model_name=HUB_NAME,
            model_batch_size=min(len(windows), _BATCH_TOKENS // _CONTEXT),
            hook_name=hook,
            d_in=d_model,
            training_tokens=tokens,
            context_size=_CONTEXT,
            new_cached_activations_path=folder,
            shuffle=False,
            dtype="float32",
            device="cpu",
            # Exactly the available rows: for more rows SAELens starts again from the first.
            buffer_size_gb=tokens * d_model * 4 / 1e9,
            prepend_bos=False,
            streaming=False,
        ),
        override_dataset=dataset,
    )

    def side() -> np.ndarray:
        shutil.rmtree(folder, ignore_errors=True)
        runner.activations_store.iterable_dataset = iter(dataset)
        stored = runner.run().with_format("numpy")
        return np.asarray(stored[hook][:]).reshape(-1, d_model)

    return side

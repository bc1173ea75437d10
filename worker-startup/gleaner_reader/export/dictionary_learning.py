"""An export for dictionary_learning's trainSAE, which takes any iterator of [batch, d_model] tensors as its `data`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from ..run import Run


class ActivationBuffer:
    """A buffer for dictionary_learning: an iterator over [out_batch_size, d_model], and the `config` of the buffer.

    dictionary_learning's trainers save `config` with the SAE.
    """

    def __init__(self, run: "Run", layer: int, site: str, out_batch_size: int, device: str, options: dict):
        self._batches = run.batches(layer, site, batch_rows=out_batch_size, as_="torch", **options)
        self._device = device
        self.config = {
            "d_submodule": run.d_model,
            "io": "out",
            "out_batch_size": out_batch_size,
            "device": device,
            "run": run.url,
            "submodule": f"{site}.{layer}",
        }

    def __repr__(self) -> str:
        return f"<ActivationBuffer of {self._batches!r}>"

    def __iter__(self) -> "ActivationBuffer":
        iter(self._batches)  # begins the next epochs after a loop that has ended
        return self

    def __next__(self) -> "torch.Tensor":
        batch: Any = next(self._batches)
        return batch.to(self._device)

    def state(self) -> dict:
        """The value to pass as `state` when training resumes."""
        return self._batches.state()

    def close(self) -> None:
        self._batches.close()


def to_dictionary_learning(
    run: "Run",
    layer: int,
    site: str | None = None,
    *,
    out_batch_size: int = 8192,
    device: str = "cpu",
    dtype: str | None = "float32",
    epochs: int | None = None,
    **options,
) -> ActivationBuffer:
    """`trainSAE(data=to_dictionary_learning(run, layer=12), …)`.

    Repeats the run without end, or `epochs` times. `options` are those of run.batches (seed, exclude_ids,
    max_norm_multiple, buffer_rows, state).
    """
    site = run.shards[0].site(site)
    return ActivationBuffer(run, layer, site, out_batch_size, device, {"dtype": dtype, "epochs": epochs} | options)

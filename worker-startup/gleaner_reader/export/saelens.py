"""An export for SAELens, in the layout that its CacheActivationsRunner writes and its ActivationsStore reads.

A folder for `datasets.load_from_disk`: one column named as the hook, [context_size, d_model], and `token_ids`.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..run.pieces import as_float, columns_of, pieces, site_of
from .arrow import ArrowFolder, import_datasets
from .samples import write_samples
from .unfinished import Unfinished, bytes_of, settings_of

if TYPE_CHECKING:
    from ..run.run import Run

_DTYPES = ("float32", "float16")  # Arrow has no bf16
# The hooks of TransformerLens whose names are not those of the sites.
HOOKS = {
    "embeddings": "hook_embed",
    "q": "blocks.{}.attn.hook_q",
    "k": "blocks.{}.attn.hook_k",
    "v": "blocks.{}.attn.hook_v",
    "rot_q": "blocks.{}.attn.hook_rot_q",
    "rot_k": "blocks.{}.attn.hook_rot_k",
    "attn_z": "blocks.{}.attn.hook_z",
    "mlp_in": "blocks.{}.mlp.hook_in",
    "mlp_neurons": "blocks.{}.mlp.hook_post",
    "router_logits": "blocks.{}.mlp.gate.hook_out",
    "experts": "blocks.{}.mlp.hook_expert_indices",
    "final_norm": "ln_final.hook_out",
}
_FILE_BYTES = 500_000_000


@dataclass(frozen=True)
class SaelensExport:
    """The hook_name, context_size and d_in for SAELens, and the counts of the export."""

    path: str
    hook_name: str
    context_size: int
    d_in: int
    contexts: int
    rows: int
    rows_left_out: int  # the last rows, which fill no context


def to_saelens(
    run: "Run",
    out_dir: str,
    layer: int,
    site: str | None = None,
    *,
    context_size: int = 128,
    dtype: str = "float32",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> SaelensExport:
    """Writes one layer of the run as cached activations, which SAELens reads.

    Rows follow each other in the order of storage, sample after sample, in contexts of `context_size`. A context may
    mix samples: SAELens shuffles rows, and each row was computed within its own sample. Without stored token ids the
    export has no column of them. `samples.jsonl` is that of `to_npy`: context c has the rows from c * context_size.

    Args:
        context_size: rows of a context.
        run, out_dir, layer, site, dtype, progress: as `to_npy` takes them.

    Raises:
        FileExistsError, ValueError: as `to_npy`.
        MissingPackage: datasets is not installed.

    >>> export = to_saelens(run, "saelens", layer=12, context_size=64)  # doctest: +SKIP
    >>> export.hook_name, export.d_in  # doctest: +SKIP
    ('blocks.12.hook_resid_post', 8)
    """
    datasets = import_datasets("SAELens")
    if dtype not in _DTYPES:
        raise ValueError(f"dtype is {dtype!r}, known are {', '.join(_DTYPES)}")
    if context_size < 1:
        raise ValueError(f"context_size is {context_size}; set it to at least 1")
    site = site_of(run, layer, site)
    hook = HOOKS.get(site, f"blocks.{{}}.hook_{site}").format(layer)
    settings = settings_of(run, "saelens", site=site, layer=layer, dtype=dtype, context_size=context_size)
    unfinished = Unfinished(out_dir, settings, bytes_of(run, dtype, site))
    has_tokens = "token_id" in columns_of(run)
    shape = (context_size, run.widths[site])
    features = {hook: datasets.Array2D(shape=shape, dtype=dtype)}
    if has_tokens:
        features["token_ids"] = datasets.Sequence(datasets.Value("int32"), length=context_size)
    writer = ArrowFolder(datasets, datasets.Features(features), unfinished)
    contexts_per_file = max(1, _FILE_BYTES // (context_size * run.widths[site] * 4))
    begin = writer.rows * context_size
    for rows, tokens, end in _contexts(run, layer, site, context_size, has_tokens, begin):
        left = len(rows) % context_size
        full = len(rows) - left
        values = as_float(rows[:full], dtype, hook)
        columns: dict[str, np.ndarray] = {hook: values.reshape(-1, *shape)}
        if tokens is not None:
            columns["token_ids"] = tokens[:full].reshape(-1, context_size)
        writer.write(columns, full // context_size)
        if writer.rows_in_file >= contexts_per_file:
            writer.end_file()
        progress(end, run.num_rows)
    contexts = writer.finish(settings)
    write_samples(run, unfinished)
    full = contexts * context_size
    export = SaelensExport(out_dir, hook, context_size, run.widths[site], contexts, full, run.num_rows - full)
    unfinished.finish(asdict(export))
    return export


def _contexts(
    run: "Run", layer: int, site: str, context_size: int, has_tokens: bool, begin: int
) -> Iterator[tuple[np.ndarray, np.ndarray | None, int]]:
    """Yields fp32 rows, their token ids and the row of the run after them, from row `begin`.

    Rows that fill no context come again next time.
    """
    rows = np.empty((0, run.widths[site]), np.float32)
    tokens = np.empty(0, np.int32) if has_tokens else None
    for piece in pieces(run, site, layer, begin):
        rows = np.concatenate([rows, piece.rows.to_float32()])
        if tokens is not None:
            tokens = np.concatenate([tokens, piece.columns["token_id"].astype(np.int32)])
        yield rows, tokens, piece.end
        left = len(rows) % context_size
        rows = rows[len(rows) - left :].copy()
        if tokens is not None:
            tokens = tokens[len(tokens) - left :].copy()

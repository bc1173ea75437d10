"""The spec of a run, as the control plane froze it."""

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as default_of
from typing import Any

from ..architecture.config import DecoderConfig
from ..architecture.reductions import Reduction
from ..architecture.sites import SITES, Capture, check_sites, layers_with_site
from ..failures import Failure
from .selections import Spans, TokenSelection, parse_tokens, span_sources

KEPT_ANSWER = "generated"  # the name of the text of generated tokens among the kept fields


@dataclass(frozen=True)
class RecordSpec:
    """The rules that turn a line into a prompt; see records/."""

    field: str | None = None
    template: str | None = None
    encoder: str | None = None
    prompt_version: str = "output-from-examples-v0"
    predictions_per_task: int = 1
    add_generation_prompt: bool = False
    continue_final_message: bool = False
    template_kwargs: Mapping[str, Any] = default_of(default_factory=dict)  # variables of the chat template


@dataclass(frozen=True)
class ReductionSpec:
    """An entry of `features` or `project`. None: as the autoencoder's own config says, or for layers as the run."""

    name: str  # of the stored tensors
    weights: str  # a hub id, a folder or a file gs://…, or a path on this machine
    revision: str | None = None
    path: str = ""  # below `weights`, where {layer} stands for the number of a layer
    site: str | None = None
    layers: str | tuple[int, ...] | None = None
    k: int | None = None  # features of a row, at most
    dtype: str = "fp32"  # of projections


@dataclass(frozen=True)
class MomentSpec:
    """The sites and layers whose sums the run stores; None: those of the run, or resid_post."""

    sites: tuple[str, ...] | None = None
    layers: str | tuple[int, ...] | None = None


@dataclass(frozen=True)
class Spec:
    """The keys of the spec, as docs/run-spec.md describes them."""

    model: str
    revision: str | None
    layers: str | tuple[int, ...]  # "all", "0-23", or the numbers themselves
    sites: tuple[str, ...]  # in the order of SITES
    tokens: str | tuple[int, ...]  # as selections.py describes them
    exclude_special: bool
    dtype: str  # as stored
    compute_dtype: str  # of the weights and the computation: bf16 or fp32
    format: str
    shard_size_bytes: int
    max_seq_length: int
    over_long: str
    record: RecordSpec
    keep: tuple[str, ...]
    seed: int
    row_tokens: int = 2048  # the least length of a packed row: a power of two
    window_tokens: int = 65_536  # of the samples that are packed together
    context_size: int | None = None  # tokens of a chunk or a packed window; None for max_seq_length
    overlap: int = 0  # tokens that a chunk repeats of the chunk before
    bos: str | bool = "auto"
    top_k: int = 20  # tokens of the sites top_tokens and top_logprobs
    mask: str | None = None  # the spans whose tokens are marked beside the rows
    generate: Mapping[str, int] | None = None  # max_new_tokens, and the temperature 0
    features: tuple[ReductionSpec, ...] = ()
    project: tuple[ReductionSpec, ...] = ()
    moments: MomentSpec | None = None

    @property
    def reductions(self) -> tuple[ReductionSpec, ...]:
        return (*self.features, *self.project)

    @property
    def selection(self) -> TokenSelection:
        selection = parse_tokens(self.tokens)
        assert selection is not None  # parse_spec refuses other texts
        return selection

    @property
    def span_sources(self) -> tuple[Spans, ...]:
        return span_sources(self.tokens, self.mask)

    @property
    def cuts_documents(self) -> bool:
        """Whether a sample is a part of one document or of several documents."""
        return self.over_long in ("chunk", "pack")

    @property
    def new_tokens(self) -> int:
        """The most tokens that the model appends to a prompt."""
        return self.generate["max_new_tokens"] if self.generate else 0

    @property
    def generates(self) -> bool:
        return self.generate is not None

    @property
    def keeps(self) -> bool:
        """Whether the index of a shard has kept fields."""
        return bool(self.keep) or self.generates

    def max_length(self, max_positions: int) -> int:
        """The most tokens of a sample, for a model with `max_positions` positions."""
        return min(self.context_size or self.max_seq_length, max_positions)


def mode_of(spec: Spec) -> str:
    """The `mode` of a Capture for this spec."""
    selection = spec.selection
    if selection.is_pool:
        return str(selection.reduction)
    return "all" if selection.is_of_all and not spec.exclude_special else "rows"


def capture_of(
    spec: Spec, config: DecoderConfig, layers: tuple[int, ...], reductions: tuple[Reduction, ...] = ()
) -> Capture:
    """The vectors that a run stores. layers: those that resolve_layers gives."""
    moments: tuple[tuple[str, tuple[int, ...]], ...] = ()
    if spec.moments:
        chosen = resolve_layers(spec, config.num_layers, spec.moments)
        sites = spec.moments.sites or spec.sites or ("resid_post",)
        check_sites(config, chosen, sites, spec.top_k, spec.model)
        moments = tuple((site, layers_with_site(config, site, chosen)) for site in SITES if site in sites)
    mode = mode_of(spec)
    return Capture(config, layers, spec.sites, mode, spec.dtype, spec.top_k, spec.generates, reductions, moments)


def resolve_layers(spec: Spec, num_layers: int, of: ReductionSpec | MomentSpec | None = None) -> tuple[int, ...]:
    """The layers to store, of the run or of a reduction, ascending, without repeats; raises Failure("model") when the
    model lacks a layer."""
    layers = spec.layers if of is None or of.layers is None else of.layers
    if layers == "all":
        wanted = set(range(num_layers))
    elif isinstance(layers, str):
        first, _, last = layers.partition("-")
        wanted = set(range(int(first), int(last) + 1))
    else:
        wanted = set(layers)
    absent = sorted(layer for layer in wanted if not 0 <= layer < num_layers)
    if absent or not wanted:
        asked = f'"{layers}"' if isinstance(layers, str) else ", ".join(map(str, absent[:10]))
        raise Failure(
            "model",
            f"Failed to choose layers {asked} of {spec.model}: it has layers 0 to {num_layers - 1}; "
            "set `layers` within them",
        )
    return tuple(sorted(wanted))

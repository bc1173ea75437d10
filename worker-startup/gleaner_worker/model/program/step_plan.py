"""The plan of a run's steps, before any compilation: from the spec, the model's config and the kind of device."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ...architecture.sites import Capture
from ...spec.spec import Spec
from ..files.generation_rules import GenerationRules
from ..weights.weights import parameter_shapes, reduction_shapes
from .program import StepShape
from .row_selection import check_token_selection, row_limits
from .tuning import Tuning, tuning_of


@dataclass(frozen=True)
class StepPlan:
    """The program of a run before its compilation."""

    capture: Capture
    tuning: Tuning
    shape: StepShape
    weights: dict  # shapes, up to the deepest stored layer, or of the whole model
    rules: GenerationRules | None = None

    def halved(self) -> "StepPlan":
        """The plan with half of the rows in a step."""
        shape = replace(self.shape, rows=self.shape.rows // 2)
        return replace(self, shape=shape, tuning=replace(self.tuning, step_tokens=shape.rows * shape.row_tokens))


def plan_step(
    spec: Spec,
    capture: Capture,
    device: Any,
    rules: GenerationRules | None = None,
    tuned: Callable[[Tuning], Tuning] = lambda tuning: tuning,
) -> StepPlan:
    """device: any device of the mesh. tuned: gives other settings in place of those of the device.

    Raises Failure("model") when no sample has the tokens that `tokens` selects.
    """
    config, (depth, end) = capture.config, capture.loaded
    max_length = spec.max_length(config.max_positions)
    check_token_selection(spec, max_length)
    tuning, row = tuned(tuning_of(device, spec.compute_dtype, config)), row_limits(spec, max_length)
    reductions = {"reductions": reduction_shapes(capture.reductions, spec.compute_dtype)} if capture.reductions else {}
    return StepPlan(
        capture,
        tuning,
        StepShape(max(1, tuning.step_tokens // row.tokens), row.tokens, row.vectors),
        parameter_shapes(config, depth, spec.compute_dtype, end) | reductions,
        rules,
    )

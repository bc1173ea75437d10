"""The program of a run on TPUs that are not here: whether it fits, its memory, and its estimated time.

The worker's own code chooses the mesh and the shape of a step, and the TPU compiler compiles the program.
"""

import time

from ..failures import Failure
from ..model.capture import Capture
from ..model.config import DecoderConfig
from ..model.model import choose_program
from ..model.program import step_shape
from ..model.row_selection import check_tokens, mode_of
from ..model.tuning import tuning_of
from ..model.weights import parameter_shapes
from ..spec import Spec
from .accelerators import chip_of, devices_of
from .cost_model import cost_of
from .operations import operations_of


def estimate_program(spec: Spec, config: DecoderConfig, layers: tuple[int, ...], accelerator: str) -> dict:
    """The figures of the program. Bytes are those of one chip; tokens a second are those of all chips with full rows.

    Raises KeyError for an accelerator that is not in accelerators.ACCELERATORS, and Failure("model") for tokens that
    no sample has.
    """
    devices, chip = devices_of(accelerator), chip_of(accelerator)
    max_length = spec.max_length(config.max_positions)
    check_tokens(spec, max_length)
    what = Capture(config, layers, spec.sites, mode_of(spec), spec.dtype)
    tuning = tuning_of(devices[0], spec.compute_dtype)
    shape = step_shape(spec, max_length, tuning)
    weights = parameter_shapes(config, layers[-1] + 1, spec.compute_dtype)
    found = {
        "accelerator": accelerator,
        "chips": len(devices),
        "hbm_limit_bytes": chip.hbm_bytes,
        "shape": f"{shape.rows}x{shape.row_tokens}",
    }
    began = time.process_time()
    try:
        layout, program = choose_program(what, weights, shape, tuning, chip.hbm_bytes, devices, spec.model)
    except Failure as failure:
        return found | {"fits": False, "reason": failure.reason}
    memory = program.run.memory_analysis()
    assert memory is not None  # the TPU compiler always gives it
    milliseconds = cost_of(program.run.as_text() or "").milliseconds(chip)
    rows = shape.rows * layout.data
    operations = rows * operations_of(config, layers[-1] + 1, shape.row_tokens)
    return found | {
        "fits": True,
        "mesh": f"{layout.data}x{layout.model}",
        "compile_cpu_s": round(time.process_time() - began, 1),
        "hbm_bytes": {
            "arguments": memory.argument_size_in_bytes,
            "temp": memory.temp_size_in_bytes,
            "output": memory.output_size_in_bytes,
        },
        "steps_in_flight": program.in_flight,
        "estimated_ms": round(milliseconds, 3),
        "tokens_per_s": round(rows * shape.row_tokens / milliseconds * 1e3),
        "share_of_peak": round(operations / (milliseconds / 1e3) / (len(devices) * chip.peak_flops), 3),
    }

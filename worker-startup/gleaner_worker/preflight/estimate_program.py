"""The program of a run, compiled without a TPU: whether it fits, its memory, and its estimated time.

The worker's own code chooses the mesh and the shape of a step, and the TPU compiler compiles the program.
"""

import time
from collections.abc import Callable

from ..architecture.sites import Capture
from ..failures import Failure
from ..model.files.generation_rules import GenerationRules
from ..model.model import choose_program
from ..model.program.step_plan import plan_step
from ..model.program.tuning import Tuning
from ..spec.spec import Spec
from .accelerators import device_of, devices_of
from .cost_model import cost_of
from .operations import speed_of


def estimate_program(
    spec: Spec,
    capture: Capture,
    accelerator: str,
    rules: GenerationRules | None = None,
    tuned: Callable[[Tuning], Tuning] = lambda tuning: tuning,
    see: Callable[[str], None] = lambda text: None,
) -> dict:
    """The figures of the program. Bytes are those of one device; tokens per second are those of all devices with full
    rows. tuned: gives other settings in place of those of the accelerator. see: receives the optimised text of a
    program that fits.

    Raises KeyError for an accelerator that is not in accelerators.ACCELERATORS, and Failure("model") for tokens that
    no sample has.
    """
    devices, device = devices_of(accelerator), device_of(accelerator)
    plan = plan_step(spec, capture, devices[0], rules, tuned)
    figures = {
        "accelerator": accelerator,
        "devices": len(devices),
        "hbm_limit_bytes": device.hbm_bytes,
    }
    began = time.process_time()
    try:
        plan, layout, program, decoding = choose_program(plan, plan.weights, device.hbm_bytes, devices, spec.model)
    except Failure as failure:
        return figures | {"fits": False, "reason": failure.reason}
    memory = program.run.memory_analysis()
    assert memory is not None  # the TPU compiler always reports it
    text = program.run.as_text() or ""
    see(text)
    milliseconds = cost_of(text).milliseconds(device)
    rows, tokens = plan.shape.rows * layout.data, plan.shape.row_tokens
    return (
        figures
        | {
            "fits": True,
            "mesh": f"{layout.data}x{layout.model}",
            "shape": f"{plan.shape.rows}x{plan.shape.row_tokens}",
            "compile_cpu_s": round(time.process_time() - began, 1),
            "hbm_bytes": {
                "arguments": memory.argument_size_in_bytes,
                "temp": memory.temp_size_in_bytes,
                "output": memory.output_size_in_bytes,
            },
            "steps_in_flight": program.in_flight,
            # Tokens that a sample chooses have a number that only the stream tells.
            "stored_bytes_per_token": plan.capture.row_bytes if plan.capture.mode == "all" else None,
        }
        | speed_of(milliseconds, rows, tokens, capture, device, len(devices))
        | {"generated_tokens_per_s": decoding and round(decoding.tokens_per_s(device.hbm_bytes_per_s))}
    )

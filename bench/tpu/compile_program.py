"""Compiles a program with the TPU compiler: `python compile_program.py MODEL ACCELERATOR TOPOLOGY SHAPE OUT`.

PYTHONPATH chooses the imported worker. OUT.txt gets the optimised HLO, OUT.json
the memory, the CPU time and the number of programs that were compiled.
"""

import json
import os
import sys
import time

import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh
from models import CONFIGS, MESHES

from gleaner_worker.model.config import parse_config
from gleaner_worker.model.mesh import Layout
from gleaner_worker.model.program import StepShape, compile_rows
from gleaner_worker.model.sites import Capture
from gleaner_worker.model.tuning import tuning_of
from gleaner_worker.model.weights import parameter_shapes

_COMPILED = "/jax/core/compile/backend_compile_duration"  # JAX's event of each compiled program


def main() -> None:
    model, accelerator, topology, shape, out = sys.argv[1:]
    data, ways = MESHES[model][accelerator]
    rows, tokens = map(int, shape.split("x"))
    devices = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices
    mesh = Mesh(np.array(devices[: data * ways]).reshape(data, ways), ("data", "model"))
    programs: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, duration_secs, **_: programs.append(event) if event == _COMPILED else None
    )
    began = time.process_time()
    compiled = compile_extraction(model, mesh, rows, tokens)
    memory = compiled.memory_analysis()
    facts = {
        "compile_cpu_s": round(time.process_time() - began, 1),
        "programs": len(programs),
        "hbm_bytes": {
            "arguments": memory.argument_size_in_bytes,
            "temp": memory.temp_size_in_bytes,
            "output": memory.output_size_in_bytes,
        },
    }
    with open(f"{out}.txt", "w", encoding="utf-8") as file:
        file.write(compiled.as_text())
    with open(f"{out}.json", "w", encoding="utf-8") as file:
        json.dump(facts, file)
    sys.stdout.flush()
    os._exit(0)  # libtpu's own exit takes seconds


def compile_extraction(model: str, mesh: Mesh, rows: int, tokens: int):
    config = parse_config(CONFIGS[model], model)
    capture = Capture(config, tuple(range(config.num_layers)), ("resid_post",), "all", "bf16")
    params = parameter_shapes(config, config.num_layers, "bf16")
    tuning = tuning_of(mesh.devices.flat[0], "bf16", config.d_model)
    return compile_rows(capture, Layout(mesh), params, StepShape(rows, tokens, tokens), tuning, None, model).run


if __name__ == "__main__":
    main()

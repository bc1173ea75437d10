"""Compiles a program with the TPU compiler: `python compile_program.py SIDE MODEL ACCELERATOR TOPOLOGY SHAPE OUT`.

SIDE is current or baseline. PYTHONPATH chooses the imported worker. OUT.txt gets the optimised HLO, OUT.json
the memory, the CPU time and the number of programs that were compiled.
`baseline` drives the worker of commit 6379725, whose model code asks for the default backend.
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

_COMPILED = "/jax/core/compile/backend_compile_duration"  # JAX's event of each compiled program


def main() -> None:
    side, model, accelerator, topology, shape, out = sys.argv[1:]
    data, ways = MESHES[model][accelerator]
    rows, tokens = map(int, shape.split("x"))
    devices = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices
    mesh = Mesh(np.array(devices[: data * ways]).reshape(data, ways), ("data", "model"))
    programs: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, duration_secs, **_: programs.append(event) if event == _COMPILED else None
    )
    began = time.process_time()
    compiled = {"current": compile_current, "baseline": compile_baseline}[side](model, mesh, rows, tokens)
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


def compile_current(model: str, mesh: Mesh, rows: int, tokens: int):
    from gleaner_worker.model.capture import Capture
    from gleaner_worker.model.config import parse_config
    from gleaner_worker.model.mesh import Layout
    from gleaner_worker.model.program import StepShape, compile_rows
    from gleaner_worker.model.tuning import tuning_of
    from gleaner_worker.model.weights import parameter_shapes

    config = parse_config(CONFIGS[model], model)
    capture = Capture(config, tuple(range(config.num_layers)), ("resid_post",), "all", "bf16")
    params = parameter_shapes(config, config.num_layers, "bf16")
    tuning = tuning_of(mesh.devices.flat[0], "bf16")
    return compile_rows(capture, Layout(mesh), params, StepShape(rows, tokens, tokens), tuning, None, model).run


def compile_baseline(model: str, mesh: Mesh, rows: int, tokens: int):
    from gleaner_worker.model.capture import Capture
    from gleaner_worker.model.config import parse_config
    from gleaner_worker.model.mesh import Layout, parameter_axes
    from gleaner_worker.model.program import compile_batch
    from gleaner_worker.model.tensors import layer_table

    jax.default_backend = lambda: "tpu"
    config = parse_config(CONFIGS[model], model)
    capture = Capture(config, tuple(range(config.num_layers)), ("resid_post",), "all", "bf16")
    layout = Layout(mesh)

    def weight(name: str, shape: tuple[int, ...]) -> jax.ShapeDtypeStruct:
        axes = parameter_axes(name, shape, config, layout.model)
        return jax.ShapeDtypeStruct(shape, jax.numpy.bfloat16, sharding=layout.sharding(*axes))

    blocks = {name: weight(name, (config.num_layers, *shape)) for name, shape in layer_table(config).values()}
    params = {"embed": weight("embed", (config.vocab_size, config.d_model)), "blocks": blocks}
    return compile_batch(capture, layout, params, (rows, tokens), tokens, None, model).run


if __name__ == "__main__":
    main()

"""Runs a model on the devices of XLA_FLAGS, in a forked process: run(OUT.npz, SPEC, WAYS).

OUT.npz gets the rows of 300 samples, as `{site}.{sample}` [L, rows, D], all statistics, and the use of devices.
WAYS: a device has just the memory that weights split so many ways need, or null.
"""

import math
from types import SimpleNamespace

import numpy as np


def memory_of_split(spec, ways):
    """The bytes that a device needs for one step, and for its part of weights that are split `ways` ways."""
    import jax

    from build import a_model
    from gleaner_worker.model.program.program import RESERVE, compile_rows
    from gleaner_worker.model.program.tuning import CPU
    from gleaner_worker.model.weights.mesh import layouts

    model = a_model(spec)
    (layout,) = [each for each in layouts(model.params, model.config, None, jax.devices()) if each.model == ways]
    program = compile_rows(model.capture, layout, model.params, model.shape, CPU, None, "a model")
    memory = program.run.memory_analysis()
    need = memory.argument_size_in_bytes + memory.temp_size_in_bytes + memory.output_size_in_bytes
    return math.ceil(need / (1 - RESERVE))


def run(out, raw_spec, ways):
    from build import a_model, a_spec
    from device_rows import stored_of
    from gleaner_worker.model.program.rows import pack

    spec = a_spec(**raw_spec)
    model = a_model(spec, device_bytes=ways and memory_of_split(spec, ways))
    rng = np.random.default_rng(3)
    lengths = rng.integers(1, model.max_length + 1, 300).tolist()
    samples = [
        SimpleNamespace(token_ids=rng.integers(0, 600, n).astype(np.int32), positions=None, pools=None) for n in lengths
    ]
    rows, sums = {}, []
    packed = pack([(n, 1 if raw_spec.get("tokens") == "mean" else n) for n in lengths], model.row_limits)
    steps = [packed[begin : begin + model.rows_per_step] for begin in range(0, len(packed), model.rows_per_step)]
    running = [(step, model.start([[samples[s] for s in row] for row in step])) for step in steps]
    for row, host in (
        (row, host) for step, pending in running for row, host in zip(step, pending.collect(), strict=True)
    ):
        for b, sample in enumerate(row):
            stored, _ = stored_of(model, host, b)
            rows |= {f"{site}.{sample}": stored[site].view(f"u{stored[site].itemsize}") for site in model.sites}
            sums.append(np.concatenate([host.sums([b])[site][:, 0] for site in model.sites]))
    weights = [model.params["embed"], *model.params["blocks"].values()]
    held = sum(shard.data.nbytes for weight in weights for shard in weight.addressable_shards)
    layout = [model.layout.data, model.layout.model, held, len(running)]
    np.savez(out, **rows, layout=layout, sums=np.stack(sums)[..., [0, 1, 3]].sum(axis=0))


def check_golden(names, ways):
    """Asserts that golden models, split over the devices as a worker places them, equal the results of transformers."""
    import jax
    from jax.sharding import Mesh, PartitionSpec

    import golden_models as golden
    from gleaner_worker.model.program.decoder import run_blocks
    from gleaner_worker.model.program.split import Split
    from gleaner_worker.model.program.tuning import CPU
    from gleaner_worker.model.weights.mesh import Layout, parameter_specs
    from gleaner_worker.model.weights.place import place
    from gleaner_worker.model.weights.weights import open_weights
    from host_params import weight_files

    layout = Layout(Mesh(np.array(jax.devices()).reshape(1, ways), ("data", "model")))
    for name in names:
        config, files = golden.config(name), weight_files(golden.folder(name))
        end = golden.capture(config).end
        params = place(open_weights(files, config, config.num_layers, "fp32", name, end), layout, False)
        specs = parameter_specs(params, config, ways)
        assert any("model" in spec for spec in jax.tree.leaves(specs["blocks"])), name
        held = sum(shard.data.nbytes for weight in jax.tree.leaves(params) for shard in weight.addressable_shards)
        assert held < 0.8 * ways * sum(weight.nbytes for weight in jax.tree.leaves(params)), name
        rows = golden.one_sample_a_row(golden.expected(name)["token_ids"][None])
        capture = golden.capture(config)

        def run(params, rows, capture=capture):
            return golden.by_name(run_blocks(params, rows, capture, lambda sites, *_: sites, CPU, Split(ways)))

        split = jax.shard_map(
            run, mesh=layout.mesh, in_specs=(specs, PartitionSpec()), out_specs=PartitionSpec(), check_vma=False
        )
        with jax.default_matmul_precision("highest"):
            found = jax.jit(split)(params, rows)
        for (site, layer), (error, _) in golden.distances(name, found, capture).items():
            assert error <= 1e-5, (name, site, layer, float(error))


def check_generated(names, ways):
    """Asserts that golden models generate the tokens of transformers where `ways` devices share the weights."""
    import jax
    from jax.sharding import Mesh, NamedSharding

    import golden_models as golden
    from gleaner_worker.model.weights.mesh import Layout, parameter_specs

    layout = Layout(Mesh(np.array(jax.devices()).reshape(-1, ways), ("data", "model")))
    for name in names:
        config, params = golden.config(name), golden.params(name)
        specs = parameter_specs(params, config, ways)
        placed = jax.tree.map(
            lambda array, spec: jax.device_put(array, NamedSharding(layout.mesh, spec)), params, specs
        )
        found = golden.generate(name, layout, params, placed)
        assert found == golden.facts(name)["answers"], name

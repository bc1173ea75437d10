"""Reductions on the devices of XLA_FLAGS, in a forked process."""

from functools import partial

import numpy as np

D, FEATURES, LAYERS, VECTORS = 24, 300, (0, 2), 9
FORMS = {  # an encoder, and k
    "ties": ({}, 64),
    "cut": ({"vectors": ("b", "g", "u"), "norm": "layer_norm", "most": 16}, 16),
    "whole": ({"vectors": ("b", "theta"), "norm": "constant_norm_rescale"}, 200),
}


def check_split():
    """Asserts that 1, 2, 4 and 8 devices give the same bits, in the layers of a scan with and without a reduction."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import Mesh, PartitionSpec

    from gleaner_worker.architecture.reductions import Encoder, Reduction, places_of_ids
    from gleaner_worker.model.program.reduce import reduced
    from gleaner_worker.model.program.split import Split
    from gleaner_worker.model.program.tuning import CPU

    rng = np.random.default_rng(0)

    def coarse(*shape):
        return (np.round(rng.normal(size=shape) * 4) / 4).astype(np.float32)

    reductions, params = [], {}
    for form, (own, k) in FORMS.items():
        encoder = Encoder(FEATURES, "an architecture", **own)
        reductions.append(Reduction(form, "resid_post", LAYERS, D, k, "fp32", encoder))
        shape = (len(LAYERS), encoder.padded)
        params[form] = {"encode": coarse(*shape, D), **{name: coarse(*shape) for name in encoder.vectors}}
        for name, array in params[form].items():
            array[:, FEATURES:] = -1 if name in "bg" else 0
        if "norm" in own:
            params[form]["encode"] = params[form]["encode"].astype(jnp.bfloat16)
    # Each CPU adds in an order of its own, so the sums must be exact: signs are one number in bf16, also after a norm.
    x = rng.permuted(np.resize(np.float32([-1, 1]), (2, VECTORS, D)), axis=2)

    def compute(ways):
        mesh = Mesh(np.array(jax.devices()[:ways]).reshape(1, ways), ("data", "model"))
        places = places_of_ids(reductions[0].encoder.padded, ways)

        def run(params, x):
            pairs = [(reductions[0], 1), *((each, 2) for each in reductions)]
            of = partial(reduced, params={"reductions": params}, kept=(0, 1, 2), tuning=CPU, split=Split(ways))
            return [of(x, each, layer=jnp.int32(layer)) for each, layer in pairs]

        specs = PartitionSpec(None, "model"), PartitionSpec()
        split = jax.shard_map(run, mesh=mesh, in_specs=specs, out_specs=specs[1], check_vma=False)
        return jax.jit(split)(jax.tree.map(lambda stack: stack[:, places], params), x)

    one = compute(1)
    for ways in (2, 4, 8):
        for wanted, here in zip(jax.tree.leaves(one), jax.tree.leaves(compute(ways)), strict=True):
            assert np.asarray(wanted).tobytes() == np.asarray(here).tobytes(), ways
    assert not any(np.asarray(part).any() for part in one[0].values())  # of a layer without it
    for each, found in zip(reductions, one[1:], strict=True):
        assert (np.asarray(found[each.name]) > 0).any() and np.asarray(found[f"{each.name}_ids"]).max() < FEATURES
        assert (np.asarray(found[f"{each.name}_active"]).max() > 16) == (each.name != "cut")

"""Models and specs of an extraction: loaded layer by layer, or refused."""

import weakref

import pytest

from build import a_model, a_spec, a_stream, a_work, text_lines
from gleaner_worker.failures import Failure
from gleaner_worker.model.weights import Weights

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "change",
    [{"sites": ["logits"]}, {"tokens": "first"}, {"dtype": "int4"}, {"format": "zarr"}, {"over_long": "cut"}],
)
def test_an_unsupported_spec_is_refused(storage, change):
    with pytest.raises(Failure, match=next(iter(change))) as failure:
        a_work(a_stream(storage, text_lines(3)), **change)
    assert failure.value.kind == "model"


def test_the_host_holds_at_most_two_layers_of_weights(monkeypatch, tiny_folder):
    read, held, most = Weights.layer, [], []

    def layer(weights, number):
        made = read(weights, number)
        held.append([weakref.ref(array) for array in made.values()])
        most.append(sum(any(array() is not None for array in arrays) for arrays in held))
        return made

    monkeypatch.setattr(Weights, "layer", layer)
    model = a_model(a_spec(model=tiny_folder))
    assert len(most) == model.config.num_layers > 2
    assert max(most) <= 2


def test_damaged_weights_are_refused_before_the_compilation(model_folder):
    path = model_folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    phases = []
    with pytest.raises(Failure, match="Failed to read model.safetensors"):
        a_model(a_spec(model=str(model_folder)), phase=phases.append)
    assert phases == []

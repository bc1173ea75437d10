"""The reader's output for torch, SAELens and dictionary_learning, read by the code of these libraries."""

import os
import sys
import warnings

import numpy as np
import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
for name in ("worker/support", "reader"):
    sys.path.insert(0, os.path.join(os.path.dirname(HERE), name))
import environment  # noqa: F401  where the packages are
import gleaner_reader
from gleaner_reader import export
from gleaner_reader.export import to_saelens
from stored_run import store_run

torch = pytest.importorskip("torch")

KINDS = [
    ("safetensors", "bf16", {}),
    ("safetensors", "int8", {"tokens": slice(1, 9)}),
    ("safetensors.zst", "fp16", {}),
    ("safetensors", "fp32", {"tokens": "mean"}),
    ("pkl.gz", "fp32", {}),
]


@pytest.fixture(params=KINDS, ids=lambda kind: f"{kind[0]}-{kind[1]}-{kind[2].get('tokens', 'all')}")
def stored(request, tmp_path):
    file_format, dtype, options = request.param
    made = store_run(tmp_path / "run", file_format, dtype, **options)
    made.file_format, made.dtype, made.has_tokens = (
        file_format,
        dtype,
        file_format != "pkl.gz" and options != KINDS[3][2],
    )
    return made


def test_layers_are_read_as_tensors_of_torch(stored):
    run = gleaner_reader.open(stored.folder)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        array = next(iter(run.layer(2, as_="torch")))
    assert array.dtype == {"bf16": torch.bfloat16, "fp16": torch.float16}.get(stored.dtype, torch.float32)
    assert torch.equal(array.to(torch.float32), torch.from_numpy(stored.layers["resid_post.2"][0]))
    batch = next(run.batches(2, batch_rows=16, as_="torch", dtype="bfloat16"))
    assert (batch.dtype, tuple(batch.shape)) == (torch.bfloat16, (16, 16))


def test_safetensors_loads_a_shard_for_torch(tmp_path):
    import safetensors.torch

    stored = store_run(tmp_path)
    found = safetensors.torch.load_file(tmp_path / "tpu_7/shard_0001.safetensors")
    assert found["resid_post.2"].dtype == torch.bfloat16
    assert torch.equal(found["resid_post.2"].float(), torch.from_numpy(stored.layers["resid_post.2"][3]))


def a_store(exported, **changes):
    """SAELens' own store on the exported folder."""
    activations_store = pytest.importorskip("sae_lens.training.activations_store")
    options = {
        "model": None,
        "dataset": None,
        "streaming": False,
        "hook_name": exported.hook_name,
        "hook_head_index": None,
        "context_size": exported.context_size,
        "d_in": exported.d_in,
        "n_batches_in_buffer": 2,
        "total_training_tokens": 1000,
        "store_batch_size_prompts": 4,
        "train_batch_size_tokens": 64,
        "prepend_bos": False,
        "normalize_activations": "none",
        "device": torch.device("cpu"),
        "dtype": "float32",
        "cached_activations_path": exported.path,
        "model_kwargs": None,
        "autocast_lm": False,
        "dataset_trust_remote_code": None,
        "seqpos_slice": (None,),
        "exclude_special_tokens": None,
    }
    return activations_store.ActivationsStore(**(options | changes))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_saelens_reads_the_stored_values(stored, tmp_path, dtype):
    pytest.importorskip("datasets")
    run = gleaner_reader.open(stored.folder)
    exported = to_saelens(run, str(tmp_path / "out"), layer=2, context_size=16, dtype=dtype)
    rows = stored.rows("resid_post.2")
    assert (exported.hook_name, exported.context_size, exported.d_in) == ("blocks.2.hook_resid_post", 16, 16)
    assert exported.rows + exported.rows_left_out == len(rows) and exported.rows_left_out < 16
    store = a_store(exported, store_batch_size_prompts=1)
    expected = rows if dtype == "float32" else rows.astype(np.float16).astype(np.float32)
    for context in range(exported.contexts):
        values, tokens = store.get_raw_llm_batch()
        assert np.array_equal(values.numpy(), expected[context * 16 : context * 16 + 16])
        if stored.has_tokens:
            ids = [
                int(sample["token_ids"][position])
                for sample in stored.samples.values()
                for position in sample["positions"]
            ]
            assert tokens.tolist() == ids[context * 16 : context * 16 + 16]
        else:
            assert tokens is None


def test_saelens_shuffles_contexts_into_batches_for_training(tmp_path):
    stored = store_run(tmp_path / "run")
    exported = to_saelens(gleaner_reader.open(stored.folder), str(tmp_path / "out"), layer=0, context_size=8)
    batch = a_store(exported, n_batches_in_buffer=16).next_batch()
    known = {row.tobytes() for row in stored.rows("resid_post.0")}
    assert len(batch) == 64
    assert all(row.tobytes() in known for row in batch.reshape(64, 16).numpy())


def test_files_of_a_dataset_stay_small_and_are_read_as_one_dataset(tmp_path, monkeypatch):
    from gleaner_reader.export import saelens

    monkeypatch.setattr(saelens, "_FILE_BYTES", 20_000)
    stored = store_run(tmp_path / "run")
    exported = to_saelens(gleaner_reader.open(stored.folder), str(tmp_path / "out"), layer=0, context_size=16)
    files = sorted(name for name in os.listdir(tmp_path / "out") if name.endswith(".arrow"))
    assert len(files) > 3
    store = a_store(exported, store_batch_size_prompts=exported.contexts)
    assert np.array_equal(store.get_raw_llm_batch()[0].numpy(), stored.rows("resid_post.0")[: exported.rows])


def test_an_export_into_a_folder_that_exists_is_refused(tmp_path):
    pytest.importorskip("datasets")
    run = gleaner_reader.open(store_run(tmp_path / "run").folder)
    (tmp_path / "out").mkdir()
    with pytest.raises(FileExistsError, match="it exists; choose another folder"):
        to_saelens(run, str(tmp_path / "out"), layer=0)


@pytest.mark.parametrize("tokens", ["all", "mean"])
def test_an_interrupted_export_goes_on_and_equals_an_uninterrupted_export(tmp_path, monkeypatch, tokens):
    datasets = pytest.importorskip("datasets")
    from gleaner_reader.export import saelens

    monkeypatch.setattr(saelens, "_FILE_BYTES", 2_000 if tokens == "mean" else 20_000)
    run = gleaner_reader.open(store_run(tmp_path / "run", tokens=tokens).folder)
    to_saelens(run, str(tmp_path / "whole"), layer=0, context_size=16)

    def interrupt(done, total):
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        to_saelens(run, str(tmp_path / "out"), layer=0, context_size=16, progress=interrupt)
    begun, seen = len(list((tmp_path / "out.unfinished").glob("part-*"))), []
    exported = to_saelens(
        run, str(tmp_path / "out"), layer=0, context_size=16, progress=lambda done, total: seen.append(done)
    )
    assert begun > 1 and seen[0] > run.num_rows // 3
    assert exported.rows + exported.rows_left_out == run.num_rows
    first, second = (datasets.load_from_disk(str(tmp_path / name)).with_format("numpy") for name in ("out", "whole"))
    assert first.column_names == second.column_names and ("token_ids" in first.column_names) == (tokens == "all")
    for name in first.column_names:
        assert np.array_equal(np.asarray(first[name]), np.asarray(second[name]))


@pytest.mark.parametrize("dtype", ["bf16", "int8"])
def test_speculators_loads_every_sample_with_its_layers(tmp_path, monkeypatch, dtype):
    from speculators.train.data import ArrowDataset

    from gleaner_reader.export import speculators

    monkeypatch.setattr(speculators, "_KEPT_BYTES", 4000)
    run = gleaner_reader.open(
        store_run(tmp_path / "run", dtype=dtype, layers=(1, 3, 4, 7), masked=dtype == "bf16").folder
    )
    write, out = export.to_speculators, str(tmp_path / "out")

    def interrupt(done, total):
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(run, out, progress=interrupt)
    seen = []
    exported = write(run, out, progress=lambda done, total: seen.append(done))
    assert seen[0] > run.num_rows // 3 and seen[-1] == run.num_rows == exported.tokens
    assert (exported.target_layer_ids, exported.last_layer_id) == ([2, 4, 5], 8)
    found = ArrowDataset(max_len=64, datapath=out, on_missing="raise")
    samples = [(stream, int(index)) for stream in run.streams for index in indices_of(run, stream)]
    assert len(found) == len(samples) == exported.samples
    for place, (stream, index) in enumerate(samples):
        item, sample = found[place], run.sample(stream, index, as_="torch")
        layers = [sample.activations[f"resid_post.{layer}"] for layer in (1, 3, 4, 7)]
        assert torch.equal(item["hidden_states"], torch.cat(layers[:3], dim=1))
        assert torch.equal(item["verifier_last_hidden_states"], layers[3])
        assert item["input_ids"].tolist() == sample.token_ids.tolist()
        assert item["loss_mask"].tolist() == [1 if sample.mask is None else n % 2 for n in range(len(sample.token_ids))]
    write(run, str(tmp_path / "two"), [4, 8])
    assert torch.equal(
        ArrowDataset(64, str(tmp_path / "two"), on_missing="raise")[0]["hidden_states"], layers_of(run)[3]
    )


def test_speculators_trains_on_the_samples_with_their_mask(tmp_path):
    from speculators.losses.utils import resolve_loss_config
    from speculators.models.eagle3.core import Eagle3DraftModel
    from speculators.models.eagle3.data import shift_batch
    from speculators.train.dataloader import create_train_val_loaders
    from transformers import LlamaConfig, LlamaForCausalLM

    run = gleaner_reader.open(store_run(tmp_path / "run", layers=(1, 3, 4, 7), masked=True).folder)
    exported = export.to_speculators(run, str(tmp_path / "out"))
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "vocab_size": 1000}
    verifier = str(tmp_path / "verifier")
    LlamaForCausalLM(LlamaConfig(**shape, num_hidden_layers=8)).save_pretrained(verifier)
    draft = Eagle3DraftModel.from_training_args(
        LlamaConfig(**shape, num_hidden_layers=1),
        draft_vocab_size=1000,
        norm_before_residual=True,
        ttt_steps=2,
        verifier_name_or_path=verifier,
        draft_attn_impl="eager",
    )
    # EAGLE-3's own layers of a model of 8 layers.
    assert draft.target_layer_ids == exported.target_layer_ids
    loaders = create_train_val_loaders(
        data_path=exported.path,
        total_seq_len=64,
        hidden_states_dtype=torch.float32,
        vllm_endpoint="none",
        on_missing="raise",
        verifier_name_or_path=verifier,
        request_timeout=None,
        max_retries=0,
        generation_validation_retries=0,
        max_consecutive_generation_failures=1,
        hidden_size=16,
        num_target_layers=3,
        num_workers=0,
        prefetch_factor=1,
        preprocess=shift_batch,
    )
    in_loss, losses, loss = 0, [], resolve_loss_config("kl_div", "eager")
    for batch in (batch for loader in loaders for batch in loader):
        assert batch.pop("error_records") == 0
        in_loss += int(batch["loss_mask"].sum())
        losses.append(draft(**batch, ttt_steps=2, loss_config=loss)[1])
    torch.stack(losses).sum().backward()
    assert torch.isfinite(torch.stack(losses)).all() and draft.fc.weight.grad.abs().sum() > 0
    masks = [run.sample(stream, int(index)).mask for stream in run.streams for index in indices_of(run, stream)]
    assert in_loss == sum(int(mask[1:].sum()) for mask in masks)


def test_datasets_loads_pairs_of_any_text_with_their_vectors(tmp_path):
    from datasets import load_dataset
    from safetensors.torch import load_file
    from tokenizers import Tokenizer, models

    words = {f'w{number} "\u2028\n\U0001f600': number for number in range(1000)}
    tokenizer = Tokenizer(models.WordLevel(words, next(iter(words))))
    run = gleaner_reader.open(store_run(tmp_path / "run").folder)
    export.to_pairs(run, str(tmp_path / "out"), 2, tokenizer=tokenizer, window=1)
    files, cache = str(tmp_path / "out" / "part-*.jsonl"), str(tmp_path / "cache")
    lines = load_dataset("json", data_files=files, split="train", cache_dir=cache)
    parts = {path.name: load_file(path)["activations"] for path in (tmp_path / "out").glob("part-*.safetensors")}
    vectors = [parts[line["vector"]["file"]][line["vector"]["row"]] for line in lines]
    assert torch.equal(torch.stack(vectors), torch.from_numpy(run.layer(2, dtype="float32")[:]))
    assert [words[line["text"]] for line in lines] == [line["token_id"] for line in lines]


def indices_of(run, stream):
    return [index for shard in run.streams[stream] for index in run.index(shard).sample_idx]


def layers_of(run):
    stream = next(iter(run.streams))
    activations = run.sample(stream, int(indices_of(run, stream)[0]), as_="torch").activations
    return {layer: activations[f"resid_post.{layer}"] for layer in run.layers}


@pytest.mark.parametrize(
    ("tokens", "layers", "words"),
    [
        ("mean", None, "needs a row for each token"),
        (slice(1, 9), None, "needs a row for each token"),
        ("all", [2, 8], "layer 2 of speculators is resid_post 1 or resid_pre 2, and .* are 1, 3"),
        ("all", [3], "needs a target layer and the last layer"),
    ],
)
def test_a_run_that_speculators_cannot_use_is_refused(tmp_path, tokens, layers, words):
    pytest.importorskip("datasets")
    run = gleaner_reader.open(store_run(tmp_path / "run", tokens=tokens).folder)
    with pytest.raises(ValueError, match=words):
        export.to_speculators(run, str(tmp_path / "out"), layers)
    assert not (tmp_path / "out.unfinished").exists()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_folder_for_dictionary_learning_gives_tensors_of_each_row(tmp_path, dtype):
    stored = store_run(tmp_path / "run")
    export.to_shuffled_safetensors(gleaner_reader.open(stored.folder), str(tmp_path / "out"), 0, dtype=dtype)
    buffer = export.open_dictionary_learning(str(tmp_path / "out"), out_batch_size=1, epochs=2)
    rows = torch.cat(list(buffer))
    expected = sorted(row.tobytes() for row in stored.rows("resid_post.0"))
    assert rows.dtype == torch.float32 and buffer.config["d_submodule"] == 16
    for epoch in rows.split(len(expected)):
        assert sorted(row.tobytes() for row in epoch.numpy()) == expected


def test_dictionary_learning_trains_on_batches(stored, tmp_path):
    from dictionary_learning import AutoEncoder, training
    from dictionary_learning.trainers import standard

    run = gleaner_reader.open(stored.folder)
    batches = run.batches(0, batch_rows=32, seed=3, as_="torch", dtype="float32", epochs=None)
    config = {
        "trainer": standard.StandardTrainer,
        "dict_class": AutoEncoder,
        "activation_dim": run.d_model,
        "dict_size": 32,
        "layer": 0,
        "lm_name": "tiny",
        "steps": 60,
        "warmup_steps": 1,
        "sparsity_warmup_steps": 1,
        "device": "cpu",
    }
    torch.manual_seed(0)
    data = (batch.to("cpu") for batch in batches)
    training.trainSAE(data, [config], steps=60, save_dir=str(tmp_path / "sae"), device="cpu")
    made = AutoEncoder.from_pretrained(str(tmp_path / "sae/trainer_0/ae.pt"), device="cpu")
    rows = torch.from_numpy(stored.rows("resid_post.0"))
    assert torch.isfinite(made(rows)).all()

"""The files that a model is made of, and their hashes."""

import hashlib
import json

import pytest

from build import BUCKET, bucket, fails
from gleaner_worker.failures import Failure
from gleaner_worker.model.files.identity import choose_files
from gleaner_worker.model.files.model_source import find_model
from gleaner_worker.model_files import INDEX
from model_folders import GS, SPLIT, split_weights, upload


def test_the_digests_of_a_folder_are_the_sha256_of_its_files(model_folder):
    (model_folder / "chat_template.jinja").write_text("{{ messages }}")
    (model_folder / "README.md").write_text("#")
    here = find_model(str(model_folder), "", None)
    assert here.tokenizer_sha256 == hashlib.sha256((model_folder / "tokenizer.json").read_bytes()).hexdigest()
    weights = hashlib.sha256((model_folder / "model.safetensors").read_bytes()).hexdigest()
    assert here.weights_sha256 == hashlib.sha256(f"model.safetensors {weights}\n".encode()).hexdigest()
    lines = "".join(f"{name} {sha256}\n" for name, sha256 in sorted(here.files.items()))
    assert here.fingerprint == hashlib.sha256(lines.encode()).hexdigest()[:16]
    assert "README.md" not in here.files


def test_weights_in_a_bucket_have_the_digest_of_its_listing_and_equal_bytes_have_equal_digests(
    storage, tmp_path, model_folder
):
    upload(storage, model_folder)
    there = find_model(GS, str(tmp_path), bucket())
    stored = storage.objects[BUCKET, "models/tiny/model.safetensors"]["resource"]
    assert there.files.pop("model.safetensors") == f"crc32c:{stored['crc32c']}:{stored['size']}"
    assert there.files.items() <= find_model(str(model_folder), "", None).files.items()
    upload(storage, model_folder, "models/copy/")
    assert storage.objects[BUCKET, "models/copy/model.safetensors"]["resource"]["generation"] != stored["generation"]
    copy, again = (find_model(where, str(tmp_path), bucket()) for where in (f"gs://{BUCKET}/models/copy", GS))
    assert copy.fingerprint == again.fingerprint
    storage.put(BUCKET, "models/copy/model.safetensors", bytes(int(stored["size"])))
    assert find_model(f"gs://{BUCKET}/models/copy", str(tmp_path), bucket()).fingerprint != again.fingerprint


@pytest.mark.parametrize(
    "name",
    ["config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json"]
    + ["added_tokens.json", "additional_chat_templates/rag.jinja"],
)
def test_every_file_that_affects_activations_is_in_the_fingerprint(model_folder, name):
    (model_folder / "chat_template.jinja").write_text("{{ messages }}")
    (model_folder / "special_tokens_map.json").write_text("{}")
    (model_folder / "added_tokens.json").write_text("{}")
    write_below(model_folder, "additional_chat_templates/rag.jinja", "{{ messages }}")
    before = find_model(str(model_folder), "", None)
    (model_folder / name).write_bytes((model_folder / name).read_bytes() + b" ")
    after = find_model(str(model_folder), "", None)
    assert after.fingerprint != before.fingerprint
    assert after.weights_sha256 == before.weights_sha256
    assert {key for key in after.files if after.files[key] != before.files[key]} == {name}


def test_the_index_decides_which_files_are_the_weights(model_folder):
    before = find_model(str(model_folder), "", None)
    split_weights(model_folder)
    (model_folder / "consolidated.safetensors").write_bytes(b"the same weights again")
    after = find_model(str(model_folder), "", None)
    assert [name for name in after.files if name.startswith("model")] == [*SPLIT, INDEX]
    assert after.weights_sha256 != before.weights_sha256
    (model_folder / "model.safetensors").write_bytes(b"left from before")
    for weights in (True, False):
        with pytest.raises(
            Failure, match=rf"has model.safetensors and {INDEX} with {SPLIT[0]}, which are two sources of its weights"
        ):
            find_model(str(model_folder), "", None, weights=weights)


@pytest.mark.parametrize("listed", ["model.safetensors", "model-00001-of-00002.safetensors"])
def test_an_index_without_files_beside_the_one_file_changes_nothing(model_folder, listed):
    before = find_model(str(model_folder), "", None)
    (model_folder / INDEX).write_text(json.dumps({"weight_map": {"a": listed}}))
    (model_folder / "consolidated.safetensors").write_bytes(b"never read")
    assert find_model(str(model_folder), "", None) == before


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("adapter_config.json", "it has adapter_config.json, which is not supported: .*merge the adapter"),
        ("tokenizer.4.0.0.json", "it has tokenizer.4.0.0.json, .*keep the one that you want as tokenizer.json"),
        ("additional_chat_templates/tool use.jinja", "tool use.jinja, .*rename it"),
        ("additional_chat_templates/default.jinja", "has chat_template.jinja and .*both are the default chat template"),
    ],
)
def test_a_file_that_transformers_would_follow_and_gleaner_does_not_is_refused(model_folder, name, reason):
    (model_folder / "chat_template.jinja").write_text("{{ messages }}")
    write_below(model_folder, name, "{}")
    with pytest.raises(Failure, match=reason):
        find_model(str(model_folder), "", None, weights=False)


def test_chat_templates_with_a_name_come_with_the_model_from_a_folder_and_from_a_bucket(
    storage, tmp_path, model_folder
):
    name = "additional_chat_templates/tool_use.jinja"
    write_below(model_folder, name, "{{ tools }}")
    here = find_model(str(model_folder), "", None)
    assert here.files[name] == hashlib.sha256(b"{{ tools }}").hexdigest()
    upload(storage, model_folder)
    there = find_model(GS, str(tmp_path), bucket())
    assert there.files[name] == here.files[name]
    with open(f"{there.folder}/{name}", encoding="utf-8") as file:
        assert file.read() == "{{ tools }}"


def write_below(folder, name, text):
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(text)


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["tokenizer.json", "model.safetensors"], "it has no config.json$"),
        (
            ["config.json", "model.safetensors"],
            "it has no tokenizer.json: put the tokenizer's own tokenizer.json beside",
        ),
        (
            ["config.json", "tokenizer.model", "model.safetensors"],
            r"no tokenizer.json, only tokenizer.model: make it once "
            r"with transformers, AutoTokenizer.from_pretrained\('m'\).save_pretrained\(FOLDER\), and put ",
        ),
        (["config.json", "vocab.json", "merges.txt", "model.safetensors"], "only vocab.json: make it once"),
        (
            ["config.json", "tokenizer.json"],
            "no model.safetensors.index.json; put the safetensors files beside config.json$",
        ),
        (["config.json", "tokenizer.json", "consolidated.safetensors"], "that lists consolidated.safetensors"),
        (
            ["config.json", "tokenizer.json", "pytorch_model.bin"],
            r"pickled weights only \(pytorch_model.bin\), which are "
            r"never read, .* AutoModelForCausalLM.from_pretrained\('m'\).save_pretrained\(FOLDER\)",
        ),
        (["config.json", "tokenizer.json", "pytorch_model.bin.index.json"], "pickled weights only"),
        (["README.md"], "it has no config.json; it has no tokenizer.json.*; it has no model.safetensors"),
    ],
)
def test_all_missing_files_of_a_model_are_reported_at_once(tmp_path, names, reason):
    with fails("model", f"Failed to use the model m: .*{reason}"):
        choose_files(names, str(tmp_path), "m", weights=True)


def test_a_choice_of_files_without_weights_requires_no_weights(tmp_path):
    assert choose_files(["config.json", "tokenizer.json"], str(tmp_path), "m", weights=False) == [
        "config.json",
        "tokenizer.json",
    ]


@pytest.mark.parametrize("weights", [True, False])
def test_pickled_weights_alone_are_refused(tmp_path, weights):
    names = ["config.json", "tokenizer.json", "pytorch_model.bin"]
    with pytest.raises(Failure, match="pickled weights only"):
        choose_files(names, str(tmp_path), "m", weights)
    assert choose_files([*names, "model.safetensors"], str(tmp_path), "m", weights)


def test_a_pickle_beside_the_small_files_is_no_model(tmp_path):
    names = ["config.json", "tokenizer.json", "training_args.bin", "rng_state.pth"]
    assert choose_files(names, str(tmp_path), "m", weights=False) == ["config.json", "tokenizer.json"]


def test_a_model_whose_program_alone_is_asked_for_needs_its_config_alone(tmp_path):
    assert choose_files(["config.json"], str(tmp_path), "m", weights=False, tokenizer=False) == ["config.json"]


@pytest.mark.parametrize(
    ("index", "reason"),
    [
        ("{", "Expecting property name"),
        ("[]", "it is not a JSON object"),
        ("{}", "it has no weight_map"),
        ('{"weight_map": []}', "no attribute 'values'"),
        ('{"weight_map": {}}', "it names no file"),
        ('{"weight_map": {"a": 1}}', "1 is not the name of a safetensors file"),
        ('{"weight_map": {"a": "../x.safetensors"}}', "'../x.safetensors' is not the name"),
        ('{"weight_map": {"a": "/etc/x.safetensors"}}', "is not the name"),
        ('{"weight_map": {"a": "pytorch_model.bin"}}', "'pytorch_model.bin' is not the name"),
        ('{"weight_map": {"a": "x.safetensors\\n"}}', "is not the name"),
        ('{"weight_map": {"a": {"b": 1}}}', "unhashable"),
        ("[" * 100_000, "recursion|Expecting|too many"),
        (b"\xff", "can't decode byte"),
    ],
)
def test_a_malformed_index_is_reported(model_folder, index, reason):
    (model_folder / "model.safetensors").unlink()
    (model_folder / INDEX).write_bytes(index if isinstance(index, bytes) else index.encode())
    with fails("model", f"Failed to read {INDEX} of .*a model: .*({reason})"):
        find_model(str(model_folder), "", None)


def test_a_missing_file_of_the_index_is_reported(model_folder):
    split_weights(model_folder)
    (model_folder / SPLIT[1]).unlink()
    with pytest.raises(Failure, match=f"it has no {SPLIT[1]}, which {INDEX} names"):
        find_model(str(model_folder), "", None)

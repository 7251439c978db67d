"""Files that nobody vouches for: every one is read, or refused with the rule, the reason and the way out."""

import json
import os
import re
from itertools import count
from pathlib import Path

import pytest

from shardplan.base.errors import InputError
from shardplan.inputs.readers.catalog import load_model
from shardplan.inputs.readers.hf import file as reader
from shardplan.inputs.readers.hf.config import read_model_file
from shardplan.inputs.readers.names import MODELS

ROOT = Path(__file__).parents[4]
CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "vocab_size": 100,
    "max_position_embeddings": 32,
}


def refusal(path: str | os.PathLike[str]) -> InputError:
    """The error of reading ``path``, which names a rule and a way out."""
    with pytest.raises(InputError) as caught:
        read_model_file(path)
    assert caught.value.rule
    assert caught.value.hint
    assert "\n" not in caught.value.message
    return caught.value


def test_the_example_of_the_documentation() -> None:
    # Qwen2.5-32B: the hub counts 32.8 B
    assert load_model(ROOT / "examples" / "config.json").num_parameters == 32_763_876_352


def test_the_file_that_the_documentation_writes_out(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "inputs" / "models.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```json\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    (tmp_path / "own.json").write_text(block)
    model = load_model(tmp_path / "own.json")
    assert (model.name, model.num_hidden_layers, model.notes) == ("own", 40, ())


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("my-model.json", "my-model"),
        ("my-model/config.json", "my-model"),
        ("models--org--My-Model/snapshots/0123abc/config.json", "My-Model"),
        ("snapshots/0123abc/config.json", "0123abc"),
        ("tab\there.json", "tab?here"),
    ],
)
def test_a_model_is_named_after_its_file_or_folder(tmp_path: Path, place: str, name: str) -> None:
    file = tmp_path / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(CONFIG))
    assert read_model_file(file).name == name
    assert read_model_file(file.parent if file.name == "config.json" else file).name == name


def test_the_links_of_a_download_cache_are_not_followed_for_the_name(tmp_path: Path) -> None:
    blob = tmp_path / "models--org--tiny" / "blobs" / "0f3a"
    snapshot = tmp_path / "models--org--tiny" / "snapshots" / "9d1c"
    for folder in (blob.parent, snapshot):
        folder.mkdir(parents=True)
    blob.write_text(json.dumps(CONFIG))
    (snapshot / "config.json").symlink_to(blob)
    assert load_model(snapshot).name == "tiny"


def test_places_without_a_configuration(tmp_path: Path) -> None:
    for place, why in ((tmp_path / "no.json", "does not exist"), (tmp_path, "it is a directory")):
        assert why in refusal(place).message
    (tmp_path / "config.json").mkdir()
    assert "directory" in refusal(tmp_path / "config.json").message
    (tmp_path / "circle.json").symlink_to(tmp_path / "circle.json")
    refusal(tmp_path / "circle.json")


OTHERS = json.dumps(CONFIG)[:-1]
NOT_JSON = ("{", '{"a": 1,}', "{'a': 1}", '{"a": 1} {"b": 2}', "hidden_size: 64", '{"a": tru}', '"', "<html></html>")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        *((text.encode(), "it is empty") for text in ("", " \n\t", "\ufeff")),
        *((data, "not text in UTF-8") for data in (b"\x00\xff\xfe\x80", bytes(range(256)), OTHERS.encode("utf-16"))),
        *((text.encode(), "is not JSON: .* line 1, column") for text in NOT_JSON),
        *(
            (text.encode(), "a model configuration is an object with fields")
            for text in ("[]", "[1, 2]", "3", "null", "true", '"llama"', "NaN", "Infinity")
        ),
        *((f'{OTHERS}, "x": {opening * 100_000}'.encode(), "nested deeper") for opening in ("[", '{"a":')),
        *((f'{OTHERS}, "{field}2": {"9" * 10_000}}}'.encode(), "digits") for field in ("hidden_size", "rope_theta")),
        *(
            (
                f'{OTHERS}, "hidden_size": {value}}}'.encode(),
                "repeats the field 'hidden_size'.*every field is given once",
            )
            for value in (64, 65)
        ),
        (bytes(reader.CONFIG.most_bytes + 1), "bytes"),
        (b'{"weight_map": {}}', "an index of weights"),
        (b'{"peft_type": "LORA"}', "an adapter"),
        (b'{"max_new_tokens": 20}', "a generation configuration"),
        (b'{"quantization": {"quant_algo": "FP8"}}', "hf_quant_config.json"),
        (b'{"plans": []}', "a plan file"),
    ],
    ids=count(),
)
def test_contents_that_are_no_configuration(tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "c.json").write_bytes(content)
    error = refusal(tmp_path / "c.json")
    assert re.search(why, f"{error.message} {error.rule}")


@pytest.mark.parametrize("key", ["hidden_size", "n_embd", "architectures", "layer_types", "rope_scaling"])
def test_nested_as_deep_as_can_be_read(tmp_path: Path, key: str) -> None:
    others = json.dumps({name: value for name, value in CONFIG.items() if name not in ("hidden_size", key)})
    for depth in (50, 500, 800, 900, 950, 980):  # some of them lie just below the limit of the interpreter
        nested = "[" * depth + "]" * depth
        (tmp_path / "c.json").write_text(f'{others[:-1]}, "{key}": {nested}, "d_model": {nested}}}')
        refusal(tmp_path / "c.json")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are of POSIX")
def test_pipes_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "c.json")
    assert "not a regular file" in refusal(tmp_path / "c.json").message


@pytest.mark.parametrize("path", ["a\0b.json", "x" * 5000 + ".json", "", " "])
def test_impossible_paths(path: str) -> None:
    refusal(path)
    with pytest.raises(InputError):
        load_model(path)


def test_infinity_is_read_where_nemotron_h_writes_it(tmp_path: Path) -> None:
    text = (MODELS / "nemotron-h-56b.json").read_text().rstrip().removesuffix("}")
    (tmp_path / "c.json").write_text(text + ', "time_step_limit": [0.0, Infinity]}')
    assert read_model_file(tmp_path / "c.json").num_parameters == load_model("nemotron-h-56b").num_parameters


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text("\ufeff" + json.dumps(CONFIG), encoding="utf-8")
    assert read_model_file(tmp_path / "c.json").hidden_size == 64


def test_quantised_repositories_carry_another_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "hf_quant_config.json").write_text('{"quantization": {"quant_algo": "NVFP4"}}')
    assert any("hf_quant_config.json" in note for note in load_model(tmp_path).notes)

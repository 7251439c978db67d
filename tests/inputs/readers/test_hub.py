"""Models of the local hub cache, of folders without a slash, and of configurations in memory."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.calibrate.rows import asked

from shardplan.ask.names import model_of
from shardplan.base.errors import InputError
from shardplan.base.files import DATA
from shardplan.inputs.readers.catalog import load_model

CONFIG = DATA / "models" / "llama-3.2-1b.json"
OLD, NEW = "0123456789abcdef" * 2, "fedcba9876543210" * 2


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache where ``HF_HOME`` says."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "hf" / "hub"


def _fetched(cache: Path, repository: str, *revisions: str, main: str = "", layers: int = 16) -> None:
    """What ``hf download`` leaves behind; the first revision has fewer layers than the next."""
    folder = cache / f"models--{repository.replace('/', '--')}"
    for place, revision in enumerate(revisions):
        (folder / "snapshots" / revision).mkdir(parents=True)
        config = json.loads(CONFIG.read_text()) | {"num_hidden_layers": layers + place}
        (folder / "snapshots" / revision / "config.json").write_text(json.dumps(config))
        os.utime(folder / "snapshots" / revision, (place, place))
    if main:
        (folder / "refs").mkdir()
        (folder / "refs" / "main").write_text(main)


@pytest.mark.parametrize("name", ["acme/Tiny-1B", "ACME/tiny-1b"])
def test_a_repository_of_the_cache(cache: Path, name: str) -> None:
    _fetched(cache, "acme/Tiny-1B", NEW, main=NEW)
    model = load_model(name)
    assert (model.name, model.num_hidden_layers) == ("Tiny-1B", 16)
    assert model.notes[0] == f"acme/Tiny-1B is read from the hub cache, revision {NEW[:12]}"


def test_main_is_read_of_several_revisions_and_that_is_said(cache: Path) -> None:
    _fetched(cache, "acme/tiny", OLD, NEW, main=OLD)
    model = load_model("acme/tiny")
    assert model.num_hidden_layers == 16
    assert f"revision {OLD[:12]}, of several" in model.notes[0]


def test_without_a_reference_the_last_fetched_is_read(cache: Path) -> None:
    _fetched(cache, "acme/tiny", OLD, NEW)
    assert load_model("acme/tiny").num_hidden_layers == 17


def test_the_cache_may_be_named_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fetched(tmp_path / "mine", "acme/tiny", NEW)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "mine"))
    assert load_model("acme/tiny").num_hidden_layers == 16


def test_a_repository_that_is_nowhere_says_how_to_fetch_it() -> None:
    with pytest.raises(InputError, match="not a repository in the local hub cache") as refused:
        load_model("acme/absent-7b")
    assert "hf download acme/absent-7b config.json" in refused.value.hint


@pytest.mark.parametrize("name", ["../../etc", "a/../../b", "a/b/c", "acme/..", "-/-", "é/é", "acme/" + "x" * 400])
def test_names_that_are_no_repositories(name: str) -> None:
    with pytest.raises(InputError):
        load_model(name)


def test_a_built_in_model_goes_before_the_cache(cache: Path) -> None:
    """The same answer on every machine."""
    _fetched(cache, "meta-llama/Llama-3.2-1B", NEW, layers=3)
    model = load_model("meta-llama/Llama-3.2-1B")
    assert (model.name, model.num_hidden_layers) == ("llama-3.2-1b", 16)
    assert model.notes[0] == "model meta-llama/Llama-3.2-1B is taken as llama-3.2-1b"


@pytest.mark.parametrize("name", ["Llama-3.1-70B", "meta-llama/Llama-3.1-70B-Instruct", "META-LLAMA/llama-3.1-70b"])
def test_names_of_the_hub_in_any_case(name: str) -> None:
    assert load_model(name).name == "llama-3.1-70b"


def test_a_measured_run_names_a_repository_of_the_cache(cache: Path, tmp_path: Path) -> None:
    _fetched(cache, "acme/tiny", NEW, layers=20)
    assert asked(tmp_path, model="acme/tiny").question.model.num_hidden_layers == 20


HUB = """
import json, os, pathlib, time

def hf_hub_download(repository, name, etag_timeout):
    if repository == "acme/gated":
        raise OSError("403: access to acme/gated is restricted")
    if repository == "acme/slow":
        time.sleep(3600)
    cache = pathlib.Path(os.environ["HF_HOME"], "hub")
    folder = cache / ("models--" + repository.replace("/", "--")) / "snapshots" / ("1" * 32)
    folder.mkdir(parents=True)
    (folder / name).write_text(pathlib.Path(os.environ["CONFIG"]).read_text())
"""


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ``huggingface_hub`` that has every repository but a gated one and a slow one."""
    (tmp_path / "site" / "huggingface_hub").mkdir(parents=True)
    (tmp_path / "site" / "huggingface_hub" / "__init__.py").write_text(HUB)
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setenv("CONFIG", str(CONFIG))
    monkeypatch.delitem(sys.modules, "huggingface_hub", raising=False)
    monkeypatch.setattr("shardplan.inputs.readers.hub.MOST_TIME", 60.0)  # a busy machine takes its time


@pytest.mark.usefixtures("hub")
def test_a_repository_of_the_hub_is_fetched_and_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    model = model_of("acme/new-1b")
    assert (model.name, model.num_hidden_layers) == ("new-1b", 16)
    assert "Fetching config.json of acme/new-1b" in capsys.readouterr().err
    assert "revision 111111111111" in model.notes[0]
    assert model_of("acme/new-1b") == model
    assert capsys.readouterr().err == ""  # it is in the cache now


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(
    ("name", "why", "most"),
    [("acme/gated", "access to acme/gated is restricted", 60.0), ("acme/slow", "nothing", 0.05)],
)
def test_what_cannot_be_fetched_is_refused_with_the_reason(
    name: str, why: str, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardplan.inputs.readers.hub.MOST_TIME", most)
    with pytest.raises(InputError, match=why) as refused:
        model_of(name)
    assert f"`hf download {name} config.json`" in refused.value.hint


@pytest.mark.usefixtures("hub")
def test_whoever_may_not_read_files_fetches_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="unknown model"):
        model_of("acme/new-1b", reads_files=False)
    assert capsys.readouterr().err == ""


def test_without_the_library_the_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardplan.inputs.readers.hub.find_spec", lambda _: None)
    with pytest.raises(InputError, match="huggingface_hub is not installed") as refused:
        model_of("acme/new-1b")
    assert "`hf download acme/new-1b config.json`" in refused.value.hint


def test_a_folder_needs_no_slash(tmp_path: Path) -> None:
    (tmp_path / "mymodel").mkdir()
    (tmp_path / "mymodel" / "config.json").write_bytes(CONFIG.read_bytes())
    assert load_model("mymodel").name == "mymodel"
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="the folder 'empty' holds no config"):
        load_model("empty")


def test_a_configuration_in_memory() -> None:
    config = json.loads(CONFIG.read_text())
    assert replace(load_model(config), name="x") == replace(load_model("llama-3.2-1b"), name="x")
    assert load_model({**config, "_name_or_path": "acme/Tiny-1B"}).name == "Tiny-1B"


def test_a_configuration_in_memory_that_is_none() -> None:
    with pytest.raises(InputError, match="model_type is missing"):
        load_model({})

"""Capability records: every shipped one is complete and sourced, malformed ones are refused with the fix."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shardplan.base.errors import InputError, UnknownNameError
from shardplan.physics.frameworks.capabilities import FORMS, Capabilities, read_capabilities
from shardplan.physics.frameworks.stack import list_stacks, load_stack
from shardplan.physics.schedules.registry import SCHEDULES

FROM_PAPERS = {"hai-llm", "meta-llama-3", "megascale"}
ENTRY = {"value": ["zero1"], "source": "arguments.py"}
HEAD = {"version": "1.0", "date": "2026-08"}
RULE = {"rule": "no pipelines here", "when": "pp > 1", "field": "pp", "instead": "set pp to 1", "source": "a.py"}


def _record(name: str) -> Capabilities:
    record = load_stack(name).can_run
    assert record is not None
    return record


@pytest.mark.parametrize("name", list_stacks())
def test_every_stack_states_what_it_can_run_with_version_date_and_sources(name: str) -> None:
    stack = load_stack(name)
    for record in (_record(name), *stack.can_run_before):
        assert record.version
        assert re.fullmatch(r"20\d\d-\d\d(-\d\d)?", record.date)
        assert record.repository
        assert all(len(record.sources[entry]) > 3 for entry in record.stated)
        assert all(len(rule.source) > 3 for rule in record.refuses)
        assert {"schedules", "shardings", "pipelined_shardings", "tp_kinds", "precisions"} <= {*record.stated}
    versions = [each.version for each in (_record(name), *stack.can_run_before)]
    assert len({*versions}) == len(versions)


@pytest.mark.parametrize("name", list_stacks())
def test_entries_name_what_plans_name(name: str) -> None:
    record = _record(name)
    assert {*(record.schedules or {})} <= {*SCHEDULES}
    assert {*(record.recompute_layers or {})} <= {*(record.recompute or ())}
    assert {*(record.partial_shardings or ())} <= {*(record.shardings or ()), *(record.pipelined_shardings or ())}
    assert {*record.from_memory} <= {*record.stated}


@pytest.mark.parametrize("name", [name for name in list_stacks() if name not in FROM_PAPERS])
def test_records_of_public_frameworks_name_the_commit_they_were_read_at(name: str) -> None:
    assert _record(name).commit
    assert len(_record(name).from_memory) <= len(_record(name).stated) // 2


def test_records_of_papers_are_marked_as_from_memory() -> None:
    for name in FROM_PAPERS:
        assert {*_record(name).from_memory} == {*_record(name).stated}


def test_versions_are_named_behind_an_at_sign() -> None:
    newest, named = load_stack("torchtitan"), load_stack("torchtitan@0.3")
    assert named.can_run is not None
    assert named.can_run.version == "0.3.0"
    assert named.plan == newest.plan
    assert load_stack("TorchTitan@main").can_run == newest.can_run
    with pytest.raises(UnknownNameError, match=r"version of torchtitan '9\.9'") as caught:
        load_stack("torchtitan@9.9")
    assert "0.3.0" in caught.value.hint
    for version in ("", "0.", ".", "0.3.", "0.30", "@", "x" * 10_000, "\x1b[31m"):
        with pytest.raises(InputError):
            load_stack(f"torchtitan@{version}")


def test_what_is_kept_of_another_record_names_where_it_was_read() -> None:
    nemo = _record("nemo")
    assert nemo.sources["recompute"].startswith("github.com/NVIDIA/Megatron-LM d98e8a64: megatron/core")
    assert nemo.sources["overlap_ep"].startswith("nemo/lightning")
    assert all("Megatron-LM" in rule.source for rule in nemo.refuses)
    assert _record("megatron-bridge-bf16-moments") == _record("megatron-bridge")
    assert "schedules" in _record("nemo-automodel").from_memory


def test_an_entry_that_is_left_out_is_none() -> None:
    record = read_capabilities({**HEAD, "shardings": ENTRY}, "can_run")
    assert record.stated == ("shardings",)
    assert record.shardings == ("zero1",)
    assert record.schedules is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([1], "can_run is"),
        ({}, "version of can_run"),
        ({"version": 0.2, "date": "2026-08"}, "version of can_run is 0.2"),
        ({"version": "1"}, "date of can_run"),
        ({"version": "1", "date": "August"}, "date of can_run is 'August'"),
        ({"version": "1", "date": "2026-08", "commit": 7}, "commit of can_run is 7"),
        (HEAD | {"sharding": ENTRY}, "did you mean shardings"),
        (HEAD | {"shardings": "zero1"}, "shardings of can_run is 'zero1'"),
        (HEAD | {"shardings": {"value": ["zero1"]}}, "source of shardings"),
        (HEAD | {"shardings": ENTRY | {"source": " "}}, "source of shardings"),
        (HEAD | {"shardings": ENTRY | {"page": 3}}, "unknown field of shardings of can_run 'page'"),
        (HEAD | {"shardings": ENTRY | {"from_memory": "yes"}}, "from_memory of shardings"),
        (HEAD | {"shardings": ENTRY | {"value": ["zero7"]}}, "unknown shardings of can_run 'zero7'"),
        (HEAD | {"shardings": ENTRY | {"value": [3]}}, "value of shardings"),
        (HEAD | {"shardings": ENTRY | {"value": "zero1"}}, "value of shardings"),
        (HEAD | {"schedules": ENTRY | {"value": ["1f1b"]}}, "value of schedules"),
        (HEAD | {"schedules": ENTRY | {"value": {"1F1B": "x"}}}, "value of schedules"),
        (HEAD | {"schedules": ENTRY | {"value": {"1f1b": ""}}}, "value of schedules"),
        (HEAD | {"empty_chunks": ENTRY | {"value": 1}}, "value of empty_chunks"),
        (HEAD | {"overlap_tp": ENTRY | {"value": True}}, "value of overlap_tp"),
        (HEAD | {"overlap_tp": ENTRY | {"value": "of"}}, "did you mean off"),
        (HEAD | {"recompute": ENTRY | {"value": ["layer_norm"]}}, "did you mean layernorm"),
        (HEAD | {"recompute_layers": ENTRY | {"value": {"full": "rank"}}}, "unknown recompute_layers"),
        (HEAD | {"placements": ENTRY | {"value": ["tp-dp-pp"]}}, "placement"),
        (HEAD | {"refuses": {}}, "refuses of can_run"),
        (HEAD | {"refuses": [3]}, r"refuses\[0\] of can_run is 3"),
        (HEAD | {"refuses": [RULE | {"rule": ""}]}, r"rule of refuses\[0\]"),
        (HEAD | {"refuses": [RULE | {"instead": None}]}, r"instead of refuses\[0\]"),
        (HEAD | {"refuses": [RULE | {"field": "stages"}]}, "field of refuses"),
        (HEAD | {"refuses": [RULE | {"when": "pp >> 1"}]}, r"when of refuses\[0\] of can_run is 'pp >> 1'"),
        (HEAD | {"refuses": [RULE | {"when": "stage > 1"}]}, "unknown fact in when"),
        (HEAD | {"refuses": [RULE | {"source": ""}]}, r"source of refuses\[0\]"),
    ],
)
def test_malformed_records_are_refused(given: object, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        read_capabilities(given, "can_run")
    assert caught.value.rule
    assert caught.value.hint
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("can_run: 3", "can_run is '3'"),
        ("can_run: {like: torchtitn}", "did you mean torchtitan"),
        ("can_run: {like: own}", "unknown stack after like"),
        ("can_run: {like: 3}", "like is '3'"),
        ("can_run: {like: torchtitan@7}", "unknown version of torchtitan"),
        ("can_run_before: []", "can_run is 'None'"),
        ("can_run: {like: torchtitan}\ncan_run_before: {}", "can_run_before is"),
        ("can_run: {like: torchtitan}\ncan_run_before: [3]", "can_run_before is 3"),
        ("can_run: {like: torchtitan, version: 3}", "version of can_run is 3"),
    ],
)
def test_malformed_files_are_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(f"name: own\n{text}\n")
    with pytest.raises(InputError, match=said):
        load_stack(path)


def test_a_record_of_ones_own_that_is_like_a_shipped_one(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(
        'name: own\ncan_run:\n  like: torchtitan@0.3\n  version: "7"\n  repository: our fork\n  commit: abc\n'
        "  overlap_ep: {value: either, source: our patch}\n"
    )
    record = load_stack(path).can_run
    assert record is not None
    assert (record.version, record.overlap_ep, record.optimizers) == ("7", "either", ("adam",))
    assert record.sources["overlap_ep"] == "our patch"


def test_every_field_of_a_record_has_a_form() -> None:
    head = {"version", "date", "repository", "commit", "refuses", "libraries", "shown", "sources", "from_memory"}
    assert {*Capabilities.__dataclass_fields__} - head == {*FORMS}


MALFORMED: tuple[object, ...] = ({"moe_dispatcher": "alltoall"}, {"moe_dispatcher": []}, ["alltoall"])


def test_software_lists_values_that_its_fields_have() -> None:
    def record(value: object) -> Capabilities:
        return read_capabilities({**HEAD, "software": {"value": value, "source": "a.py"}}, "test")

    assert record({"moe_dispatcher": ["alltoall", "deepep"]}).software == {"moe_dispatcher": ("alltoall", "deepep")}
    for wrong in ({"moe_dispatcher": ["carrier-pigeon"]}, {"dispatcher": ["alltoall"]}):
        with pytest.raises(UnknownNameError):
            record(wrong)
    for malformed in MALFORMED:
        with pytest.raises(InputError):
            record(malformed)


def test_software_lists_switches_as_well() -> None:
    def record(values: object) -> Capabilities:
        return read_capabilities({**HEAD, "software": {"value": {"fused_loss": values}, "source": "a.py"}}, "test")

    assert record([False, True]).software == {"fused_loss": (False, True)}
    with pytest.raises(UnknownNameError, match="off, on"):
        record(["yes"])
    with pytest.raises(InputError):
        record([1])

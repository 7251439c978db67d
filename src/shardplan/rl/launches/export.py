"""Launch files of an RL step: the best plan of ``shardplan rl ... --json`` for verl, NeMo RL and slime.

Every file is read again before it is handed out: what the reading does not find as planned is named.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from shardplan.base.errors import InputError, ShardplanError, UnknownNameError, shown
from shardplan.base.fields import described
from shardplan.base.files import parse_document, read_text
from shardplan.inputs.plan import Plan
from shardplan.launch.dialects.ask import Ask
from shardplan.launch.export.written import Export
from shardplan.reports.plan_file import PLAN_FILE, inputs_from_record
from shardplan.rl.launches.audit import audit_rl
from shardplan.rl.launches.reading import DIALECTS
from shardplan.rl.launches.writers import WRITERS, RlCase
from shardplan.rl.programs import framework_of
from shardplan.rl.question import SCHEMA
from shardplan.rl.search import IDLE

TARGETS: Final = ("verl", "nemo-rl", "slime")
"""Frameworks that RL steps are written for."""
SAME: Final = 0.005
"""Relative difference of a step that is read again, up to which it is the same."""


def export_rl(source: Path | Mapping[str, Any], to: str, pick: int | None = None, stem: str = "launch") -> Export:
    """The launch file of a plan of an RL step, from its answer as a file or a mapping. Raises ``InputError``."""
    record = source if isinstance(source, Mapping) else parse_document(
        read_text(source, PLAN_FILE), label=str(source), is_json=True
    )  # fmt: skip
    if record.get("schema") != SCHEMA or "inputs" not in record:
        raise InputError(
            f"{source} has the schema {shown(str(record.get('schema')))}",
            rule=f"a launch file for {to} is written of an RL step",
            hint="make it with `shardplan rl ... --json rl.json`",
        )
    cases = [_case(record, number, row) for number, row in enumerate(record["plans"], 1)]
    if not 1 <= (pick or 1) <= len(cases):
        raise InputError(
            f"plan {pick or 1} is asked for; the file holds {len(cases)}",
            rule="the picked plan is in the file",
            hint="set --pick to a number of its plans, from 1",
        )
    case = cases[(pick or 1) - 1]
    try:
        text = _text(case, to)
    except InputError as error:
        other = next((f"; or --pick {each.number}" for each in cases if _is_written(each, to)), "")
        raise InputError(error.message, rule=error.rule, hint=f"{error.hint}{other}") from None
    end = ".yaml" if to == "nemo-rl" else ".sh"
    title = f"{DIALECTS[to].record['title']} {DIALECTS[to].version}"
    lost, flags = tuple(_differences(case, text, end)), " ".join(f"--given {k}={v}" for k, v in given(case).items())
    head = [
        f"Written by shardplan: {case.model.name}, {case.row['placement']}, {case.row['plan_text']}.",
        f"Names of options as of {title}.",
        f"Read it again with: shardplan audit {stem}{end} --cluster {case.cluster.name} {flags}",
        *(f"Not expressed here: {each}" for each in lost),
    ]
    shebang = "#!/bin/bash\n" if end == ".sh" else ""
    comment = "".join(f"# {line}\n" for line in head)
    return Export(
        framework=title,
        files={f"{stem}{end}": f"{shebang}{comment}{text}"},
        not_expressed=lost,
        placeholders=(*FILL_IN[to], *["DRAFT_MODEL"] * (case.rl.get("speculative") == "eagle")),
        relies_on=("learning rate, sampling and rewards",),
    )


FILL_IN: Final[Mapping[str, tuple[str, ...]]] = {
    "verl": ("TRAIN_FILES", "VAL_FILES"), "nemo-rl": ("data", "env"), "slime": ("PROMPT_DATA", "REF_LOAD"),
}  # fmt: skip
"""What a user fills in."""


def given(case: RlCase) -> dict[str, str]:
    """What no launch file says of a step."""
    rl, found = case.rl, {"response_mean": f"{case.rl['response_tokens_mean']:.0f}"}
    found["prompt_mean"] = str(rl["prompt_tokens"])
    usual = {"spread": 0.6, "endless": 0.01}
    found |= {f"response_{name}": f"{rl[f'response_tokens_{name}']:g}" for name, value in usual.items()
              if rl[f"response_tokens_{name}"] != value}  # fmt: skip
    release = str(rl.get("framework") or "").partition(":")[2]
    found |= {"release": release} if release else {}
    return found | ({"reward_seconds": f"{rl['reward_seconds']:g}"} if rl["reward_seconds"] else {})


def _case(record: Mapping[str, Any], number: int, row: Mapping[str, Any]) -> RlCase:
    model, cluster, _ = inputs_from_record(record["inputs"])
    assert model is not None
    assert cluster is not None
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in row["plan"]["plan"].items()
        if name in described(Plan)
    }
    return RlCase(model=model, cluster=cluster, rl=record["rl"], row=row, plan=Plan(**fields), number=number)


def _is_written(case: RlCase, to: str) -> bool:
    try:
        _text(case, to)
    except InputError:
        return False
    return True


def _text(case: RlCase, to: str) -> str:
    """The file without its head. Raises ``InputError`` for what the framework does not run."""
    if to not in WRITERS:
        raise UnknownNameError("framework to export to", to[:60], TARGETS, hint=f"one of {', '.join(TARGETS)}")
    _check_runs(case, to)
    tokens, cp = case.rl["pack_tokens"], case.plan.cp
    if case.rl["rollout_cluster"] != case.cluster.name:
        raise case.refuse("the pools are on different clusters", "plan it without --rollout-cluster")
    if tokens % cp:
        raise case.refuse(f"{tokens} tokens over cp {cp}", f"set --pack-tokens to a multiple of {cp}")
    return WRITERS[to](case)


def _check_runs(case: RlCase, to: str) -> None:
    """Raises ``InputError`` for what the framework never runs, of which engine is said in the file."""
    step = {**case.rl, "placement": case.row["placement"], "backend": case.backend, "engine": None}
    step["rollout.pp"] = case.row["rollout_pp"]
    framework, plan = framework_of(to, case.backend), case.plan
    said = (name for name in described(Plan) if getattr(plan, IDLE.get(name, ""), 0) != 1)
    try:
        framework.check_step(step)
        framework.check_plan({name: (getattr(plan, name),) for name in said})
    except InputError as error:
        hint = error.hint.replace("set --", "plan it with --").removesuffix(", or leave it out")
        own = str(case.rl.get("framework") or "").partition(":")[0] == to
        raise case.refuse(error.message, hint if own else f"plan it with --framework {to}") from None


def _differences(case: RlCase, text: str, end: str) -> Iterator[str]:
    """What the file reads as, where that is not the plan."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"launch{end}"
        path.write_text(text)
        try:
            found = audit_rl(Ask(path=path, given=given(case)), model=case.model, cluster=case.cluster)
        except ShardplanError as error:
            yield f"read again, it breaks a rule: {error.message.replace(str(path), 'the file')}"
            return
    assert found is not None
    own = found.plan.trained.priced.plan
    for name in described(Plan):
        old, new = getattr(case.plan, name), getattr(own, name)
        if old != new and name not in ("placement", "moe_dispatcher", "etp"):
            yield f"{name} {old}, which reads as {new}"
    if case.rl["engine"] != found.result.task.engine:
        yield f"engine {case.rl['engine']}, which reads as {found.result.task.engine}"
    planned, read = float(case.row["step_time_s"]), found.plan.step_time
    if abs(read / planned - 1) > SAME:
        is_own = str(case.rl.get("framework") or "").partition(":")[0] == found.launch.name
        why = f", with what {found.launch.title} does besides (plan with --framework {found.launch.name})"
        yield f"a step of {planned:.4g} s, which reads as {read:.4g} s{'' if is_own else why}"

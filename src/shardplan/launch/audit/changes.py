"""What differs between a plan and another: fields with both values."""

from __future__ import annotations

from dataclasses import fields

from shardplan.inputs.plan import Plan, placement_tokens

Change = dict[str, tuple[object, object]]
"""Old and new value of every field that changes."""


def changes(old: Plan, new: Plan) -> Change:
    """Fields that differ, with both values; the schedule by its effect.

    Both plans state their software (``Question.with_software``): what one leaves open differs from what another states.
    """
    found = {each.name: (getattr(old, each.name), getattr(new, each.name)) for each in fields(Plan)}
    found["schedule"] = (old.effective_schedule, new.effective_schedule)
    silent = {"overlap_pp"} | ({"sequence_parallel", "overlap_tp"} if new.tp == 1 else set())
    silent |= {"moe_dispatcher", "overlap_ep"} if new.ep == new.etp == 1 else set()
    used = {name for name in ("tp", "cp", "pp", "ep") if getattr(old, name) > 1 or getattr(new, name) > 1} | {"dp"}
    orders = [[each for each in placement_tokens(plan.placement) if each[0] in used] for plan in (old, new)]
    if orders[0] == orders[1]:
        silent.add("placement")
    return {key: pair for key, pair in found.items() if pair[0] != pair[1] and key not in silent}

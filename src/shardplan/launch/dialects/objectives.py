"""What a trainer trains for: where it is not the next token of single sequences, what is priced is said."""

from __future__ import annotations

import re
from typing import Final

from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.settings import NamedSetting, Settings

NAMES: Final = ("rlhf_type", "rlhf-type", "rl", "stage", "task_type", "task-type", "objective", "reward_model")
"""Options of trainers that say it; others have other values under these names."""
PAIRS: Final = frozenset({"dpo", "ipo", "kto", "orpo", "simpo", "cpo", "rm", "reward", "reward_model", "bco", "apo"})
ROLLOUTS: Final = frozenset(
    {"ppo", "grpo", "gspo", "rloo", "gkd", "online_dpo", "distillation", "gold", "reinforce", "rs", "spin"}
)
HEADS: Final = frozenset({"embedding", "reranker", "seq_cls", "prm"})
"""Values, by what training needs besides one pass over single sequences."""
_PROGRAM: Final = (
    r"(?i)(?:^|[/_.-])(dpo|ipo|kto|orpo|simpo|cpo|ppo|grpo|rloo|gkd|reward\w*|distill\w*|rlhf)(?:[/_.-]|$)"
)
"""Programs that are named by it: ``trl/scripts/dpo.py``."""


_ROLLOUT: Final = (
    r"vllm_\w+|\w*rollout\w*|num_generations|reward_\w+|kl_(?:estimator|coef|beta)|init_kl_coef|teacher_model.*"
)
"""Options of trainers that generate answers, or that have models beside the one that trains."""


def objective_facts(facts: Facts, settings: Settings, program: str = "") -> None:
    """Says what is not priced: answers in pairs, models beside the one that trains, answers that are generated."""
    found = (settings.first(name) for name in NAMES)
    for each in found:
        if each is not None and (text := _beside(str(each.value).lower())):
            _say(facts, each, text)
    for section in sorted({name.split(".")[1] for name in settings if name.startswith("trainer.")}):
        if text := _beside(section):
            facts.doubt(f"the section trainer.{section}: {text}")
    named = re.search(_PROGRAM, program)
    rolled = next((each for name, each in settings.items() if re.fullmatch(_ROLLOUT, name.replace("-", "_"))), None)
    if rolled is not None:
        facts.doubt(f"{rolled.place}: {_beside('ppo')}")
    prompts = settings.first("max_prompt_length")
    if prompts is not None and rolled is None:
        facts.doubt(f"{prompts.place}: {_beside('dpo')}")
    if named is not None:
        text = _beside(named[1].lower()) or _beside("ppo")
        facts.doubt(f"the program {program}: {text}")


def _say(facts: Facts, each: NamedSetting, text: str) -> None:
    facts.doubt(f"{each.place} = {each.value}: {text}")


def _beside(value: str) -> str | None:
    """What is not priced of an objective.

    >>> _beside("sft") is None
    True
    """
    if value in PAIRS:
        return "pairs of answers and a reference model are priced as single sequences of one model"
    if value in ROLLOUTS:
        return "models beside the one that trains, and answers that are generated, are not priced"
    return "a head of its own is priced as the logits over the vocabulary" if value in HEADS else None

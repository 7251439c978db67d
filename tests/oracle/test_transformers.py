"""Counts of the manifest again, on the modules of ``transformers`` without weights: ``pytest -m oracle``.

It needs what ``requirements.txt`` next to this file names; the plain tests do without.
"""

from typing import Any

import pytest
from tests.inputs.readers.hf.manifest import Counted, counted

ROWS = counted()
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
VISITED = ("num_experts_per_tok", "moe_topk", "moe_k", "moe_top_k", "top_k_experts")


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", ROWS, ids=[f"{i}-{row.family}" for i, row in enumerate(ROWS)])
def test_the_modules_hold_as_many_parameters(row: Counted) -> None:
    import torch  # type: ignore[import-not-found,unused-ignore]  # an optional job
    from transformers import CONFIG_MAPPING  # type: ignore[import-not-found,unused-ignore]

    config = CONFIG_MAPPING[row.as_family or row.family](**{**row.config, **row.given})
    with torch.device("meta"):
        model = _class(row.head).from_config(config)
    head = config.vocab_size * config.hidden_size if row.head == "text" else 0
    total = sum(weight.numel() for weight in model.parameters()) + head
    routed = sum(weight.numel() for name, weight in model.named_parameters() if ".experts." in name)
    active = total - routed + (routed * _first(config, VISITED) // _first(config, EXPERTS) if routed else 0)
    assert (total, active) == (row.total, row.active)


def _class(head: str) -> Any:
    import transformers  # type: ignore[import-not-found,unused-ignore]

    return {
        "causal": transformers.AutoModelForCausalLM,
        "masked": transformers.AutoModelForMaskedLM,
        "image": transformers.AutoModelForImageClassification,
        "text": transformers.AutoModel,
    }[head]


def _first(config: Any, names: tuple[str, ...]) -> int:
    """The first of the fields that the configuration, or that of its experts, has."""
    holders = (getattr(config, "ffn_config", None), config)
    values = (getattr(holder, name, None) for holder in holders for name in names)
    return int(next(value for value in values if value is not None))

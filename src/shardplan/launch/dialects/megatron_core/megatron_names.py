"""Options of Megatron-LM and of the forks that keep its names, as their record has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from shardplan.launch.dialects.records import Dialect

RECORD: Final = Dialect(name="megatron-lm")
VERSION: Final = RECORD.version
BARE: Final = frozenset(RECORD.words("bare").split())
"""Options without a value."""
SHARDINGS: Final[Mapping[str, str]] = RECORD.words("shardings")
"""``--data-parallel-sharding-strategy`` of Megatron-FSDP."""
TOKENIZERS: Final[Mapping[str, int]] = RECORD.words("tokenizers")
"""Words of the vocabulary that a tokenizer's kind is used with: an assumption, which the answer states."""
OLD: Final = frozenset(RECORD.words("old").split())
"""Names that only versions of 2019 to 2022 have."""

"""Clusters as plain records, so that a plan file is self-contained.

Every key with a quantity ends in its SI unit. ``cluster_from_record(plain(cluster)) == cluster``.
Keys of a later version are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_args, get_origin

from shardplan.base.records import RecordFormat, field_values, schema_fields
from shardplan.inputs.cluster import Accelerator, Cluster, NetworkTier

if TYPE_CHECKING:
    from pydantic import BaseModel

FORMAT: Final = RecordFormat(
    "a cluster in a plan file is as shardplan writes it", "make the plan file again with `shardplan plan --json`"
)

MOST: Final = {int: 10**18, float: 1e30}
"""Upper bound of numbers."""


def cluster_from_record(record: object) -> Cluster:
    """The cluster of a record made by :func:`shardplan.base.records.plain`. Raises InputError for other records."""
    if not isinstance(record, Mapping):
        raise FORMAT.wrong("cluster", f"is a {type(record).__name__}, not a record with named fields")
    read: Any = FORMAT.read(_schema(), record, root="cluster", as_json=True)
    accelerator = Accelerator(**field_values(Accelerator, read.accelerator))
    tiers = tuple(NetworkTier(**field_values(NetworkTier, tier)) for tier in read.tiers)
    return Cluster(**field_values(Cluster, read) | {"accelerator": accelerator, "tiers": tiers})


@cache
def _schema() -> type[BaseModel]:
    """Pydantic model of a record, made on first use: importing pydantic is slow."""
    tier: Any = _made(NetworkTier)
    made: type[BaseModel] = _made(Cluster, accelerator=_made(Accelerator), tiers=tuple[tier, ...])
    return made


def _made(kind: Any, **inner: Any) -> Any:
    """The pydantic model of a dataclass; ``inner`` are types of its fields that are records themselves."""
    from pydantic import ConfigDict, create_model

    known: dict[str, Any] = {
        name: (inner.get(name) or _bounded(hint), each) for name, (hint, each) in schema_fields(kind).items()
    }
    return create_model(kind.__name__, __config__=ConfigDict(extra="ignore", strict=True, allow_inf_nan=False), **known)


def _bounded(hint: Any) -> Any:
    """The type of a value in a record: names are text, and numbers have a safe size."""
    from pydantic import Field

    inner = get_args(hint)
    if hint in MOST:
        return Annotated[hint, Field(gt=-MOST[hint], lt=MOST[hint])]
    if not inner or get_origin(hint) is Literal:
        return str if inner else hint
    if NoneType in inner:
        return _bounded(inner[0]) | None
    item: Any = _bounded(inner[-1] if get_origin(hint) is Mapping else inner[0])
    return dict[str, item] if get_origin(hint) is Mapping else tuple[item, ...]

"""Fields of a user's cluster or accelerator file: their names and types. `hardware_files` reads their values.

In a module of its own because importing pydantic takes longer than everything that the built-in files need.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import BaseModel, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from shardplan.base.files import Document
from shardplan.base.records import RecordFormat

RULE: Final = "the fields of a file are known, complete and of their type"
ACCELERATOR: Final = RecordFormat(RULE, "compare with examples/my-accelerator.yaml, which `shardplan examples` writes")
CLUSTER: Final = RecordFormat(RULE, "compare with examples/my-cluster.yaml, which `shardplan examples` writes")

Text = Annotated[str, Field(min_length=1)]


class Strict(BaseModel, extra="forbid", strict=True):
    """Known fields of exactly their type."""


class StatedValue(Strict):
    """A number with its unit, or a text with both (``450 GB/s``)."""

    value: object
    """The number."""
    unit: str | None = None
    """Its unit, such as ``GB/s``."""
    source: str | None = None
    """Its source: a text, or a key of the file's ``sources``."""
    mark: str | None = None
    """Why its confidence is low, if it is."""

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, raw: object) -> object:
        return {"value": raw} if isinstance(raw, str | int | float) else raw

    @field_validator("value")
    @classmethod
    def _plain(cls, value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise PydanticCustomError("plain", "it must be a number or a text with its unit")
        return value


class Link(Strict):
    """The links of one domain."""

    kind: str | None = None
    """Link in the maker's words, such as ``NVLink4``."""
    link_type: str = "other"
    """Family of the link; gives the default latency."""
    topology: str = "switch"
    """``switch``, ``mesh`` or ``torus``."""
    torus_shape: list[int] = []
    """Accelerators along each axis of a torus."""
    size: StatedValue | None = None
    """Accelerators in one domain; not given for the outermost tier."""
    bandwidth: StatedValue
    """Nominal, per accelerator and direction."""
    latency: StatedValue | None = None
    """Latency of one hop, one way."""


class Tier(Link):
    """One network tier."""

    name: Text
    """Usual name of the level: ``node``, ``rack``, ``pod`` ..."""


class FastDomain(Link):
    """The scale-up domain of an accelerator's own links."""

    size: StatedValue
    """Accelerators in one domain."""


class DescribedFile(Strict):
    """Fields of every file."""

    name: Text
    """Identifier."""
    full_name: str | None = None
    """Name in the maker's or operator's words."""
    date: str | None = None
    """When the values were looked up."""
    sources: dict[str, str] = {}
    """Sources that several values share, by key."""
    notes: str | None = None
    """What a user should know."""
    price_per_hour: StatedValue | None = None
    """Price of one accelerator, or in a cluster file of one node."""


class AcceleratorFile(DescribedFile):
    """A file that describes an accelerator."""

    vendor: str | None = None
    """Maker."""
    generation: str = "other"
    """Architecture family: calibration profiles are looked up by it."""
    release_year: StatedValue | None = None
    """Year in which the part came out."""
    memory: StatedValue
    """Device memory as the device reports it."""
    memory_bandwidth: StatedValue
    """Peak device-memory bandwidth."""
    peak_flops: dict[str, StatedValue]
    """Dense matrix peak by precision."""
    vector_flops: StatedValue | None = None
    """Peak of the vector units in fp32."""
    num_cores: StatedValue | None = None
    """Streaming multiprocessors, compute units or cores."""
    host_link_bandwidth: StatedValue | None = None
    """Link to the host, one direction."""
    power: StatedValue | None = None
    """Power limit of the device."""
    gemm_efficiency: dict[str, StatedValue] = {}
    """Measured sustained fraction of the dense peak in large matrix products, by precision."""
    memory_efficiency: StatedValue | None = None
    """Measured fraction of the memory bandwidth in large streaming kernels."""
    scale_up: FastDomain | None = None
    """The scale-up domain of the accelerator's own links."""
    accelerators_per_node: StatedValue | None = None
    """Accelerators that usually share one host; by default 8."""
    usual_cluster: Text | None = None
    """Name or path of the cluster that ``--accelerator`` alone stands for."""


class ClusterFile(DescribedFile):
    """A file that describes a cluster."""

    accelerator: object
    """Name of an accelerator, path of its file, or its fields."""
    accelerators_per_node: StatedValue
    """Accelerators that share one host."""
    tiers: list[Tier]
    """Network tiers, inner to outer."""
    max_num_accelerators: StatedValue | None = None
    """Largest number joined by this network."""
    host_memory: StatedValue | None = None
    """Main memory of one node."""
    host_memory_bandwidth: StatedValue | None = None
    """Bandwidth of updates of offloaded states in it; by default one for each accelerator."""

    @field_validator("accelerator")
    @classmethod
    def _named_or_described(cls, accelerator: object) -> object:
        if not isinstance(accelerator, str | Mapping):
            raise PydanticCustomError("plain", "it must be a name, a path or a set of fields")
        return accelerator


def check_document(document: Document, label: str, *, what: str) -> None:
    """Checks names and types of the fields of a user's file; ``what`` is accelerator or cluster. Raises InputError."""
    if what == "accelerator":
        ACCELERATOR.read(AcceleratorFile, document, label=label)
        return
    CLUSTER.read(ClusterFile, document, label=label)
    if isinstance(document["accelerator"], Mapping):
        ACCELERATOR.read(AcceleratorFile, document["accelerator"], label=label, root="accelerator")

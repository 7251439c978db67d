"""Fields of a user's cluster or accelerator file: their names and types. Their values are read by `hardware_files`.

In a module of its own because importing pydantic takes longer than all that the shipped files need.
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
    """Fields that are known, of exactly their type."""


class StatedValue(Strict):
    """A number with its unit, or a text with both (``450 GB/s``)."""

    value: object
    """The number."""
    unit: str | None = None
    """Its unit, such as ``GB/s``."""
    source: str | None = None
    """Where it comes from: a text, or a key of the file's ``sources``."""
    mark: str | None = None
    """Why confidence in it is low, where it is."""

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
    """Family of the link; gives the latency where none is stated."""
    topology: str = "switch"
    """``switch``, ``mesh`` or ``torus``."""
    torus_shape: list[int] = []
    """Accelerators along each axis of a torus."""
    size: StatedValue | None = None
    """Accelerators in one domain; left out for the outermost tier."""
    bandwidth: StatedValue
    """Nominal, per accelerator and direction."""
    latency: StatedValue | None = None
    """Of one hop, one way."""


class Tier(Link):
    """One network tier."""

    name: Text
    """What people call the level: ``node``, ``rack``, ``pod`` ..."""


class FastDomain(Link):
    """The scale-up domain that an accelerator's own links make."""

    size: StatedValue
    """Accelerators in one domain."""


class DescribedFile(Strict):
    """What every file has."""

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
    """Of one accelerator, or of one node in a cluster file."""


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
    """The scale-up domain that the part's own links make."""
    accelerators_per_node: StatedValue | None = None
    """Accelerators that usually share one host; 8 where nothing is stated."""
    usual_cluster: Text | None = None
    """Name or path of the cluster that ``--accelerator`` alone takes."""


class ClusterFile(DescribedFile):
    """A file that describes a cluster."""

    accelerator: object
    """Name of an accelerator, path of its file, or its fields in place."""
    accelerators_per_node: StatedValue
    """Accelerators that share one host."""
    tiers: list[Tier]
    """Network tiers, inner to outer."""
    max_num_accelerators: StatedValue | None = None
    """Largest number joined by this network."""
    host_memory: StatedValue | None = None
    """Main memory of one node."""
    host_memory_bandwidth: StatedValue | None = None
    """Bandwidth that updates of offloaded states reach in it; left out: a default for each accelerator."""

    @field_validator("accelerator")
    @classmethod
    def _named_or_described(cls, accelerator: object) -> object:
        if not isinstance(accelerator, str | Mapping):
            raise PydanticCustomError("plain", "it must be a name, a path or a set of fields")
        return accelerator


def check_document(document: Document, label: str, *, what: str) -> None:
    """Check names and types of the fields of a user's file; ``what``: accelerator or cluster. Raises InputError."""
    if what == "accelerator":
        ACCELERATOR.read(AcceleratorFile, document, label=label)
        return
    CLUSTER.read(ClusterFile, document, label=label)
    if isinstance(document["accelerator"], Mapping):
        ACCELERATOR.read(AcceleratorFile, document["accelerator"], label=label, root="accelerator")

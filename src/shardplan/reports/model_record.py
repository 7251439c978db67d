"""Models as plain records, so that a plan file holds all that it was computed from.

``model_from_record(model_record(model)) == model``. Layers stand as their distinct kinds and a pattern of indices.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from shardplan.base.records import Record, RecordFormat, field_values, keys, plain, schema_fields
from shardplan.inputs.counts import MAX_NUM_LAYERS
from shardplan.inputs.layers import MLP, Layer, Mixer, MixtureOfExperts
from shardplan.inputs.model import ModelConfig

if TYPE_CHECKING:
    from pydantic import BaseModel


def kind_of(part: type[Any]) -> str:
    """What records call a part of a layer: the name of its class, as ``mixture_of_experts``."""
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", part.__name__).lower()


MIXERS: Final = {kind_of(part): part for part in get_args(Mixer)}
MLPS: Final = {kind_of(part): part for part in (MLP, MixtureOfExperts)}
PARTS: Final[Mapping[str, type[Any]]] = {**MIXERS, **MLPS}
"""What a layer is made of, by the ``kind`` in a record."""

DERIVED: Final = ("num_parameters", "num_active_parameters", "num_hidden_layers")
"""Keys that follow from the others; ignored when a record is read."""

WRITTEN: Final = RecordFormat(
    "a plan file is as shardplan writes it", "make the file again with `shardplan plan ... --json FILE`"
)


def model_record(model: ModelConfig) -> Record:
    """``model`` as a mapping of numbers, texts and lists, with its parameter counts."""
    record: Record = {
        "name": model.name,
        "model_type": model.model_type,
        "num_parameters": model.num_parameters,
        "num_active_parameters": model.num_active_parameters,
        "num_hidden_layers": model.num_hidden_layers,
    }
    for field in fields(model):
        value = getattr(model, field.name)
        if field.name == "layers":
            record["layer_kinds"] = [_layer_record(kind) for kind in model.layer_kinds]
            record["layer_pattern"] = list(model.layer_pattern)
        elif isinstance(value, Layer):
            record[field.name] = _layer_record(value)
        else:
            record[field.name] = plain(value)
    return record


def _layer_record(layer: Layer) -> Record:
    return {field.name: _part_record(getattr(layer, field.name)) for field in fields(layer)}


def _part_record(value: object) -> object:
    """A part of a layer with its kind; numbers and flags as they are."""
    return {"kind": kind_of(type(value)), **plain(value)} if type(value) in PARTS.values() else value


def model_from_record(record: object) -> ModelConfig:
    """The model that :func:`model_record` wrote. Raises InputError on a record that is none."""
    if not isinstance(record, Mapping):
        raise WRITTEN.wrong("model", f"is a {type(record).__name__}, not a record with named fields")
    given = {key: value for key, value in record.items() if key not in DERIVED}
    checked: Any = WRITTEN.read(_schema(), given, root="model", as_json=True)
    kinds, pattern = [_layer(kind) for kind in checked.layer_kinds], checked.layer_pattern
    if not all(0 <= index < len(kinds) for index in pattern):
        raise WRITTEN.wrong("model.layer_pattern", f"counts beyond the {len(kinds)} kinds of layer")
    layers = tuple(kinds[index] for index in pattern)
    mtp_block = None if checked.mtp_block is None else _layer(checked.mtp_block)
    others = {name: getattr(checked, name) for name in keys(ModelConfig) if name not in ("layers", "mtp_block")}
    return ModelConfig(layers=layers, mtp_block=mtp_block, **others)


def _layer(checked: Any) -> Layer:
    given = field_values(Layer, checked)
    for name in ("mixer", "mlp", "parallel_mixer"):
        if given[name] is not None:
            part = PARTS[given[name].kind]
            given[name] = part(**field_values(part, given[name]))
    return Layer(**given)


@cache
def _schema() -> type[BaseModel]:
    """Pydantic model of a record, made from the fields of the dataclasses on first use: importing pydantic is slow."""
    from pydantic import ConfigDict, Field, create_model

    config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False, arbitrary_types_allowed=True)

    def one_of(parts: Mapping[str, type[Any]]) -> Any:
        schemas = [
            create_model(part.__name__, __config__=config, **schema_fields(part, kind=(Literal[kind], ...)))
            for kind, part in parts.items()
        ]
        union: Any = schemas[0]
        for schema in schemas[1:]:
            union = union | schema
        return union

    mixer, mlp = one_of(MIXERS) | None, one_of(MLPS) | None
    parts = {
        "mixer": (mixer, Field(discriminator="kind")),
        "mlp": (mlp, Field(discriminator="kind")),
        "parallel_mixer": (mixer, Field(default=None, discriminator="kind")),
    }
    layer = create_model("Layer", __config__=config, **schema_fields(Layer, **parts))
    own = schema_fields(
        ModelConfig,
        layer_kinds=(list[layer], Field(min_length=1, max_length=MAX_NUM_LAYERS)),
        layer_pattern=(list[int], Field(min_length=1, max_length=MAX_NUM_LAYERS)),
        mtp_block=(layer | None, None),
    )
    del own["layers"]
    schema: type[BaseModel] = create_model("Model", __config__=config, **own)
    return schema

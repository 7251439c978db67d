"""Names of built-in models, clusters and accelerators, the sources of the models, and other unambiguous names.

Names of ``nvidia-smi`` and of the Hugging Face hub are among them. Answers say how such a name was understood.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any, Final

from shardplan.base.fields import dataclass
from shardplan.base.files import DATA
from shardplan.base.words import folded

MODELS: Final = DATA / "models"
"""Folder of the built-in models."""


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """Origin of one built-in model."""

    name: str
    """Name of the model."""
    hf_id: str
    """Repository on the Hugging Face hub; empty: the model was never published there."""
    num_parameters: int
    """All parameters, counted on the modules of ``transformers``."""
    num_active_parameters: int
    """Like ``num_parameters``, but with only the routed experts that a token uses."""
    source: str
    """Source of the dimensions."""
    mark: str
    """Why confidence in them is low; empty if it is not."""


@cache
def model_sources() -> Mapping[str, ModelSource]:
    """The origin of every built-in model, by name."""
    rows = _rows("index.csv")
    for row in rows:
        row |= {name: int(row[name]) for name in ("num_parameters", "num_active_parameters")}
    return {row["name"]: ModelSource(**row) for row in rows}


@dataclass(frozen=True, kw_only=True)
class MakersBatch:
    """Published batch with which the maker of a built-in model trained it."""

    name: str
    """Name of the model."""
    tokens: int
    """Tokens of one step, after the batch had grown."""
    source: str
    """Source, with its wording."""
    mark: str
    """Why confidence in it is low; empty if it is not."""


@cache
def makers_batches() -> Mapping[str, MakersBatch]:
    """The published batches, by name of the model."""
    return {row["name"]: MakersBatch(**{**row, "tokens": int(row["tokens"])}) for row in _rows("batches.csv")}


def _rows(name: str) -> list[dict[str, Any]]:
    with (MODELS / name).open(encoding="utf-8", newline="") as file:
        return [*csv.DictReader(file)]


FOLDERS: Final = {
    "model": ("models", ".json"),
    "cluster": ("clusters", ".yaml"),
    "accelerator": ("accelerators", ".yaml"),
}


@cache
def shipped_names(what: str) -> Mapping[str, str]:
    """Names of the built-in files of a kind, by their lower-case form."""
    folder, suffix = FOLDERS[what]
    stems = [path.stem for path in (DATA / folder).glob(f"*{suffix}")]
    return {stem.lower(): stem for stem in sorted(stems)}


def name_meant(what: str, name: str) -> str | None:
    """The one built-in name that ``name`` means; None if it is one itself, or means none or several."""
    found = names_meant(what, name)
    return found[0] if len(found) == 1 else None


def names_meant(what: str, name: str) -> tuple[str, ...]:
    """The built-in names that ``name`` can mean; empty if it is one itself."""
    if name.lower() in shipped_names(what) or len(name) > LONGEST:
        return ()
    if what == "cluster":
        written = _spelling_table(what).get(folded(name))
        same = (known for known in shipped_names(what).values() if folded(known) == folded(name))
        return (written,) if written else tuple(same)
    return _accelerators(name) if what == "accelerator" else _models(name)


LONGEST: Final = 200


def taken_as(what: str, name: str) -> str:
    """A note on a name that is taken as another: ``H100 is taken as h100-sxm-80gb, not h100-pcie-80gb``."""
    meant = name_meant(what, name)
    is_loose = what == "accelerator" and folded(name) not in _spelling_table(what)
    others = [known for known in _with_parts(name) if known != meant] if is_loose else []
    instead = f" (the usual one; not {' or '.join(others)})" if others and len(others) < MOST_OTHERS else ""
    return f"{name[:80]} is taken as {meant}{instead}"


MOST_OTHERS: Final = 5
MAKERS: Final = frozenset({"nvidia", "amd", "instinct", "intel", "google", "aws", "huawei", "tesla", "geforce", "oam"})
NAMED_ALONE: Final = frozenset(
    {
        "a100-pcie-40gb", "a100-pcie-80gb", "gb200-186gb", "gb300-288gb", "h100-nvl-94gb", "h100-pcie-80gb",
        "h100-sxm-96gb-500w", "h200-nvl-141gb",
    }
)  # fmt: skip
"""Cards for PCIe servers and rare variants, which need their full name. Clusters that train models are
made of the SXM board of the same name.
"""


@lru_cache(maxsize=1024)
def _accelerators(name: str) -> tuple[str, ...]:
    written = _spelling_table("accelerator")
    if folded(name) in written:
        return (written[folded(name)],)
    same = [known for known in shipped_names("accelerator").values() if folded(known) == folded(name)]
    found = same or _with_parts(name)
    if len(found) > 1:
        found = [known for known in found if known not in NAMED_ALONE] or found
    return tuple(found)


def _with_parts(name: str) -> list[str]:
    """Accelerators whose names have all parts of ``name``."""
    parts = _form(_parts(name)) - MAKERS
    return [known for known in shipped_names("accelerator").values() if parts and parts <= _form(_parts(known))]


@cache
def _spelling_table(what: str) -> Mapping[str, str]:
    """Accelerators by unambiguous names without any part of ours; clusters by names of clouds."""
    with (DATA / FOLDERS[what][0] / "names.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {folded(f"{before} {row['written']}"): row["name"] for row in rows for before in BEFORE[what]}


BEFORE: Final = {"accelerator": ("", "NVIDIA", "Google"), "cluster": ("", "Standard", "ml.")}
"""Prefixes of makers and clouds: ``Standard_ND96isr_H100_v5``, ``ml.p5.48xlarge``."""


_FORM: Final = re.compile(r"^sxm\d$")
_NO_PART: Final = re.compile(r"^(hbm\d\w*|ac|generation)$")


def _form(parts: set[str]) -> set[str]:
    """The same parts with form factors without the number of their socket, and without the kind of memory."""
    return {_FORM.sub("sxm", part) for part in parts if not _NO_PART.match(part)}


@dataclass(frozen=True, kw_only=True)
class Relative:
    """A model whose layers are those of a built-in one, or of its family with other dimensions."""

    name: str
    """Its name."""
    like: str
    """The built-in model."""
    changes: Mapping[str, object]
    """Fields of the built-in model's ``config.json`` that differ."""
    num_parameters: int
    """Parameters in its maker's file of weights, without tied ones."""


@cache
def _relatives() -> Mapping[str, Relative]:
    """Relatives by their bare names; models of other weights have additional ones."""
    found: dict[str, Relative] = {}
    for row in _rows("relatives.csv"):
        changes = dict(each.split("=") for each in row["changes"].split())
        relative = Relative(
            name=row["name"],
            like=row["like"],
            changes={
                key: int(value) if value.isdigit() else _WORDS.get(value, value) for key, value in changes.items()
            },
            num_parameters=int(row["num_parameters"]),
        )
        found |= {_bare(name): relative for name in (row["name"], *row["also"].split())}
    return found


def shape_within(name: str) -> str | None:
    """The name of a known model within that of weights made from it; None if something else may differ.

    >>> shape_within("someone/Llama-3-8B-My-SFT-v0.1"), shape_within("Llama-3-8B-MoE"), shape_within("my-7b")
    ('llama-3-8b', None, None)
    """
    parts = [each for each in name.rstrip("/").split("/") if not _CHECKPOINT.fullmatch(each)][-1:]
    words = [each for each in re.split(r"[-_\s]+", parts[0].lower()) if each not in ("hf", "meta")] if parts else []
    pairs = ((i, j) for i in range(len(words)) for j in range(i + 2, min(len(words), i + MOST_WORDS) + 1))
    for i, j in sorted(pairs, key=lambda pair: pair[0] - pair[1]) if len(words) <= LONGEST else ():
        within, rest = "-".join(words[i:j]), (*words[:i], *words[j:])
        if any(map(_SIZE.fullmatch, words[i:j])) and _shape_of(within) is not None:
            return None if any(map(_OTHER_SHAPE.search, rest)) else within
    return None


MOST_WORDS: Final = 6
"""Most words in the name of a model."""
_SIZE: Final = re.compile(r"(?:\d+x)?\d+(?:\.\d+)?[bm]")
_CHECKPOINT: Final = re.compile(r"(?i)(?:checkpoint|(?:global_?)?step|epoch|iter)[-_]?\d+|final|latest|best|merged|hf")
"""Names of folders within that of a model."""
_OTHER_SHAPE: Final = re.compile(
    r"^(?:\d+x)?\d+(?:\.\d+)?[bm]$|moe|expert|mixture|select|prun|shear|draft|eagle|medusa|mamba|rwkv|linear|hybrid|^vl|vision"
    r"|image|video|audio|speech|omni|llava|multimodal|depth|width|scale|layer|vocab|token|gptq|awq|int[48]|bnb|fp8|[48]bit"
    r"|quant|chinese|japanese|korean|swallow|^(?:zh|ja|jp|ko|vi)$|embed"
)
"""Words next to the name of a model that mean other layers, vocabulary or stored weights."""
_WORDS: Final[Mapping[str, object]] = {"true": True, "false": False, "null": None}


def relatives() -> Mapping[str, Relative]:
    """Models with the dimensions of a built-in one, with or without changes, by name."""
    return {each.name: each for each in _relatives().values()}


def relative_meant(name: str) -> Relative | None:
    """The relative with its own dimensions that ``name`` means, also for a repository with other weights."""
    found = _shape_of(name)
    return found if isinstance(found, Relative) else None


@lru_cache(maxsize=1024)
def _shape_of(name: str) -> str | Relative | None:
    """The built-in model or the relative of a name; if it is none itself, without endings for other weights."""
    if len(name) > LONGEST or _is_path(name):
        return None
    for form in map(_bare, _forms(name)):
        relative = _relatives().get(form)
        known = _known_models().get(form) or (relative.like if relative and not relative.changes else None)
        if known or relative:
            return known or relative
    return None


def _forms(name: str) -> list[str]:
    """A name without its repository's owner, then without its endings for other weights, one after another."""
    forms = [name.rpartition("/")[2]]
    while (shorter := VARIANTS.sub("", forms[-1])) != forms[-1]:
        forms.append(shorter)
    return [each for form in forms for each in (form, form.lower().removeprefix("meta-"))]


VARIANTS: Final = re.compile(
    r"[-_](hf|instruct|base|chat|it|pt|sft|dpo|thinking|preview|[0-2]\d[0-3]\d|v\d(?:[.-]\d)?)$", flags=re.IGNORECASE
)
"""Endings of names for other weights of the same shape."""


@lru_cache(maxsize=1024)
def _models(name: str) -> tuple[str, ...]:
    if _is_path(name):
        return ()
    found = _shape_of(name)
    if found is not None:
        return (found,) if isinstance(found, str) else ()
    parts = _parts(_forms(name)[-1])
    named = {known: known.split("-") for known in shipped_names("model").values()}
    return tuple(known for known, own_parts in named.items() if own_parts[0] in parts and parts <= set(own_parts))


@cache
def _known_models() -> Mapping[str, str]:
    """Built-in models by their bare names, those of the Hugging Face hub among them."""
    hub = {_bare(source.hf_id.rpartition("/")[2]): name for name, source in model_sources().items() if source.hf_id}
    return hub | {_bare(name): name for name in shipped_names("model").values()}


def _is_path(name: str) -> bool:
    """Whether it is the path of a file or folder: names have at most an owner before them."""
    return name.lower().endswith(".json") or name.count("/") > 1 or name[:1] in ("/", ".", "~")


def _bare(name: str) -> str:
    """The name without case and punctuation: ``llama31_8b`` and ``Llama-3.1-8B`` are one."""
    return folded(name).replace(".", "")


def _parts(name: str) -> set[str]:
    return {part for part in re.split(r"[-_/\s]+", name.lower()) if part}

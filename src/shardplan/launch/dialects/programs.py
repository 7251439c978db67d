"""Defaults of a training program in the manner of Hugging Face's Trainer, where it is at hand next to its script.

Its arguments are fields of dataclasses with defaults. The program is read as text: nothing of it is evaluated.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from shardplan.base.errors import ShardplanError
from shardplan.launch.dialects.ask import Ask
from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.records import Dialect
from shardplan.launch.dialects.settings import Settings
from shardplan.launch.dialects.values import degree, switch

MOST_FILES: Final = 24
"""Modules of a repository that one program imports and that are looked at."""
LONGEST_WORD: Final = 40
CHECKPOINTING: Final = ("gradient_checkpointing", "activation_checkpointing", "checkpoint_activations")
"""Words of a program that may turn recomputation on by itself."""


OF_TRANSFORMERS: Final = ("TrainingArguments", "HfArgumentParser")
"""Names of programs whose arguments are those of the Trainer."""


class Program(NamedTuple):
    """What a program says of its arguments."""

    defaults: Mapping[str, tuple[object, str]]
    """Value and place by name; names with several defaults are not there."""
    names: frozenset[str]
    """Fields of its dataclasses, with a default or without."""
    words: frozenset[str]
    """Names and texts of all its modules."""
    is_whole: bool
    """Whether every module of its repository that it imports was read."""


def take_defaults(facts: Facts, ask: Ask, name: str, options: Settings) -> None:
    """The length of sequences and recomputation, as the program has them where its line says nothing."""
    wanted = [key for key in ("sequence_length", "recompute", "gradient_accumulation") if key not in facts]
    path = ask.places.find(name if name.endswith(".py") else f"{name.replace('.', '/')}.py", ask.path.parent)
    if not wanted or path is None or facts.open:
        return
    program = _program(ask, path)
    if "sequence_length" in wanted:
        _length(facts, program)
    if "gradient_accumulation" in wanted and not program.words.isdisjoint(OF_TRANSFORMERS):
        facts.assume_because("gradient_accumulation", 1, "gradient_accumulation_steps of TrainingArguments is 1")
    own = program.defaults.get("gradient_checkpointing")
    is_on = None if own is None else switch(own[0])
    if "recompute" not in wanted or options.first(*CHECKPOINTING) is not None:
        return
    if own is not None and is_on is not None:
        facts.assume_because("recompute", "full" if is_on else "none", f"{own[1]} of the program")
    elif program.is_whole and program.words.isdisjoint(CHECKPOINTING):
        why = f"gradient_checkpointing of TrainingArguments is off, and {path.name} does not name it"
        facts.assume_because("recompute", "none", why)


def _length(facts: Facts, program: Program) -> None:
    """The only length of sequences that the program's arguments have."""
    row = next(each for each in Dialect(name="hf-trainer").rows if each.field == "sequence_length")
    named = [key for key in program.names if _LENGTH.search(key)]
    if len(named) == 1 and named[0] in row.names and named[0] in program.defaults:
        value, place = program.defaults[named[0]]
        if (number := degree(value)) is not None:
            facts.assume_because("sequence_length", number, f"{place} of the program")


_LENGTH: Final = re.compile(r"(?:max|seq|block|context).*(?:len|length|size)$")


def _program(ask: Ask, path: Path) -> Program:
    """A program and the modules of its repository that it imports."""
    left, seen = [path], set[Path]()
    found: dict[str, list[tuple[object, str]]] = {}
    words, names = set[str](), set[str]()
    is_whole = True
    while left and len(seen) < MOST_FILES:
        module = left.pop(0)
        if module in seen:
            continue
        seen.add(module)
        syntax = _syntax(module)
        if syntax is None:
            is_whole = False
            continue
        for key, value, line in _fields(syntax):
            names.add(key)
            if value is not None:
                found.setdefault(key, []).append((value, f"{module.name}:{line} {key}"))
        words |= _words(syntax)
        for name, paths in _imported(ask, module, syntax):
            left += [each for each in paths if each not in seen]
            is_whole = is_whole and (bool(paths) or name.partition(".")[0] in PACKAGES)
    alone = {key: each[0] for key, each in found.items() if len({str(value) for value, _ in each}) == 1}
    return Program(alone, frozenset(names), frozenset(words), is_whole and not left)


def _syntax(path: Path) -> ast.Module | None:
    from shardplan.launch.read.python import syntax_of

    try:
        return syntax_of(path)
    except ShardplanError:
        return None


def _fields(syntax: ast.Module) -> Iterator[tuple[str, object, int]]:
    """Fields of classes: ``name: int = 512``, or ``field(default=512)``; None where there is no plain default."""
    for owner in syntax.body:
        for node in owner.body if isinstance(owner, ast.ClassDef) else ():
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                value = None if node.value is None else _default(node.value)
                yield node.target.id, value.value if isinstance(value, ast.Constant) else None, node.lineno


def _default(node: ast.expr) -> ast.expr | None:
    """What a field is where nobody gives it."""
    if not isinstance(node, ast.Call):
        return node
    return next((each.value for each in node.keywords if each.arg == "default"), None)


def _words(syntax: ast.Module) -> set[str]:
    """Names, attributes, keywords and short texts of a module."""
    found = set[str]()
    for node in ast.walk(syntax):
        if isinstance(node, ast.Attribute):
            found.add(node.attr.removesuffix("_enable"))
        elif isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.alias):
            found.add(node.name)
        elif isinstance(node, ast.keyword) and node.arg is not None:
            found.add(node.arg)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < LONGEST_WORD:
            found.add(node.value)
    return found


def _imported(ask: Ask, module: Path, syntax: ast.Module) -> Iterator[tuple[str, list[Path]]]:
    """Modules that are imported, each with its files where they are in the same repository."""
    for node in ast.walk(syntax):
        if isinstance(node, ast.ImportFrom) and node.level:
            folder = module.parents[min(node.level, len(module.parents)) - 1]
            names = [node.module] if node.module else [each.name for each in node.names]
            paths = [folder.joinpath(*str(name).split(".")).with_suffix(".py") for name in names]
            yield "", [each for each in paths if each.is_file() and ask.places.may_read(each, ask.path.parent)]
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, _module(ask, module, node.module, [each.name for each in node.names])
        elif isinstance(node, ast.Import):
            yield from ((each.name, _module(ask, module, each.name, [])) for each in node.names)


def _module(ask: Ask, module: Path, name: str, names: list[str]) -> list[Path]:
    """The file of a module, or those of a package's parts."""
    if name.partition(".")[0] in PACKAGES:
        return []
    base, folder = name.replace(".", "/"), ask.path.parent
    for start, place in ((base, module.parent), (base, folder), (f"src/{base}", folder)):
        found = ask.places.find(f"{start}.py", place, is_exact=True)
        if found is not None:
            return [found]
    parts = (ask.places.find(f"{start}/{each}.py", folder, is_exact=True)
             for start in (base, f"src/{base}") for each in ("__init__", *names))  # fmt: skip
    return [each for each in parts if each is not None]


PACKAGES: Final = sys.stdlib_module_names | {
    "torch", "transformers", "datasets", "accelerate", "peft", "trl", "numpy", "pandas", "deepspeed", "tqdm", "wandb",
    "PIL", "sklearn", "scipy", "liger_kernel", "huggingface_hub", "safetensors", "tokenizers", "evaluate", "packaging",
    "torchvision", "torchaudio", "tensorboard", "rich", "yaml", "omegaconf", "requests", "einops", "bitsandbytes",
}  # fmt: skip
"""Packages that are no part of a repository and turn no recomputation on."""

"""Defaults of a training program in the manner of Hugging Face's Trainer, where it is at hand next to its script.

Its arguments are fields of dataclasses with defaults. The program is read as text: nothing of it is evaluated.
"""

from __future__ import annotations

import ast
import contextlib
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from shardplan.base.errors import ShardplanError
from shardplan.launch.dialects.ask import Ask
from shardplan.launch.dialects.launches import Launch
from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.records import Dialect
from shardplan.launch.dialects.settings import Settings
from shardplan.launch.dialects.trainers import RANKS, SCRIPT, TARGETS, own_batch, targets_of
from shardplan.launch.dialects.values import degree, switch

MOST_FILES: Final = 48
"""Modules of a repository that one program imports and that are looked at."""
CHECKPOINTING: Final = ("gradient_checkpointing", "activation_checkpointing", "checkpoint_activations")
"""Words of a program that may turn recomputation on by itself."""
TURN_ON: Final = frozenset({*CHECKPOINTING, "gradient_checkpointing_enable", "use_gradient_checkpointing"})
SHARD: Final = frozenset(
    {"deepspeed", "fsdp", "fsdp_config", "FSDP", "FullyShardedDataParallel", "fully_shard", "DeepSpeedPlugin"}
    | {"FullyShardedDataParallelPlugin", "DeepSpeedStrategy", "FSDPStrategy", "deepspeed_config", "zero_stage"}
)  # fmt: skip
"""Names by which a program shards or checkpoints without a word of its line: where it calls them, sets them, or passes
them as more than the value of an argument."""
PARSERS: Final = frozenset({"HfArgumentParser", "H4ArgumentParser", "TrlParser"})
OF_TRANSFORMERS: Final = ("TrainingArguments", "Seq2SeqTrainingArguments", *PARSERS)
"""Names of programs whose arguments are those of the Trainer."""
OF_TRL: Final = r"(?:SFT|DPO|KTO|ORPO|CPO|Reward|PRM|BCO)Config|TrlParser"
"""Arguments of TRL, whose versions turn recomputation on or leave it off."""


class Program(NamedTuple):
    """What a program says of its arguments."""

    defaults: Mapping[str, tuple[object, str]]
    """Value and place by name; names with several defaults are not there."""
    names: frozenset[str]
    """Fields of its dataclasses, with a default or without."""
    words: frozenset[str]
    """Names of all its modules."""
    turns_on: frozenset[str]
    """What of :data:`TURN_ON` and :data:`SHARD` it uses by itself."""
    adapters: tuple[ast.Call, ...]
    """Its calls of ``LoraConfig``."""
    frozen: str
    """Where it keeps weights as they are without being asked to; empty where it does not."""
    is_whole: bool
    """Whether every module of its repository that it imports was read."""

    @property
    def of_trainer(self) -> bool:
        """Whether its arguments are those of transformers' Trainer."""
        return not self.words.isdisjoint(OF_TRANSFORMERS)


def take_defaults(facts: Facts, ask: Ask, launch: Launch, options: Settings) -> None:
    """What the program of a line has where the line says nothing."""
    name = launch.program
    wanted = {key for key in WANTED if _is_open(facts, key)}
    path = ask.places.find(name if name.endswith(".py") else f"{name.replace('.', '/')}.py", ask.path.parent)
    if path is None or facts.open:
        return
    program = _program(ask, path)
    if program.frozen:
        facts.doubt(f"{program.frozen} requires_grad = False: weights that are frozen are priced as trained")
    if "sequence_length" in wanted:
        _length(facts, program)
    own_batch(facts, options)
    wanted = {key for key in wanted if _is_open(facts, key)}
    for key, (argument, value) in OF_ARGUMENTS.items():
        own = program.defaults.get(argument)
        is_trainers = program.of_trainer and argument not in program.names
        if key in wanted and (is_trainers or (own is not None and degree(own[0]))):
            facts.missing.pop(key, None)
            why = f"{argument} of TrainingArguments is {value}" if own is None else f"{own[1]} of the program"
            facts.assume_because(key, value if own is None else degree(own[0]), why)
    whole = program.defaults.get("full_finetune")
    if whole is not None and switch(whole[0]) is False and program.adapters and _asks_what_trains(facts):
        facts.missing.pop("train")
        facts.assume_because("train", "lora", f"{whole[1]} of the program is off")
    if facts.value("train") == "lora":
        _adapters(facts, program, wanted)
    if "sharding" in wanted and "torchrun" in launch.launchers and program.of_trainer and _leaves(program, SHARD):
        facts.assume_because("sharding", "ddp", f"neither deepspeed nor fsdp, and {path.name} chooses none")
    checkpoints = program.defaults.get("gradient_checkpointing")
    is_on = None if checkpoints is None else switch(checkpoints[0])
    if "recompute" not in wanted or options.first(*CHECKPOINTING) is not None:
        return
    if checkpoints is not None and is_on is not None:
        facts.assume_because("recompute", "full" if is_on else "none", f"{checkpoints[1]} of the program")
    elif _leaves(program, TURN_ON) and not any(re.fullmatch(OF_TRL, word) for word in program.words):
        why = f"gradient_checkpointing of TrainingArguments is off, and {path.name} does not turn it on"
        facts.assume_because("recompute", "none", why)


OF_ARGUMENTS: Final[Mapping[str, tuple[str, int]]] = {
    "gradient_accumulation": ("gradient_accumulation_steps", 1),
    "micro_batch_size": ("per_device_train_batch_size", 8),
}
"""Defaults of ``TrainingArguments`` by our keys."""
WANTED: Final = ("sequence_length", "recompute", "sharding", "lora_rank", "lora_targets", *OF_ARGUMENTS)


def _is_open(facts: Facts, key: str) -> bool:
    """Whether nothing is known of ``key``, or no more than that the program decides it."""
    return key not in facts or all(need.endswith(SCRIPT) for need in facts.missing.get(key, ("known",)))


def _asks_what_trains(facts: Facts) -> bool:
    """Whether a rank of adapters alone leaves open what trains."""
    return "train" in facts.missing and all(need.endswith(": full or lora") for need in facts.missing["train"])


def _leaves(program: Program, words: Collection[str]) -> bool:
    """Whether nothing in a program that was read whole uses ``words`` by itself."""
    return program.is_whole and program.turns_on.isdisjoint(words)


def _length(facts: Facts, program: Program) -> None:
    """The only length of sequences that the program's arguments have."""
    row = next(each for each in Dialect(name="hf-trainer").rows if each.field == "sequence_length")
    named = [key for key in program.names if _LENGTH.search(key)]
    if len(named) == 1 and named[0] in row.names and named[0] in program.defaults:
        value, place = program.defaults[named[0]]
        if (number := degree(value)) is not None:
            facts.missing.pop("sequence_length", None)
            facts.assume_because("sequence_length", number, f"{place} of the program")


_LENGTH: Final = re.compile(r"(?:max|seq|block|context).*(?:len|length|size)$")


def _adapters(facts: Facts, program: Program, wanted: Collection[str]) -> None:
    """Rank and matrices of the only adapters that a program makes: defaults of its arguments, or what it writes."""
    call = program.adapters[0] if len(program.adapters) == 1 else None
    written = {} if call is None else {each.arg: each.value for each in call.keywords}
    for key, names, word, convert in (
        ("lora_rank", RANKS, "r", degree),
        ("lora_targets", TARGETS, "target_modules", targets_of),
    ):
        given, found = (
            written.get(word),
            next((program.defaults[name] for name in names if name in program.defaults), None),
        )
        if given is not None:
            made = ast.unparse(given.func).rpartition(".")[2] if isinstance(given, ast.Call) else ""
            with contextlib.suppress(ValueError):
                found = (ast.literal_eval(given), f"{word} of LoraConfig in line {given.lineno}")
            if "linear" in made:
                found = ("all-linear", f"{made} in line {given.lineno}")
        value = None if found is None else convert(found[0])
        if found is not None and value is not None and key in wanted:
            facts.missing.pop(key, None)
            facts.assume_because(key, value, f"{found[1]} of the program")


class _Class(NamedTuple):
    bases: tuple[str, ...]
    fields: tuple[tuple[str, object, str], ...]


def _program(ask: Ask, path: Path) -> Program:
    """A program and the modules of its repository that it imports."""
    left, seen = [path], set[Path]()
    classes: dict[str, list[_Class]] = {}
    words, turns_on, parsed, frozen = set[str](), set[str](), set[str](), ""
    adapters: list[ast.Call] = []
    found: dict[str, list[tuple[object, str]]] = {}
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
        for owner in (node for node in syntax.body if isinstance(node, ast.ClassDef)):
            bases = tuple(ast.unparse(base).rpartition(".")[2] for base in owner.bases)
            fields = tuple((key, value, f"{module.name}:{line} {key}") for key, value, line in _fields(owner))
            classes.setdefault(owner.name, []).append(_Class(bases, fields))
        words |= _words(syntax)
        turns_on |= set(_turned_on(syntax))
        frozen = frozen or next((f"{module.name}:{line}" for line in _frozen(syntax)), "")
        parsed |= set(_parsed(syntax))
        for key, value, line in _arguments(syntax):
            found.setdefault(key, []).append((value, f"{module.name}:{line} {key}"))
        adapters += [node for node in ast.walk(syntax) if isinstance(node, ast.Call) and _called(node) == "LoraConfig"]
        for name, paths in _imported(ask, module, syntax):
            left += [each for each in paths if each not in seen]
            is_whole = is_whole and (bool(paths) or name.partition(".")[0] in PACKAGES)
    for each in _of_parser(classes, parsed):
        for key, value, place in each.fields:
            found.setdefault(key, []).append((value, place))
    alone = {key: each[0] for key, each in found.items() if len({str(value) for value, _ in each}) == 1}
    turns_on |= {key for key in SHARD if key in alone and alone[key][0] not in (None, "", False)}
    return Program(
        {key: each for key, each in alone.items() if each[0] is not None},
        frozenset(found),
        frozenset(words),
        frozenset(turns_on),
        tuple({ast.dump(each): each for each in adapters}.values()),
        frozen,
        is_whole and not left,
    )


def _of_parser(classes: Mapping[str, list[_Class]], parsed: Collection[str]) -> Iterator[_Class]:
    """The classes that a program's parser takes, with those that they extend; all where it names none."""
    left, seen = [*(parsed or classes)], set[str]()
    while left:
        name = left.pop()
        for each in classes.get(name, ()) if name not in seen else ():
            yield each
            left += each.bases
        seen.add(name)


def _called(node: ast.Call) -> str:
    """The last name of what is called."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _parsed(syntax: ast.Module) -> Iterator[str]:
    """Names of classes that a parser of arguments takes."""
    for node in ast.walk(syntax):
        if isinstance(node, ast.Call) and _called(node) in PARSERS and node.args:
            listed = node.args[0].elts if isinstance(node.args[0], ast.Tuple | ast.List) else [node.args[0]]
            yield from (ast.unparse(each).rpartition(".")[2] for each in listed)


def _turned_on(node: ast.AST, *, asked: bool = False) -> Iterator[str]:
    """Names of :data:`TURN_ON` and :data:`SHARD` that a module uses by itself, and not where an argument ``asked``."""
    if isinstance(node, ast.If):
        test = ast.unparse(node.test)
        inside = asked or any(word in test for word in (*CHECKPOINTING, "deepspeed", "fsdp"))
        for part in node.body:
            yield from _turned_on(part, asked=inside)
        for part in node.orelse:
            yield from _turned_on(part, asked=asked)
        return
    if not asked:
        yield from (name for name in _used(node) if name in TURN_ON or name in SHARD)
    for each in ast.iter_child_nodes(node):
        yield from _turned_on(each, asked=asked)


def _frozen(node: ast.AST) -> Iterator[int]:
    """Lines that keep weights as they are, where no argument asks for it and no other model is meant."""
    about = next((part for key in ("test", "iter", "func") if (part := getattr(node, key, None)) is not None), None)
    name = ast.unparse(about) if isinstance(about, ast.expr) else str(getattr(node, "name", ""))
    if re.search(_ASKED, name.lower()):
        return
    if isinstance(node, ast.Call) and _called(node) == "requires_grad_" and node.args and not _is_set(node.args[0]):
        yield node.lineno
    elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and node.value.value is False:
        yield from (node.lineno for each in node.targets if getattr(each, "attr", "") == "requires_grad")
    for each in ast.iter_child_nodes(node):
        yield from _frozen(each)


_ASKED: Final = r"\.grad\.|args|config|cfg|freez|frozen|tune|lora|peft|ref|teacher|reward|critic|visi|encoder|tower|ema"
"""Words of conditions, functions and models by which weights are kept on purpose or belong to another model."""


def _used(node: ast.AST) -> Iterator[str]:
    """What a node calls, sets to more than nothing, or passes as a constant."""
    if isinstance(node, ast.Call):
        name = _called(node)
        yield name
        yield CHECKPOINTING[0] if CHECKPOINTING[0] in name and any(_is_set(each) for each in node.args[1:]) else ""
        yield "deepspeed" if ast.unparse(node.func) == "deepspeed.initialize" else ""
        yield from (each.arg for each in node.keywords if each.arg is not None and _is_set(each.value))
    elif isinstance(node, ast.Assign) and _is_set(node.value):
        yield from (each.attr for each in node.targets if isinstance(each, ast.Attribute))
    elif isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        yield from (str(key.value) for key, value in pairs if isinstance(key, ast.Constant) and _is_set(value))


def _is_set(node: ast.expr) -> bool:
    """Whether a value is on whatever the arguments are: no name that is passed on, no constant that is off."""
    return bool(node.value) if isinstance(node, ast.Constant) else not isinstance(node, ast.Attribute | ast.Name)


def _syntax(path: Path) -> ast.Module | None:
    from shardplan.launch.read.python import syntax_of

    try:
        return syntax_of(path)
    except ShardplanError:
        return None


def _fields(owner: ast.ClassDef) -> Iterator[tuple[str, object, int]]:
    """Fields of a class: ``name: int = 512``, or ``field(default=512)``; None where there is no plain default."""
    for node in owner.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            value = None if node.value is None else _default(node.value)
            yield node.target.id, value.value if isinstance(value, ast.Constant) else None, node.lineno


def _arguments(syntax: ast.Module) -> Iterator[tuple[str, object, int]]:
    """Arguments of an ``argparse.ArgumentParser`` by name; a switch is off where nobody gives it."""
    for node in ast.walk(syntax):
        if not isinstance(node, ast.Call) or _called(node) != "add_argument":
            continue
        given = {each.arg: each.value for each in node.keywords}
        value = given.get("default", given.get("action"))
        names = [each.value for each in node.args if isinstance(each, ast.Constant) and str(each.value)[:2] == "--"]
        default = value.value if isinstance(value, ast.Constant) else None
        for name in names:
            yield str(name)[2:].replace("-", "_"), False if default == "store_true" else default, node.lineno


def _default(node: ast.expr) -> ast.expr | None:
    """What a field is where nobody gives it."""
    if not isinstance(node, ast.Call):
        return node
    return next((each.value for each in node.keywords if each.arg == "default"), None)


def _words(syntax: ast.Module) -> set[str]:
    """Names, attributes and imports of a module."""
    found = set[str]()
    for node in ast.walk(syntax):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.alias):
            found.add(node.name)
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
    "loguru", "flash_attn", "sentencepiece", "jsonlines", "cv2", "decord", "av", "imageio", "matplotlib", "ray",
    "qwen_vl_utils", "ujson", "orjson", "jinja2", "regex", "absl", "psutil", "tiktoken", "timm", "open_clip",
    "soundfile", "librosa", "moviepy", "nltk", "rouge_score", "fire", "hydra", "termcolor", "colorama", "tabulate",
    "easydict", "attr", "attrs", "pydantic", "dotenv", "s3fs", "boto3", "petrel_client", "swanlab", "mlflow",
    "sentence_transformers", "faiss", "networkx", "shapely", "pycocotools", "xformers", "triton", "apex", "ninja",
    "torch_npu", "torch_xla", "ftfy", "word2number", "sympy", "langdetect", "tensorboardX", "aiohttp", "openai",
}  # fmt: skip
"""Packages that are no part of a repository and turn no recomputation on."""

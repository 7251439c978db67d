"""How many values of real launch scripts are read right: by framework, by construct and by column.

    python benchmarks/launch_corpus.py CORPUS.csv FOLDER [--wrong] [--rows 001,002]

``CORPUS.csv`` has a row per script with the values that a person reads in it: blank is not stated, ``~x`` the
framework's default, ``env:NAME`` and ``arg:N`` what the script leaves open. ``FOLDER`` holds the scripts as
``ID/PATH``, with the files that they source. A value is *right*, *asked for* (the reader names what it needs), *silent*
(no answer), *refused* (the file is not read, with an error) or *wrong*. Where the number of accelerators is asked for,
it is given, so that what follows from it is counted too.
"""

from __future__ import annotations

import argparse
import csv
import re
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from shardplan.base.errors import ShardplanError
from shardplan.base.words import folded
from shardplan.launch.audit.question import posed, stops, violations
from shardplan.launch.dialects.ask import Ask
from shardplan.launch.dialects.models import model_of
from shardplan.launch.dialects.read import read_launch
from shardplan.launch.dialects.reading import Reading

COLUMNS: Mapping[str, str] = {
    "layers": "num_hidden_layers", "hidden": "hidden_size", "ffn": "intermediate_size", "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads", "vocab": "vocab_size", "max_positions": "max_position_embeddings",
    "experts": "num_experts", "topk": "num_experts_per_tok", "nodes": "nodes", "per_node": "per_node",
    "num_accelerators": "num_accelerators", "tp": "tp", "pp": "pp", "vp": "vp", "cp": "cp", "ep": "ep", "etp": "etp",
    "sharding": "sharding", "micro_batch_size": "micro_batch_size", "global_batch_size": "global_batch_size",
    "gradient_accumulation": "gradient_accumulation", "sequence_length": "sequence_length", "precision": "precision",
    "recompute": "recompute", "sequence_parallel": "sequence_parallel", "optimizer": "optimizer", "offload": "offload",
}  # fmt: skip
"""Columns of the corpus and the keys of a reading."""
MEANT = {"fsdp": "zero3", "none": "ddp", "adamw": "adam", "int8": "int8", "yes": "true", "no": "false"}
POLICIES_OF_MAXTEXT = {
    "minimal_with_context": "activation,layernorm",
    "minimal": "activation,core_attn,layernorm",
    "qkv_proj_offloaded": "activation,core_attn,layernorm,mlp",
}
OPEN = re.compile(r"(env|arg|cmd|arith|placeholder)\b")


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--wrong", action="store_true", help="list what is not right")
    parser.add_argument("--rows", default="", help="ids of some rows, with commas")
    given = parser.parse_args()
    rows = [row for row in csv.DictReader(given.corpus.open(encoding="utf-8")) if _wanted(row, given.rows)]
    results = [each for row in rows for each in _row(row, given.folder)]
    if given.wrong:
        for row, column, verdict, text in results:
            if verdict != "right":
                print(f"{row['id']:5} {row['framework']:14} {column:22} {verdict:10} {text}")
    for name in ("framework", "difficulty"):
        _table(name, [(row[name], verdict) for row, _, verdict, _ in results if verdict != "not there"])
    _table("column", [(column, verdict) for _, column, verdict, _ in results if verdict != "not there"])
    absent = Counter(row["framework"] for row, _, verdict, _ in results if verdict == "not there")
    print(f"scripts that are not in the folder: {sum(absent.values())}", dict(absent))


def _wanted(row: Mapping[str, str], ids: str) -> bool:
    return not ids or row["id"] in ids.split(",")


Result = tuple[dict[str, str], str, str, str]


def _row(row: dict[str, str], folder: Path) -> Iterator[Result]:
    """The verdict on every value of a row."""
    path = folder / row["id"] / row["path"]
    if not path.exists():
        yield row, "", "not there", ""
        return
    try:
        reading = _read(row, path)
    except (ShardplanError, NotImplementedError) as error:
        for column in COLUMNS:
            if row[column]:
                yield row, column, "refused", str(error)[:100]
        return
    for column, key in COLUMNS.items():
        if row[column]:
            own = "per_device_batch_size" if (column, row["framework"]) == ("micro_batch_size", "MaxText") else key
            yield (row, column, *_verdict(column, own, CORRECTED.get((row["id"], column), row[column]), reading))
    yield from _fits(row, reading)


CORRECTED: Mapping[tuple[str, str], str] = {
    ("056", "ffn"): "28672",
    ("058", "pp"): "1",
    ("028", "micro_batch_size"): "3",
    ("031", "sharding"): "zero1",
    ("032", "sharding"): "zero1",
}
"""Values as the notes of the corpus correct them: a third of swiglu's width, no pipeline engine, the JSON's own; the
corpus has stage 0 where DeepSpeed's bf16 optimizer shares its states as stage 1 does."""


def _read(row: Mapping[str, str], path: Path) -> Reading:
    """The reading; where it asks for the number of accelerators, that of the row is the answer to the question."""
    ask = _ask(row, _edited(row, _excerpt(path)))
    reading = read_launch(ask)
    if "num_accelerators" not in reading.missing or not row["num_accelerators"].isdigit():
        return reading
    answered = read_launch(replace(ask, given={"num_accelerators": row["num_accelerators"]}))
    facts = {key: fact for key, fact in answered.facts.items() if key != "num_accelerators"}
    return replace(answered, facts=facts, missing={**answered.missing, "num_accelerators": ("--gpus",)})


def _edited(row: Mapping[str, str], path: Path) -> Path:
    """The file; where the row is of a variable that is edited in it, a copy of its folder with that change."""
    edit = re.match(r"(\w+) edited to (\S+)", row["entry"])
    if edit is None:
        return path
    folder = Path(shutil.copytree(path.parent, tempfile.mkdtemp(), dirs_exist_ok=True))
    text = path.read_text(encoding="utf-8")
    (folder / path.name).write_text(re.sub(rf"^{edit[1]}=.*$", f"{edit[1]}={edit[2]}", text, flags=re.MULTILINE))
    return folder / path.name


def _excerpt(path: Path) -> Path:
    """The file; of a page of documentation the YAML block that it shows."""
    if path.suffix != ".md":
        return path
    blocks = re.findall(r"^(compute_environment:.*?)```", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    block = next((each for each in blocks if "megatron_lm" in each), "")
    excerpt = Path(tempfile.mkdtemp()) / "excerpt.yaml"
    excerpt.write_text(block, encoding="utf-8")
    return excerpt


def _ask(row: Mapping[str, str], path: Path) -> Ask:
    """The file with the arguments and the function that the row names."""
    entry = row["entry"]
    arguments = re.findall(r"\$1=(\w+)", entry)
    name = re.match(r"(\w+)\(\)$", entry)
    return Ask(path=path, arguments=arguments, entry=None if name is None else name[1])


def _verdict(column: str, key: str, expected: str, reading: Reading) -> tuple[str, str]:
    found, is_open = reading.value(key), key in reading.missing
    wanted = expected.removeprefix("~")
    if found is None:
        built = _of_model(column, reading) if not is_open else None
        found = built
    text = f"expected {expected}, read {found!r}"
    if found is not None:
        fact = reading.facts.get(key)
        return ("right" if _same(column, wanted, found) else "wrong"), f"{text} ({'' if fact is None else fact.why})"
    if is_open:
        return ("right" if OPEN.match(wanted) else "asked for"), f"{text}, needs {', '.join(reading.missing[key])}"
    if OPEN.match(wanted):
        return "right", text
    return "silent", text


def _of_model(column: str, reading: Reading) -> object:
    """Dimensions of a model that is named."""
    if column not in {"layers", "hidden", "vocab"} or reading.value("model") is None:
        return None
    model = model_of(reading)
    return (
        None
        if model is None
        else {"layers": model.num_hidden_layers, "hidden": model.hidden_size, "vocab": model.vocab_size}[column]
    )


def _same(column: str, wanted: str, found: object) -> bool:
    """Whether a value is what the corpus says, in its words."""
    default = re.match(r"(?:env|arg):\w+=(.*)", wanted)
    wanted = default[1] if default else wanted
    wanted = wanted.split("->")[-1].split(" (")[0].split(";")[0].strip()
    if column in {"precision", "recompute", "offload", "optimizer"}:
        is_op = found == "op_sac" and wanted == "selective"  # torchtitan's word for it
        return is_op or _word(column, wanted) == _word(column, str(found))
    if isinstance(found, bool):
        return folded(wanted) in ({"yes", "true"} if found else {"no", "false"})
    if isinstance(found, int | float):
        number = re.search(r"\d[\d_]*(?:\.\d+)?", wanted)
        return number is not None and float(number[0].replace("_", "")) == float(found)
    return folded(MEANT.get(wanted.lower(), wanted)) == folded(str(found))


def _word(column: str, text: str) -> str:
    """A word of a column in one spelling."""
    low = text.lower()
    if column == "precision":
        known = ("nvfp4", "mxfp8", "fp8", "int8", "fp16", "bf16", "fp32")
        return next((word for word in known if word in low), low)
    if column == "recompute":
        return _recompute(low)
    one = {"optimizer": "adam", "offload": "optimizer"}[column]
    return one if one in low else low


def _recompute(low: str) -> str:
    """Modules in one order; ``full:uniform:1`` is full."""
    if low.startswith("full"):
        return "full"
    if low in {"selective:op", "op_sac"}:
        return "op"  # torchtitan's selective
    modules = low.removeprefix("selective:").replace("moe_act", "activation")
    return POLICIES_OF_MAXTEXT.get(low, ",".join(sorted(modules.split(","))))


def _fits(row: dict[str, str], reading: Reading) -> Iterator[Result]:
    """Whether a script that cannot run is reported so, and one that can is not."""
    wanted = row["fits_as_written"].split(":")[0].strip()
    if wanted not in {"yes", "no"}:
        return
    broken = violations(reading, posed(reading, None, None))
    says = "no" if stops(broken) else "yes"
    why = "; ".join(f"{each.rule}: {each.values}" for each in broken if each.severity == "stops")
    verdict = "right" if says == wanted else "wrong"
    yield row, "fits_as_written", verdict, f"expected {row['fits_as_written']}, read {says} {why}"


def _table(name: str, pairs: list[tuple[str, str]]) -> None:
    verdicts = ("right", "asked for", "silent", "refused", "wrong")
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for group, verdict in pairs:
        counts[group][verdict] += 1
        counts["all"][verdict] += 1
    print(f"\n| {name} | values | {' | '.join(verdicts)} | right |\n|---|--:|{'--:|' * (len(verdicts) + 1)}")
    for group in [*(each for each in counts if each != "all"), "all"]:
        total = sum(counts[group].values())
        cells = " | ".join(str(counts[group][verdict]) for verdict in verdicts)
        print(f"| {group} | {total} | {cells} | {100 * counts[group]['right'] / total:.0f} % |")


if __name__ == "__main__":
    main()

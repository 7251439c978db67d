"""Changes that an audit proposes, made in the files as a reader of the answer makes them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

Files = Mapping[str, Any]
"""Texts of scripts and trees of documents, by name; the one that is audited first."""


def written(folder: Path, files: Files) -> Path:
    """Writes them; the path of the first."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else _dumped(name, content), encoding="utf-8")
    return folder / next(iter(files))


def _dumped(name: str, tree: Any) -> str:
    if name.endswith(".json"):
        return json.dumps(tree, indent=2)
    if name.endswith(".toml"):
        sections = ((f"[{key}]", *(f"{k} = {json.dumps(v)}" for k, v in held.items())) for key, held in tree.items())
        return "\n".join(line for section in sections for line in section)
    return yaml.safe_dump(tree, sort_keys=False)


def changed(files: Files, removed: Sequence[str], added: Sequence[str]) -> Files:
    """The files with what a reader of the answer takes out and puts in."""
    made = {
        name: content if isinstance(content, str) else json.loads(json.dumps(content))
        for name, content in files.items()
    }
    main = next(iter(made))
    for text in removed:
        option, file = _with_file(text, made)
        for name in [file] if file else [*made]:
            made[name] = _without(made[name], option) if isinstance(made[name], str) else _pruned(made[name], option)
    for text in added:
        option, file = _with_file(text, made)
        where = file or _place_of(option, made) or main
        content = made[where]
        made[where] = _longer(content, option) if isinstance(content, str) else _grown(content, option)
    return made


def _with_file(text: str, files: Files) -> tuple[str, str | None]:
    """What is printed, and the file that it names: ``--tp 4 (run.sh:3)``."""
    found = re.fullmatch(r"(.*) \(([^()]*?)(?::\d+)?\)", text, re.DOTALL)
    names = [] if found is None else [name for name in files if name.rpartition("/")[2] == found[2]]
    return (text, None) if found is None or not names else (found[1], names[0])


def _place_of(option: str, files: Files) -> str | None:
    """The document that has the section of a key."""
    key = re.match(r"[\w.]+", option)
    if option.startswith("-") or key is None or "." not in key[0]:
        return None
    section = key[0].partition(".")[0]
    return next((name for name, tree in files.items() if isinstance(tree, dict) and section in tree), None)


def _without(line: str, option: str) -> str:
    """A line without options, each with its value."""
    for piece in re.split(r" (?=--|[A-Za-z_]\w*=)", option):
        name = re.match(r"-*[\w.:-]+", piece)
        assert name is not None, piece
        bare = name[0].lstrip("-")
        one = rf"(?<=\s)(?:--{re.escape(bare)}(?:[= ](?!-)\S+)?|{re.escape(bare)}(?:=\S+)?)(?=\s|$)"
        if not re.search(one, line):
            one = one.replace(r"(?!-)", "")
        line = re.sub(one, "", line)
    return line


def _longer(script: str, option: str) -> str:
    """A script with an option at the end of its array of options, or of its last line."""
    array, end, rest = script.partition("\n)\n")
    return f"{array}\n    {option}{end}{rest}" if end else f"{script.rstrip()} {option}\n"


def _keys(option: str) -> list[str]:
    return re.split(r"[:= ]", option, maxsplit=1)[0].lstrip("-").split(".")


def _pruned(tree: Any, option: str) -> Any:
    if OF_LINE in tree:
        for piece in option.split(" --"):
            tree[OF_LINE].pop(f"--{piece.lstrip('-').partition(' ')[0]}", None)
        return tree
    *sections, name = _keys(option)
    for at in _homes(tree, sections):
        at.pop(name, None)
    return tree


OF_LINE: Final = "MODEL_ARGS"
"""The section of a test case that holds options of a line."""


def _homes(tree: Any, sections: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The section of a key; of a key without sections the top."""
    for section in sections:
        tree = tree.get(section) if isinstance(tree, dict) else None
    if isinstance(tree, dict):
        yield tree


def _grown(tree: Any, option: str) -> Any:
    if OF_LINE in tree:
        for piece in option.split(" --"):
            name, _, value = piece.lstrip("-").partition(" ")
            tree[OF_LINE][f"--{name}"] = yaml.safe_load(value) if value else True
        return tree
    *sections, name = _keys(option)
    text = option.lstrip("-")[len(".".join([*sections, name])) :].lstrip(":= ")
    at = tree
    for section in sections:
        at = at.setdefault(section, {})
    at[name] = yaml.safe_load(text) if text else True
    return tree

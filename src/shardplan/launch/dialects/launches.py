"""Launch lines: which program runs with which arguments, on how many nodes and processes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache
from typing import Final

from shardplan.base.fields import dataclass
from shardplan.launch.dialects.settings import Option, Options, options_of, pairs_of
from shardplan.launch.read import parse_script
from shardplan.launch.read.bash.slurm import VARIABLES, value_of
from shardplan.launch.read.facts import Command, Script, Word

BESIDES: Final = re.compile(
    r"convert|conversion|to_huggingface|to_maxtext|preprocess|prepare|inference|generat|eval|benchmark_lm|decode"
    r"|logit_checker|hub[-_]sync|download|upload|merge|plot|tokeniz|(?<![a-z])sampl(?:e|ing)(?![a-z])"
)
"""Names of programs that come before or after a training, and do not train."""


TRAINS: Final = re.compile(r"train|tun(?:e|ing)|sft")
"""What the name of a program that trains may hold besides."""


EVALUATES: Final = frozenset({"eval", "evals", "evaluation"})
"""Folders of programs that do not train."""


def is_beside(program: str) -> bool:
    """Whether a program does not train, by its name or its folder."""
    *folders, name = program.lower().split("/")
    return BESIDES.search(name) is not None or not EVALUATES.isdisjoint(folders)


def last_name(program: str) -> str:
    """What a program is called in its folder or package: ``train.sample`` samples.

    >>> last_name("tools/train_eval.py"), last_name("train.sample")
    ('train_eval', 'sample')
    """
    return re.split(r"[/.]", program.lower().removesuffix(".py"))[-1]


LAUNCHERS: Final = {
    "torchrun": "torchrun",
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "deepspeed": "deepspeed",
    "accelerate": "accelerate",
    "accelerate.commands.launch": "accelerate",
    "srun": "srun",
    "mpirun": "mpirun",
    "mpiexec": "mpirun",
    "msrun": "msrun",
    "composer": "composer",
    "colossalai": "colossalai",
    "paddle.distributed.launch": "paddle",
    "oneflow.distributed.launch": "oneflow",
    "swift": "swift",
    "megatron": "swift",
    "nemo": "nemo",
    "llamafactory-cli": "llamafactory",
    "axolotl": "axolotl",
    "flagscale": "flagscale",
    "tune": "tune",
    "oumi": "oumi",
    "trl": "trl",
    "automodel": "automodel",
    "litgpt": "litgpt",
}
"""Programs that start others, or that are a framework's own."""

CONFIGURED: Final = frozenset({"llamafactory", "axolotl", "tune", "oumi", "trl", "automodel", "litgpt"})
"""Commands that take a configuration."""
OWN: Final = CONFIGURED | {"swift", "nemo", "flagscale", "composer", "colossalai"}
COMMAND: Final = ("--command", "--COMMAND")
"""Options of xpk and gcloud that hold the line that runs on every host."""
DEEPEST: Final = 2
"""Texts within texts that are read as lines."""
MOST_INNER: Final = 64 * 1024
"""Characters of different texts that shells of one script run and that are read."""
REMOTE: Final = ("xpk.py", "multihost_runner.py")
"""Programs that run a line on every host."""
SHELLS: Final = frozenset({"bash", "sh", "/bin/bash", "/bin/sh"})


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A program with its arguments, and the launchers in front of it."""

    program: str
    """File or module; empty where it is not decidable."""
    words: tuple[Word, ...]
    """Its arguments."""
    launchers: tuple[str, ...] = ()
    """Names in the order of the line."""
    options: Mapping[str, Option] = field(default_factory=dict)
    """Options of the launchers; the last one with a name counts."""
    open: tuple[str, ...] = ()
    """What decides words of the launchers that may be further options."""
    command: Command
    """The whole line."""

    def parsed(self, *, bare: frozenset[str] = frozenset(), fold: bool = False) -> Options:
        """The options of the program."""
        return options_of(self.words, bare=bare, fold=fold)

    def pairs(self) -> dict[str, Option]:
        """Its ``key=value`` arguments."""
        return pairs_of(self.words)


def launches(script: Script) -> tuple[Launch, ...]:
    """The commands of ``script`` that run a Python program or a framework's own command."""
    found, inner, of_job = list[Launch](), set[str](), _of_job(script)
    for each in script.commands:
        command = replace(each, exported={**of_job, **each.exported}) if of_job else each
        inner |= set(_inner_texts(script, command))
        if sum(map(len, inner)) <= MOST_INNER:
            launch = _written(script, command) or _launch(command, list(command.words))
        else:
            launch = _launch(command, list(command.words), DEEPEST + 1)
        found += [] if launch is None else [launch]
    return tuple(found)


def _of_job(script: Script) -> dict[str, Word]:
    """Variables of a job that its options decide, which every program of it finds."""
    values = {name: value_of(script.directives, name) for name in VARIABLES} if script.directives else {}
    return {
        name: found[1]._replace(text=found[0], shown=found[0]) for name, found in values.items() if found is not None
    }


def _inner_texts(script: Script, command: Command) -> Iterator[str]:
    """Texts that a shell of this line runs: its words, or a script that was written."""
    if not any(word.text in SHELLS for word in command.words):
        return
    names = {name.rpartition("/")[2]: text.shown for name, text in script.texts.items()}
    for word in command.words:
        yield names.get(word.shown.rpartition("/")[2], word.shown)


def _written(script: Script, command: Command) -> Launch | None:
    """The launch in a script that this one writes and then starts (``torchrun --no-python bash worker.sh``)."""
    texts = {name.rpartition("/")[2]: text for name, text in script.texts.items()}
    for place, word in enumerate(command.words[:-1]):
        name = (command.words[place + 1].text or "").rpartition("/")[2]
        if word.text in SHELLS and name in texts:
            return _inside(texts[name], command, list(command.words[: place + 1]))
    return None


def _inside(text: Word, command: Command, front: list[Word]) -> Launch | None:
    """The last launch of a text, with the options of the line that starts it."""
    inner = _parsed(_with_variables(text), text.file, ())
    started = [each for each in (_launch(one, list(one.words)) for one in inner.commands) if each is not None]
    return replace(_with_front([*front, front[-1]], started[-1]) or started[-1], command=command) if started else None


def _launch(command: Command, words: list[Word], depth: int = 0) -> Launch | None:
    """The program in ``words``; a shell's ``-c`` text is read as words of its own."""
    wrapped = _wrapped(words)
    if wrapped is not None:
        found = _launch(command, words[wrapped + 1 :], depth + 1)
        needs = (f"the program {_program_text(words[_first_program(words)])}",)
        return None if found is None else replace(found, open=(*found.open, *needs))
    start = _program(words)
    if start is None or _program_text(words[start[0]]).endswith(REMOTE):
        inner = None if depth > DEEPEST else _inner(words, command)
        return _unnamed(command, words) if inner is None else _with_front(words, _launch(command, inner, depth + 1))
    place, skip = start
    front = words[:place]
    names = _launchers(front + words[place : place + 1])
    return Launch(
        program=_program_text(words[place]),
        words=tuple(words[place + skip :]),
        launchers=names,
        options=_front_options(front),
        open=_open_front(front),
        command=command,
    )


def open_words(words: Sequence[Word]) -> Iterator[str]:
    """Variables in whose place a program or options may stand: whole words that are the value of no option."""
    for place, word in enumerate(words):
        is_value = place and words[place - 1].shown.startswith("-") and "=" not in words[place - 1].shown
        if word.text is None and not is_value and (found := re.fullmatch(r"<env:(\w+)>[\w/.]*", word.shown)):
            yield found[1]


OF_PROGRAMS: Final = (
    "--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--per_device_train_batch_size",
    "--per-device-train-batch-size",
)  # fmt: skip
"""Options of training programs that no launcher has."""


def _unnamed(command: Command, words: list[Word]) -> Launch | None:
    """A line whose program is not decidable, and whose options say what it is."""
    place = next((place for place, word in enumerate(words) if word.shown.partition("=")[0] in OF_PROGRAMS), None)
    undecided = [place for place, word in enumerate(words[:place]) if word.text is None]
    if place is None or not undecided:
        return None
    first = next((each for each in undecided if _stands_alone(words, each)), undecided[0])
    return Launch(
        program=words[first].shown,
        words=tuple(words[first + 1 :]),
        launchers=_launchers(words[:first]),
        options=_front_options(words[:first]),
        open=words[first].needs,
        command=command,
    )


def _stands_alone(words: Sequence[Word], place: int) -> bool:
    """Whether a word is neither an option nor the value of one."""
    before = words[place - 1].shown if place else ""
    return not words[place].shown.startswith("-") and not (before.startswith("-") and "=" not in before)


def _wrapped(words: Sequence[Word]) -> int | None:
    """The place of ``--`` where a program of one's own starts the launcher behind it."""
    for place, word in enumerate(words[:-1]):
        if word.text == "--" and (words[place + 1].text or "").rsplit("/", 1)[-1] in LAUNCHERS:
            return place if _first_program(words) < place else None
    return None


def _first_program(words: Sequence[Word]) -> int:
    """The place of the first program in Python; behind all words where there is none."""
    return next((place for place, word in enumerate(words) if _program_text(word).endswith(".py")), len(words))


def _with_front(words: list[Word], launch: Launch | None) -> Launch | None:
    """The launch inside a shell's text, with the options of the line around it."""
    if launch is None:
        return None
    around = _front_options([each for each in words[:-1] if not each.shown.startswith(COMMAND)])
    return Launch(
        program=launch.program,
        words=launch.words,
        launchers=(*_launchers(words[:-1]), *launch.launchers),
        options={**around, **launch.options},
        open=(*_open_front(words[:-1]), *launch.open),
        command=launch.command,
    )


def _inner(words: Sequence[Word], command: Command) -> list[Word] | None:
    """The words of the text that a shell runs with ``-c``; that shell puts exported variables in it."""
    for place, word in enumerate(words[:-1]):
        if word.text in SHELLS:
            rest = [
                each for each in words[place + 1 :] if each.text is None or " " in each.text or each.text[:1] != "-"
            ]
            return _expanded(rest[0], command) or _split(rest[0]) if rest else None
    for place, word in enumerate(words):
        name, _, value = (word.text if word.text is not None else word.shown).partition("=")
        if name in COMMAND and value:
            return _split(word._replace(text=None if word.text is None else value, shown=value))
        if name in COMMAND and place + 1 < len(words):
            return _split(words[place + 1])
    if len(words) > 1 and (words[0].text == "eval" or (words[0].text in LAUNCHERS and " " in (words[-1].text or ""))):
        return [each for word in words[1:] for each in _split(word)]
    return None


def _expanded(word: Word, command: Command) -> list[Word] | None:
    """The words of the last line in a text that starts a program, with exported variables in their places.

    A text that is not decidable is read so where it has several lines.
    """
    if "\n" not in word.shown.strip() if word.text is None else "$" not in word.text and "\n" not in word.text:
        return None
    exported = tuple((name, each.shown) for name, each in command.exported.items())
    inner = _parsed(_with_variables(word), word.file, exported)
    started = [(_program(each.words), each.words) for each in inner.commands]
    found = [(_program_text(words[place[0]]), words) for place, words in started if place is not None]
    training = [words for program, words in found if not is_beside(program)] or [words for _, words in found]
    ranked = [words for words in training if _launchers(words)] or training
    return [_opened(each, word) for each in ranked[-1]] if ranked else None


def _with_variables(text: Word) -> str:
    """A text with variables in the places of the marks for them; other marks are no redirections."""
    if text.text is not None:
        return text.text
    shown = re.sub(r"<env:(\w+)>", r"${\1}", text.shown)
    return _NEED.sub(lambda mark: re.sub(r"(\W)", r"\\\1", mark[0]), shown)


@lru_cache(maxsize=4)
def _parsed(text: str, file: str, exported: tuple[tuple[str, str], ...]) -> Script:
    """A text as a script; the same one is often started again and again."""
    return parse_script(text, file, env=dict(exported))


def _opened(each: Word, outer: Word) -> Word:
    """A word of an inner text at the place of the outer one; it is open where it holds what is not decided."""
    shown = _GUARDED.sub(lambda mark: mark[0].replace("\\", ""), each.shown)
    needs = tuple(_NEED.findall(shown))
    text = None if needs else each.text
    return each._replace(text=text, shown=shown, line=outer.line, needs=needs or each.needs)


_GUARDED: Final = re.compile(r"\\<(?:env|arg|cmd|code|file)\\:[^<>]*\\>")
"""A mark between double quotes, where the backslashes in front of its characters stay."""
_NEED: Final = re.compile(r"<((?:env|arg|cmd|code|file):[^<>]*)>")


def _split(word: Word) -> list[Word]:
    text = word.text if word.text is not None else word.shown
    marks = [found[0] for found in _NEED.finditer(text)]
    text = _NEED.sub("\0", text)  # a mark is one piece of a word, whatever blanks and quotes it shows
    try:
        parts = shlex.split(text, comments=True)
    except ValueError:
        parts = text.split()
    left = iter(marks)
    return [_piece(re.sub("\0", lambda _: next(left, ""), part), word) for part in parts]


def _piece(part: str, word: Word) -> Word:
    """A word of a text; it is open where a mark of something undecided is in it."""
    opens = [need for need in word.needs if f"<{need}>" in part]
    return Word(text=None if opens else part, shown=part, line=word.line, file=word.file, needs=tuple(opens))


MODULES: Final = frozenset({"pip", "venv", "ensurepip", "json.tool", "http.server", "site"})
"""Modules of Python that train nothing."""
_UNDECIDED: Final = re.compile(r"<(?:env|arg|cmd|code|file):.*>", re.DOTALL)
"""What is not decidable of a word, as it is shown."""
TOOLS: Final = frozenset(
    {
        "sed", "cp", "mv", "cat", "rm", "chmod", "grep", "tar", "git", "ln", "ls", "diff", "touch", "wget", "curl",
        "gsutil", "aws", "mkdir", "echo", "printf", "head", "tail", "tee", "vim", "wc", "unzip", "rsync", "scp",
    }
)  # fmt: skip
"""Commands whose arguments are files and not programs."""


OF_UV: Final = frozenset(
    {"--extra", "--with", "--group", "--package", "--project", "--env-file", "--job-name", "--name"}
)
"""Options whose value may be called like a command (``uv run --extra megatron``)."""


def _program(words: Sequence[Word]) -> tuple[int, int] | None:
    """Place of the program's word, and how many words lead up to its arguments."""
    if words and words[0].text in TOOLS:
        return None
    for place, word in enumerate(words):
        text = _program_text(word)
        if not text or text.startswith("-"):
            continue
        known = _UNDECIDED.sub("", text)
        if text.endswith(".py") and " " not in known and "=" not in known:
            return place, 1
        before = words[place - 1].text if place else None
        if (
            before in {"-m", "--module"}
            and text not in MODULES
            and text not in LAUNCHERS
            and _runs_python(words[: place - 1])
        ):
            return place, 1
        is_own = LAUNCHERS.get(text.rsplit("/", 1)[-1]) in OWN and before not in OF_UV
        if is_own and (place == 0 or not text.startswith("/")):
            if any(_program_text(each).endswith(".py") for each in words[place + 1 :]):
                continue
            return place, 1
    return None


def _runs_python(words: Sequence[Word]) -> bool:
    texts = [(word.text or word.shown).rsplit("/", 1)[-1] for word in words]
    return any(text.startswith("python") or text in {"uv", *LAUNCHERS} or "<" in text for text in texts)


def _program_text(word: Word) -> str:
    return word.text if word.text is not None else (word.shown if word.shown.endswith(".py") else "")


def _launchers(words: Sequence[Word]) -> tuple[str, ...]:
    values = {place + 1 for place, word in enumerate(words) if word.text in OF_UV}
    names = [
        LAUNCHERS.get((word.text or "").rsplit("/", 1)[-1]) for place, word in enumerate(words) if place not in values
    ]
    return tuple(name for name in names if name)


def _front_options(words: Sequence[Word]) -> dict[str, Option]:
    """Options of launchers; each takes one value."""
    return {name: replace(each, words=each.words[:1]) for name, each in options_of(words).given.items()}


def _open_front(words: Sequence[Word]) -> tuple[str, ...]:
    """What decides undecided words that may hold options of a launcher."""
    return tuple(need for word in options_of(words).open for need in word.needs or (word.shown,))

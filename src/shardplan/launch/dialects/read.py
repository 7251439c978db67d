"""A launch file of any kind as a :class:`Reading`: which framework it is of, and what it says."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from shardplan.base.errors import InputError, shortened
from shardplan.base.files import read_text
from shardplan.launch.dialects import deepspeed
from shardplan.launch.dialects.ask import (
    Ask,
    Environment,
    begin,
    listed,
    named_document,
    refuse_by_command,
    refused_command,
    refused_options,
    take_given,
    take_notes,
    unread,
    unread_variables,
)
from shardplan.launch.dialects.callers import launches_with
from shardplan.launch.dialects.companions import (
    join_companions,
    model_file,
    note_no_shards,
    take_comment,
    take_one_node,
)
from shardplan.launch.dialects.configurations import OF_DEEPSPEED, finish_batch, settings_facts
from shardplan.launch.dialects.configured import configuration_of, configured_facts, trains
from shardplan.launch.dialects.edits import NONE
from shardplan.launch.dialects.frameworks import mlperf, olmo_core
from shardplan.launch.dialects.frameworks.line_frameworks import dialect_of_line
from shardplan.launch.dialects.launches import (
    CONFIGURED,
    LAUNCHERS,
    TRAINS,
    Launch,
    is_beside,
    last_name,
    launches,
    open_words,
)
from shardplan.launch.dialects.lines import is_of_fsdp, other_facts, record_facts, setting_of, settings_of_line
from shardplan.launch.dialects.megatron_core import forks, megatron
from shardplan.launch.dialects.megatron_core.megatron_options import BARE
from shardplan.launch.dialects.megatron_core.megatron_options import VERSION as MEGATRON_VERSION
from shardplan.launch.dialects.megatron_core.recipes import is_recipe, recipe_facts
from shardplan.launch.dialects.reading import ONE_NODE, Facts, Reading, plain_name
from shardplan.launch.dialects.settings import Options, Settings, options_of
from shardplan.launch.dialects.world import world
from shardplan.launch.read import Script, Word, read_document, read_script
from shardplan.launch.read.bash.slurm import SHORT
from shardplan.launch.read.facts import ENDS, UNREAD
from shardplan.launch.read.trees import LONG_FILE

MOST_OF_LINE: Final = 1000
"""Characters of a line that is looked at for a placeholder."""
MOST_FOLLOWED: Final = 3
"""Scripts that start one another."""


def script_facts(ask: Ask, followed: int = 0) -> Facts:
    """A shell script: the launch that trains, in it or in a script next to it that it starts."""
    folders = ask.places.folders(ask.path.parent)
    script = read_script(
        ask.path, env=ask.env, arguments=ask.arguments, folders=folders, directives=ask.directives, node=ask.node
    )
    ask = replace(ask, unset_is_open=any(UNREAD in note for note in script.notes))
    found = launches(script)
    launch = _chosen(found)
    if launch is not None and ask.edits != NONE:
        launch = ask.edits.in_launch(launch, ask.path.name)
    other = other_script(ask, script) if launch is None and followed < MOST_FOLLOWED else None
    if other is not None:
        facts = script_facts(other, followed + 1)
        facts.note(f"{ask.path.name} starts {other.path.name}, which was read too")
        facts.asked |= script.asked
        return facts
    if launch is None and found:
        programs = ", ".join(dict.fromkeys(shortened(each.program, 60) for each in found[:MOST_FOLLOWED]))
        raise unread(ask.path, f"a script that converts, prepares or evaluates, and trains nothing: {programs}")
    facts = _of_launch(ask, script, launch) if launch is not None else _fragment(ask, script)
    if len(found) > 1 and launch is not None:
        facts.note(f"{len(found)} programs are started; line {launch.command.line} is read: {launch.program}")
    _of_script(facts, script, launch)
    facts.names |= {plain_name(word.shown) for word in (launch.words if launch is not None else ())}
    facts.asked |= script.asked
    return facts


def other_script(ask: Ask, script: Script) -> Ask | None:
    """The script next to this one that it starts last."""
    for command in reversed(script.commands):
        texts = [word.text or "" for word in command.words]
        place = next((i for i, each in enumerate(texts) if each.endswith((".sh", ".slurm", ".sbatch"))), None)
        if place is None or not (place == 0 or texts[0] in STARTERS):
            continue
        path = ask.places.find(texts[place], ask.path.parent)
        if path is not None and path != ask.path:
            return replace(
                ask,
                path=path,
                env={**ask.env, **{name: word.shown for name, word in command.exported.items()}},
                arguments=tuple(word.shown for word in command.words[place + 1 :]),
                directives=_scheduled(command.words[1:place]) if texts[0] == "sbatch" else script.directives,
            )
    return None


STARTERS: Final = ("bash", "sh", "sbatch", "exec", "nohup", "qsub", "srun")
"""Commands that start a script."""


def _scheduled(words: Sequence[Word]) -> dict[str, Word]:
    """Options of ``sbatch`` by long name."""
    given = options_of(words).given
    return {SHORT.get(name, name): option.words[0] for name, option in given.items() if option.words}


def _of_script(facts: Facts, script: Script, launch: Launch | None) -> None:
    """Notes of the reader, conditions, and the environment that changes how a run behaves."""
    for number, line in _placeholders(script.file):
        facts.breaks_rule("placeholders are filled in", f"line {number}: {line}", "put a value in its place")
    _lost(facts, script)
    for text in script.notes:
        facts.note(text)
    for condition in () if launch is None else launch.command.when:
        facts.note(f"runs only if {condition}")
    blocking = script.environment.get("CUDA_LAUNCH_BLOCKING")
    if blocking is not None and blocking.text == "1":
        place = f"{blocking.file}:{blocking.line} CUDA_LAUNCH_BLOCKING"
        facts.state("software.blocking_launches", value=True, place=place, option="CUDA_LAUNCH_BLOCKING")


def _lost(facts: Facts, script: Script) -> None:
    """Options that a comment or a blank line cuts off from their program."""
    lost = [each for each in script.commands if each.words and (each.words[0].text or "").startswith("--")]
    if lost:
        first, more = lost[0], f", and so {len(lost) - 1} lines after it" if len(lost) > 1 else ""
        name = shortened(first.words[0].shown, 60)
        facts.breaks_rule(
            "options stand on the line of their program",
            f"line {first.line}: {name} begins a command of its own: the launch ends before it{more}",
            "take out what ends the line before: a comment, a blank line or a blank after its backslash",
            "changes",
        )


PLACEHOLDER: Final = re.compile(r"\s*(?:export\s+)?\w+=<[A-Za-z][^<>\n]{0,80}>.*")
"""An unquoted ``NAME=<text>``, which a shell takes for a redirection."""


def _placeholders(file: str) -> Iterator[tuple[int, str]]:
    """Lines that assign a placeholder, which stop the script."""
    for number, line in enumerate(read_text(Path(file), LONG_FILE).splitlines(), 1):
        if len(line) < MOST_OF_LINE and PLACEHOLDER.fullmatch(line):
            yield number, shortened(line.strip(), 60)


def _chosen(found: Sequence[Launch]) -> Launch | None:
    """The last launch with a launcher in front or with degrees; the one that trains comes last in most files.

    Programs that convert, prepare or evaluate train only where their name says so too.
    """
    training = [each for each in found if not is_beside(each.program)]
    training = training or [each for each in found if TRAINS.search(last_name(each.program))]
    training = [each for each in training if trains(each)] or training
    ranked = [each for each in training if megatron.is_megatron(_options(each)[0]) or each.launchers]
    return next(reversed(ranked or training), None)


def _of_launch(ask: Ask, script: Script, launch: Launch) -> Facts:
    """The dialect of a launch line."""
    options, version = _options(launch)
    has_own = "llamafactory" in launch.launchers or configuration_of(launch) is not None
    if not CONFIGURED.isdisjoint(launch.launchers) and has_own:
        return configured_facts(ask, script, launch)
    known = dialect_of_line(launch, settings_of_line(launch))
    if known is not None:
        return record_facts(ask, script, launch, known)
    refused = refused_command(launch.program, launch.launchers) or refused_options(options, launch.command)
    if refused is not None:
        raise refuse_by_command(ask.path, refused, launch)
    if megatron.is_megatron(options) and not is_of_fsdp(launch, options):
        if not (TRAINS.search(launch.program.lower()) or megatron.trains(options)):
            raise unread(ask.path, f"a script that trains nothing: {launch.program} gets no rate, steps or batch")
        return _megatron(ask, script, launch, options, version)
    return other_facts(ask, script, launch, options)


def _options(launch: Launch) -> tuple[Options, str]:
    """Options of a line and the version of Megatron-LM that they are of, with hyphens where a fork has underscores."""
    options = launch.parsed(bare=BARE)
    if megatron.is_megatron(options) or "swift" in launch.launchers:
        return options, MEGATRON_VERSION
    folded = launch.parsed(bare=BARE, fold=True).renamed(forks.EPFL_RENAMED)
    return (folded, forks.EPFL) if forks.is_underscored(folded) else (options, MEGATRON_VERSION)


def _megatron(ask: Ask, script: Script, launch: Launch, options: Options, version: str) -> Facts:
    """Megatron's options, with the JSON of DeepSpeed where one is named."""
    config = options.first("deepspeed_config", "deepspeed-config")
    name = "megatron-deepspeed" if config is not None or "zero-stage" in options else megatron.NAME
    facts = begin(ask, name, "main of 2024-08 (4efb479d)" if config is not None else version)
    world(facts, launch, script)
    document = None if config is None else named_document(facts, ask, setting_of(config), script.documents)
    if version == forks.EPFL:
        forks.epfl_facts(facts, options)
    megatron.megatron_facts(facts, options)
    if document is not None:
        deepspeed.file_facts(facts, Settings.of(document))
    elif config is not None:
        for key in OF_DEEPSPEED:
            if key != "optimizer":
                facts.miss(key, (f"the file of {config.place}",))
    if config is not None and "no-pipeline-parallel" not in options:
        deepspeed.bf16_optimizer(facts)
    facts.assume("optimizer", "adam")
    finish_batch(facts)
    return facts


def _fragment(ask: Ask, script: Script) -> Facts:
    """Options in variables, where a script is sourced by another one."""
    words = [piece for word in script.environment.values() for piece in _pieces(word)]
    options = options_of(ask.edits.in_words(words, ask.path.name), bare=BARE)
    if mlperf.is_mlperf(script):
        return mlperf.mlperf_facts(ask, script)
    if not megatron.is_megatron(options) or is_beside(ask.path.name):
        ends = next((f"; {note}" for note in script.notes if ENDS in note), "")
        raise _without_launch(ask, script, ends)
    facts = begin(ask, megatron.NAME, MEGATRON_VERSION)
    facts.unset_is_open = True  # the script that sources it sets variables
    megatron.megatron_facts(facts, options, fragment=True)
    finish_batch(facts)
    return facts


MOST_FRONT: Final = 12
"""Words of a command among which its program is."""


def _without_launch(ask: Ask, script: Script, ends: str) -> InputError:
    """What to say of a script that starts no program that is known: what it runs, and what may start one."""
    lines = [each for each in script.commands if each.words]
    ran = listed(f"{each.words[0].shown} (line {each.line})" for each in reversed(lines))
    starts = (each for each in lines if each.words[0].text is None or each.words[0].text in LAUNCHERS)
    open_ = (name for each in starts for name in open_words(each.words))
    needs = listed(f"--env {name}=VALUE" for name in open_)
    others = listed(
        word.shown
        for each in lines
        for word in each.words[:MOST_FRONT]
        if word.shown.endswith((".sh", ".slurm", ".sbatch"))
    )
    ways = [f"give {needs}, which decides what it starts"] if needs else []
    ways += [f"give {others}, or put it next to this file"] if others else []
    ways += ["give the script or configuration that starts the training program"] if not ways else []
    what = f"a script without a launch that is understood: it runs {ran or 'nothing'}{ends}"
    return unread(ask.path, what, "; or ".join(ways))


def _pieces(word: Word) -> list[Word]:
    text = word.text if word.text is not None else word.shown
    if "--" not in text:
        return []
    return [
        Word(text=None if "<" in part and word.text is None else part, shown=part, line=word.line, file=word.file,
             needs=tuple(need for need in word.needs if need in part), splits=word.text is None and part[:1] == "<")
        for part in _PART.findall(text)
    ]  # fmt: skip


_PART: Final = re.compile(r"(?:<(?:env|arg|cmd|code|file):[^<>]*>|[^\s<]|<)+")
"""A word with marks of what is not decided, which may show blanks."""


DOCUMENTS: Final = (".yaml", ".yml", ".json", ".toml", ".jsonc", ".ini", ".cfg", ".conf")


def read_launch(ask: Ask) -> Reading:
    """What the file says. Raises InputError for a file that is not read, or not by any dialect."""
    suffix = ask.path.suffix.lower()
    if suffix == ".py":
        facts = _python(ask)
    elif suffix in DOCUMENTS:
        facts = _document(ask)
    elif suffix == ".md":
        raise unread(ask.path, "documentation; give the file that its text shows")
    else:
        facts = script_facts(ask)
    join_companions(facts, ask, _document)
    if suffix in DOCUMENTS:
        take_comment(facts, ask)
    take_one_node(facts, ask)
    note_no_shards(facts)
    unread_variables(facts, ask.env)
    config = model_file(facts, ask)  # first: it may note what is not priced of the model
    return replace(facts.reading(), config=config)


def _document(ask: Ask) -> Facts:
    """A configuration alone."""
    asked: set[str] = set()
    document = ask.changed(read_document(ask.path, env=Environment(ask.env, asked), places=ask.places))
    facts = settings_facts(ask, Settings.of(document))
    facts.asked |= asked
    take_notes(facts, document)
    is_open = any(needs != (ONE_NODE,) for key, needs in facts.missing.items() if key != "global_batch_size")
    return (_started(ask) or facts) if is_open and ask.places.starts else facts


def _started(ask: Ask) -> Facts | None:
    """A configuration under the first line of its repository that starts a training with it; None without one."""
    for start, launch in launches_with(ask):
        with contextlib.suppress(InputError):
            facts = _of_launch(start.asked(ask), start.script, launch)
            facts.file = str(ask.path)
            facts.note(f"taken as {start.place} starts it: {start.said}")
            return facts
    return None


def _python(ask: Ask) -> Facts:
    """A configuration in Python, or one of its functions."""
    from shardplan.launch.read.python import read_python

    asked: set[str] = set()
    if olmo_core.is_olmo_core(ask.path) and ask.entry is None:
        return olmo_core.olmo_core_facts(ask)
    document = ask.changed(read_python(ask.path, ask.entry, env=Environment(ask.env, asked)))
    settings = Settings.of(document)
    if is_recipe(settings):
        facts = Facts("", "", str(ask.path))
        take_given(facts, ask)
        recipe_facts(facts, settings, ask.entry)
    else:
        facts = _settings_of_python(ask, settings)
    take_notes(facts, document)
    facts.asked |= asked
    return facts


MOST_LISTED: Final = 30
"""Functions that an error lists."""


def _settings_of_python(ask: Ask, settings: Settings) -> Facts:
    """A configuration at the top of a module. Raises InputError: where its functions are configurations, with them."""
    try:
        return settings_facts(ask, settings)
    except InputError:
        from shardplan.launch.read.python import functions_of

        names = functions_of(ask.path) if ask.entry is None else ()
        if not names:
            raise
        listed = ", ".join(names[:MOST_LISTED]) + (", ..." if len(names) > MOST_LISTED else "")
        raise InputError(
            f"{ask.path} sets nothing outside its functions",
            rule="a configuration in Python is what a module sets, or what one of its functions returns",
            hint=f"name the function that is launched: --entry with one of {listed}",
        ) from None

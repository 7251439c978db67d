"""A launch file of any kind as a :class:`Reading`: which framework it is of, and what it says."""

from __future__ import annotations

from typing import Final

from shardplan.errors import InputError
from shardplan.launch.dialects.ask import Ask, Environment, take_given, take_notes, unread, unread_variables
from shardplan.launch.dialects.configurations import settings_facts
from shardplan.launch.dialects.megatron_core.recipes import is_recipe, recipe_facts
from shardplan.launch.dialects.reading import Facts, Reading
from shardplan.launch.dialects.scripts import script_facts
from shardplan.launch.dialects.settings import Settings
from shardplan.launch.read import read_document

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
    unread_variables(facts, ask.env)
    return facts.reading()


def _document(ask: Ask) -> Facts:
    """A configuration alone."""
    asked: set[str] = set()
    document = read_document(ask.path, env=Environment(ask.env, asked))
    facts = settings_facts(ask, Settings.of(document))
    facts.asked |= asked
    take_notes(facts, document)
    return facts


def _python(ask: Ask) -> Facts:
    """A configuration in Python, or one of its functions."""
    from shardplan.launch.read.python import read_python

    asked: set[str] = set()
    document = read_python(ask.path, ask.entry, env=Environment(ask.env, asked))
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

"""A launch file of any kind as a :class:`Reading`: which framework it is of, and what it says."""

from __future__ import annotations

from typing import Final

from shardplan.launch.dialects.ask import Ask, take_given, take_notes, unread
from shardplan.launch.dialects.configurations import settings_facts
from shardplan.launch.dialects.megatron_core.recipes import is_recipe, recipe_facts
from shardplan.launch.dialects.reading import Facts, Reading
from shardplan.launch.dialects.scripts import script_facts
from shardplan.launch.dialects.settings import Settings
from shardplan.launch.read import read_document, read_python

DOCUMENTS: Final = (".yaml", ".yml", ".json", ".toml", ".jsonc", ".ini", ".cfg")


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
    return facts.reading()


def _document(ask: Ask) -> Facts:
    """A configuration alone."""
    document = read_document(ask.path, env=ask.env)
    facts = settings_facts(ask, Settings.of(document))
    take_notes(facts, document)
    return facts


def _python(ask: Ask) -> Facts:
    """A configuration in Python, or one of its functions."""
    document = read_python(ask.path, ask.entry, env=ask.env)
    settings = Settings.of(document)
    if is_recipe(settings):
        facts = Facts("", "", str(ask.path))
        take_given(facts, ask)
        recipe_facts(facts, settings, ask.entry)
    else:
        facts = settings_facts(ask, settings)
    take_notes(facts, document)
    return facts

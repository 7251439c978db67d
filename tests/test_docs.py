"""The documentation says what the program does: its reference, its pages and its words are checked against the code."""

import ast
import dataclasses
import re
import sys
from enum import StrEnum
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import pytest
import typer
import yaml
from tests.calibrate import published

from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.profile import NOT_CONSTANTS, Profile
from shardplan.inputs.schedule_names import BUILT_IN

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def generate_cli() -> ModuleType:
    return import_module("generate_cli")


def test_the_answer_in_the_readme_is_what_the_program_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "")  # the script sets both, and both are put back
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr("shardplan.calibrate.validate.validate", published.validation)
    assert import_module("generate_readme").main(["--check"]) == 0, "run docs/generate_readme.py"


def test_the_start_page_shows_the_answer_and_the_numbers_of_today(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardplan.calibrate.validate.validate", published.validation)
    assert import_module("generate_start").main(["--check"]) == 0, "run docs/generate_start.py"


def test_the_picture_of_a_step_is_what_the_program_draws() -> None:
    assert import_module("generate_timeline").main(["--check"]) == 0, "run docs/generate_timeline.py"


def test_tables_of_the_pages_are_up_to_date() -> None:
    pytest.importorskip("griffe", reason="comes with the extra 'docs'")
    tables = import_module("generate_tables")
    assert tables.main(["--check"]) == 0, "run python docs/generate_tables.py"


def test_a_new_table_is_a_line_in_a_page() -> None:
    pytest.importorskip("griffe", reason="comes with the extra 'docs'")
    tables = import_module("generate_tables")
    written = tables.filled("Before.\n\n::rules\n\nAfter.\n")
    assert written.startswith("Before.\n\n<!-- rules -->\n\n1. ")
    assert written.endswith("\n\n<!-- end -->\n\nAfter.\n")
    assert tables.filled(written) == written
    assert tables.filled(written.replace("1. ", "2. ")) == written


def test_docstrings_have_links_to_their_source() -> None:
    pytest.importorskip("griffe", reason="comes with the extra 'docs'")
    tables = import_module("generate_tables")
    modules = "::: shardplan.base.units.format_time\n::: shardplan.physics.costs\n"
    page = f"Text.\n\n{modules}    options: {{members: [a]}}\n\nMore.\n"
    written = tables.filled(page, depth=1)
    names = ("base/units.py", "physics/costs/__init__.py")
    links = ", ".join(f"[`{name}`](../../src/shardplan/{name})" for name in names)
    assert f"\n\n<!-- source -->\n\nSource: {links}\n\n<!-- end -->\n\nMore.\n" in written
    assert tables.filled(written, depth=1) == written
    assert tables.for_build(written) == page


def test_links_to_files_of_the_source_tree_lead_somewhere() -> None:
    for page in DOCS.rglob("*.md"):
        for link in re.findall(r"\]\((\.\./[^)#]*src/[^)#]*)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_no_page_needs_a_build_to_show_its_tables() -> None:
    assert not [page for page in DOCS.rglob("*.md") if re.search(r"^::[a-z]", page.read_text(), re.MULTILINE)]


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


def test_the_reference_holds_each_command_with_its_parameters(generate_cli: ModuleType) -> None:
    app = typer.Typer(help="Does things.")

    @app.command(epilog="An example.")
    def paint(
        wall: Annotated[str, typer.Argument(help="What to paint.")],
        colour: Annotated[Colour, typer.Option(help="One | other.", rich_help_panel="Looks")] = Colour.RED,
        coats: Annotated[int, typer.Option("--coats", "-n", help="[bold]How[/bold] often.")] = 2,
    ) -> None:
        """Paint a wall."""

    @app.command(hidden=True)
    def secret() -> None:
        """Not shown."""

    @app.command()
    def clean() -> None:
        """Clean up."""

    text = generate_cli.reference(app, "tool")
    assert re.findall(r"^## `(.*)`$", text, re.MULTILINE) == ["tool", "tool paint", "tool clean"]
    assert "Paint a wall." in text
    assert "An example." in text
    assert "| Looks | meaning | |" in text
    assert re.search(r"--colour.*One \\\| other\. \| default: red \|", text)
    assert re.search(r"-n, --coats.*\| How often\. \| default: 2 \|", text)
    assert "Not shown" not in text


def _flags_of(section: str, panels: dict[str, str]) -> set[str]:
    """Flags of a command: its own, and those of shared tables that it names by their titles."""
    shared = " ".join(text for title, text in panels.items() if f"*{title}*" in section)
    return set(re.findall(r"--[a-z][a-z-]+", section + shared))


def test_commands_of_the_pages_give_flags_that_there_are() -> None:
    shared, *sections = re.split(r"^## `shardplan ?(.*)`$", (DOCS / "cli.md").read_text(), flags=re.MULTILINE)
    panels = dict(re.findall(r"^\| ([A-Z][^|]*) \| meaning (.*?)\n\n", shared, flags=re.MULTILINE | re.DOTALL))
    flags = {name: _flags_of(text, panels) for name, text in zip(*[iter(sections)] * 2, strict=True)}
    wrong = []
    for page in (ROOT / "README.md", *DOCS.rglob("*.md")):
        for block in re.findall(r"^```bash$(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                command, _, _ = line.partition("#")
                _, asked, words = command.partition("shardplan ")
                names = [" ".join(words.split()[:count]) for count in (2, 1)]
                known = next((flags[name] for name in names if name in flags), None)
                given = set(re.findall(r"(?<!\S)--[a-z][a-z-]+", words.partition(" -- ")[0]))
                if asked and known is not None and not given <= known | {"--help"}:
                    wrong.append((page.name, line))
    assert wrong == []


def _pages(entry: Any) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    return [page for part in (entry.values() if isinstance(entry, dict) else entry) for page in _pages(part)]


def test_every_page_is_in_the_navigation() -> None:
    listed = _pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    assert sorted(listed) == sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))


def _glossary_terms() -> list[str]:
    headings = re.findall(r"^### (.+)$", (DOCS / "glossary.md").read_text(), re.MULTILINE)
    return [term for heading in headings for term in heading.split(", ")]


def test_the_glossary_defines_each_word_once() -> None:
    terms = _glossary_terms()
    assert len(terms) == len(set(terms))


def test_the_glossary_defines_every_field_of_a_plan() -> None:
    known = {*_glossary_terms(), "micro_batch_size"}  # under its own word, micro-batch
    assert {field.name for field in dataclasses.fields(Plan)} - known == set()


def test_every_field_of_an_input_says_what_it_is() -> None:
    for record in (Job, Plan):
        source = Path(find_spec(record.__module__).origin or "").read_text()  # type: ignore[union-attr]
        (body,) = (
            node.body
            for node in ast.parse(source).body
            if isinstance(node, ast.ClassDef) and node.name == record.__name__
        )
        described = {
            field.target.id
            for field, text in pairwise(body)
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
            if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
        }
        assert {field.name for field in dataclasses.fields(record)} <= described


def test_every_page_of_the_navigation_has_a_title_of_its_own() -> None:
    def titles(nav: list[Any]) -> list[str]:
        found = [(title, under) for each in nav if isinstance(each, dict) for title, under in each.items()]
        below = [title for _, under in found if isinstance(under, list) for title in titles(under)]
        return [*(title for title, _ in found), *below]

    every = titles(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"])
    assert len(every) > 40
    assert [title for title in every if every.count(title) > 1] == []


@pytest.mark.parametrize("name", ["docs/architecture.md", "docs/extending.md", "CONTRIBUTING.md"])
def test_files_that_a_change_goes_to_are_where_the_page_says(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    paths = [each for each in re.findall(r"`([\w.]+/[\w./]+)`", text) if "NAME" not in each and each[0] != "."]
    folders = (ROOT, ROOT / "src", ROOT / "src" / "shardplan")
    assert [each for each in paths if not any((folder / each).exists() for folder in folders)] == []
    assert len(paths) > 5


def test_every_schedule_has_a_section_and_frameworks() -> None:
    page = (DOCS / "formulas" / "pipeline-schedules.md").read_text(encoding="utf-8")
    frameworks = page.split("## Who runs them")[1].split("##")[0]
    for name, (place, *_) in BUILT_IN.items():
        section = page.split(f"## {name}\n")[1].split("##")[0]
        assert f"::: shardplan.physics.schedules.{place.replace(':', '.')}\n" in section
        assert f"`{name}`" in frameworks


def test_every_constant_of_a_profile_is_shown_with_its_formula() -> None:
    pages = "\n".join(path.read_text(encoding="utf-8") for path in (DOCS / "formulas").glob("*.md"))
    shown = " ".join(re.findall(r"^<!-- constants (.*) -->$", pages, flags=re.MULTILINE)).split()
    assert sorted(shown) == sorted({*(field.name for field in dataclasses.fields(Profile))} - set(NOT_CONSTANTS))

"""Commands of README, the start page, the tutorials and the how-to pages run, and print what the pages show."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def _runner() -> ModuleType:
    spec = importlib.util.spec_from_file_location("run_pages", DOCS / "run_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RUNNER = _runner()
PAGES: list[Path] = RUNNER.pages()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_shows_what_its_commands_print(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert RUNNER.filled(text) == text, "run python docs/run_pages.py"


def test_there_is_a_page_for_each_question() -> None:
    assert PAGES[:2] == [ROOT / "README.md", DOCS / "index.md"]
    assert {page.parent.name for page in PAGES[2:]} == {"tutorials", "howto"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_are_in_blocks_that_are_run(page: Path) -> None:
    blocks = re.findall(r"^```(\w+).*?\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    others = {language for language, code in blocks if re.search(r"^\$? *shardplan \w", code, re.MULTILINE)}
    assert others <= {"bash", "text"}


def test_outputs_follow_their_block(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        '```json title="folder/a.json"\n{}\n```\n\n```python\nimport pathlib\n\nprint("one")\nprint()\n'
        'print("two", pathlib.Path("folder/a.json").read_text())\n```\n\n<!-- output two -->\n\n```text\nold\n```\n\n'
        "```bash\nshardplan --version\n```\n\n<!-- output -->\n\n```text\n```\n\nThe end.\n"
    )
    shown = RUNNER.filled(page.read_text())
    assert "<!-- output two -->\n\n```text\ntwo {}\n```" in shown
    assert re.search(r"<!-- output -->\n\n```text\nshardplan [0-9.]+\n```\n\nThe end\.\n$", shown)
    assert RUNNER.filled(shown) == shown


def test_a_command_that_is_refused_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="unknown model"):
        RUNNER.filled("```bash\nshardplan models llama-9\n```\n")
    with pytest.raises(RuntimeError, match="starts with 'Nowhere'"):
        RUNNER.filled("```bash\nshardplan --version\n```\n\n<!-- output Nowhere -->\n\n```text\n```\n")


def test_files_of_examples_that_pages_name_are_there() -> None:
    for page in PAGES:
        named = re.findall(r"\bexamples/([\w.-]+\.\w+)", page.read_text(encoding="utf-8"))
        assert {name for name in named if not (ROOT / "examples" / name).exists()} == set(), page


def test_lines_of_the_pages_are_commands_of_a_shell() -> None:
    for page in PAGES:
        for code in re.findall(r"^```bash\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            assert shlex.split(code, comments=True)

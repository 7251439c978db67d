"""Runs what README, start page, tutorials and how-to pages show, and writes what it prints.

python docs/run_pages.py                   write it
python docs/run_pages.py plan-rl web-app   only of these pages, by the names of their files
python docs/run_pages.py --check           exit with 1 where a page is not what the program would write now

Each page runs in a folder of its own, with a copy of ``examples/``. In the order of the page, blocks with a title are
saved under it, lines of ``bash`` blocks that start with ``shardplan`` are run, and other blocks of Python are executed.
A block of text after ``<!-- output -->`` shows what the last command of the block before it printed, or that Python
printed; after ``<!-- output Memory -->`` it shows the paragraphs of all of its commands that start with that word.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
README = DOCS.parent / "README.md"
EXAMPLES = DOCS.parent / "examples"
BLOCK = re.compile(r'^```(?P<language>\w+)(?: title="(?P<title>[^"]+)")?\n(?P<code>.*?)^```$', re.MULTILINE | re.DOTALL)
OUTPUT = re.compile(r"(?<=^<!-- output)(?P<what>[^\n]*) -->\n\n```text\n.*?^```$", re.MULTILINE | re.DOTALL)
FILES = ("csv", "json", "python", "yaml")
DURATION = re.compile(r"(?<= plans in )[0-9.]+ m?s")


def pages() -> list[Path]:
    """The pages that are run."""
    return [README, DOCS / "index.md", *sorted(DOCS.glob("tutorials/*.md")), *sorted(DOCS.glob("howto/*.md"))]


def chosen(names: list[str]) -> list[Path]:
    """The pages of these names, or all. Raises SystemExit for what is none."""
    known = {page.stem: page for page in pages()}
    wrong = [name for name in names if name not in known]
    if wrong:
        sys.exit(f"{wrong[0]!r} is neither a page nor an option: write --check, or names among {', '.join(known)}")
    return [known[name] for name in names] or pages()


def filled(text: str) -> str:
    """The text of a page with the outputs of today. What a block raises is raised; a command may answer no."""
    with _place():
        namespace: dict[str, Any] = {"__name__": "__main__"}
        printed, done, written = [""], 0, []
        for found in re.finditer(f"(?:{BLOCK.pattern})|(?:{OUTPUT.pattern})", text, BLOCK.flags):
            if found["language"] is None:
                written += [text[done : found.start()], _shown(printed, found["what"].strip())]
                done = found.end()
            else:
                printed = _run(found["language"], found["title"], found["code"], namespace)
        return "".join([*written, text[done:]])


@contextlib.contextmanager
def _place() -> Iterator[None]:
    """A folder with a copy of the examples, and a terminal of 80 columns without colours."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        shutil.copytree(EXAMPLES, "examples")
        os.environ |= {"COLUMNS": "80", "NO_COLOR": "1"}
        try:
            yield
        finally:
            os.environ.clear()
            os.environ |= before


def _run(language: str, title: str | None, code: str, namespace: dict[str, Any]) -> list[str]:
    """What each command of a block prints."""
    if title is not None and language in FILES:
        Path(title).parent.mkdir(parents=True, exist_ok=True)
        Path(title).write_text(code, encoding="utf-8")
        return [""]
    if language == "bash":
        lines = code.replace("\\\n", " ").splitlines()
        return [_command(line) for line in lines if line.startswith("shardplan ")] or [""]
    printed = io.StringIO()
    if language == "python":
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "page", "exec"), namespace)  # noqa: S102  # what a page is for
    return [printed.getvalue()]


def _command(line: str) -> str:
    """What a command prints on standard output. Raises RuntimeError where it is refused."""
    from shardplan.cli.main import app

    printed, problems = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(problems):
        try:
            app(shlex.split(line, comments=True)[1:])
        except SystemExit as stop:
            if stop.code not in (0, 1):
                message = f"{line}: {problems.getvalue()}"
                raise RuntimeError(message) from None
    return printed.getvalue()


def _shown(printed: list[str], start: str) -> str:
    """The block of text that shows the last of what was printed, or all paragraphs that begin with ``start``."""
    paragraphs = [part for text in printed for part in text.strip("\n").split("\n\n")]
    kept = [each for each in paragraphs if each.lstrip().startswith(start)] if start else [printed[-1].strip("\n")]
    if not kept:
        message = f"nothing that was printed starts with {start!r}: {paragraphs}"
        raise RuntimeError(message)
    body = "\n".join(line.rstrip() for line in DURATION.sub("a moment", "\n\n".join(kept)).splitlines())
    return f"{' ' if start else ''}{start} -->\n\n```text\n{body}\n```"


def main(arguments: list[str]) -> int:
    """Writes or checks the pages; returns the exit status."""
    status, is_check = 0, "--check" in arguments
    for page in chosen([each for each in arguments if each != "--check"]):
        old = page.read_text(encoding="utf-8")
        new = filled(old)
        if new != old and is_check:
            sys.stderr.write(f"{page.name} is out of date: run python docs/run_pages.py\n")
            status = 1
        elif new != old:
            page.write_text(new, encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

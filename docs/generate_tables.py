"""Writes tables made from the code and its data into the pages, from ``<!-- NAME arguments -->`` to ``<!-- end -->``.

python docs/generate_tables.py           write them; a line ``::NAME arguments`` becomes such a block
python docs/generate_tables.py --check   exit with 1 where a page is not what the program would write now

The names are those of ``tables.DIRECTIVES``. Docstrings (``::: shardplan...``) are shown by a build alone. Below them
it writes a link to their source, which the build leaves out. So pages can be read on a code host, which runs nothing.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from tables import DIRECTIVES

DOCS = Path(__file__).parent
NEW = re.compile(r"^::(?P<name>[a-z]+)(?P<arguments>(?: \S+)*)$", re.MULTILINE)
BLOCK = re.compile(
    rf"^<!-- (?P<name>{'|'.join(DIRECTIVES)})(?P<arguments>(?: \S+)*) -->$.*?^<!-- end -->$", re.MULTILINE | re.DOTALL
)
SOURCE = DOCS.parent / "src"
DOCSTRINGS = re.compile(
    r"^(?P<lines>(?:::: shardplan[\w.]+\n(?:    [^\n]*\n)*)+)(?P<links>\n<!-- source -->.*?^<!-- end -->\n)?",
    re.MULTILINE | re.DOTALL,
)


def filled(page: str, depth: int = 0) -> str:
    """The text of a page with its tables and links as they are now; ``depth``: folders above it, in ``docs``."""
    linked = DOCSTRINGS.sub(lambda found: found["lines"] + _links(found["lines"], "../" * (depth + 1)), page)
    return BLOCK.sub(_block, NEW.sub(_block, linked))


def for_build(page: str) -> str:
    """The text of a page without what a build shows itself."""
    return DOCSTRINGS.sub(lambda found: found["lines"], page)


def _links(lines: str, up: str) -> str:
    """Links to the files that hold docstrings, each once."""
    files = dict.fromkeys(_file(name) for name in re.findall(r"^::: ([\w.]+)$", lines, re.MULTILINE))
    texts = (f"[`{file.removeprefix('shardplan/')}`]({up}src/{file})" for file in files)
    return f"\n<!-- source -->\n\nSource: {', '.join(texts)}\n\n<!-- end -->\n"


def _file(name: str) -> str:
    """The file in which a name is: its module, or the package."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        path = Path(*parts[:length])
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if (SOURCE / file).exists():
                return file.as_posix()
    message = f"no file holds {name}"
    raise ValueError(message)


def depth_of(page: Path) -> int:
    """Folders between a page and the folder of all pages."""
    return len(page.relative_to(DOCS).parts) - 1


def _block(found: re.Match[str]) -> str:
    name, arguments = found["name"], found["arguments"]
    return f"<!-- {name}{arguments} -->\n\n{DIRECTIVES[name](*arguments.split())}\n\n<!-- end -->"


def main(arguments: list[str]) -> int:
    """Writes or checks the pages; returns the exit status."""
    status = 0
    for page in sorted(DOCS.rglob("*.md")):
        old = page.read_text(encoding="utf-8")
        new = filled(old, depth_of(page))
        if new != old and "--check" in arguments:
            sys.stderr.write(f"{page.relative_to(DOCS)} is out of date: run python docs/generate_tables.py\n")
            status = 1
        elif new != old:
            page.write_text(new, encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

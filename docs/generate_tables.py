"""Writes tables made from the code and its data into the pages, from ``<!-- NAME arguments -->`` to ``<!-- end -->``.

python docs/generate_tables.py           write them; a line ``::NAME arguments`` becomes such a block
python docs/generate_tables.py --check   exit with 1 where a page is not what the program would write now

The names are those of ``tables.DIRECTIVES``. Pages read the same on a code host, which runs nothing.
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


def filled(page: str) -> str:
    """The text of a page with its tables as they are now."""
    return BLOCK.sub(_block, NEW.sub(_block, page))


def _block(found: re.Match[str]) -> str:
    name, arguments = found["name"], found["arguments"]
    return f"<!-- {name}{arguments} -->\n\n{DIRECTIVES[name](*arguments.split())}\n\n<!-- end -->"


def main(arguments: list[str]) -> int:
    """Writes or checks the pages; returns the exit status."""
    status = 0
    for page in sorted(DOCS.rglob("*.md")):
        old = page.read_text(encoding="utf-8")
        new = filled(old)
        if new != old and "--check" in arguments:
            sys.stderr.write(f"{page.relative_to(DOCS)} is out of date: run python docs/generate_tables.py\n")
            status = 1
        elif new != old:
            page.write_text(new, encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

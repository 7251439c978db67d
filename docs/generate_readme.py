"""Puts the real answers into ``README.md``, behind the command and the lines that give them, and how far they are off.

python docs/generate_readme.py           write it
python docs/generate_readme.py --check   exit with 1 where it is not what the program would write now
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from pathlib import Path

PAGE = Path(__file__).parent.parent / "README.md"
COMMAND = ["plan", "llama-3.1-70b", "--cluster", "dgx-h100", "--gpus", "512"]
ANSWER = re.compile(r"(?<=<!-- answer -->\n```text\n).*?(?=\n```\n)", re.DOTALL)
ACCURACY = re.compile(r"(?<=<!-- accuracy -->).*?(?=<!-- end -->)", re.DOTALL)
PYTHON = re.compile(r"(```python\n(.*?)^```\n\n<!-- python -->\n```text\n).*?(?=^```)", re.DOTALL | re.MULTILINE)
TIMING = re.compile(r"plans in [0-9.]+ m?s")


def answer() -> str:
    """What the command prints on a pipe of 80 columns."""
    from shardplan.cli.main import main as run

    os.environ["COLUMNS"] = "80"
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        sys.argv = ["shardplan", *COMMAND]
        run()
    return printed.getvalue().strip()


def _with_printed(found: re.Match[str]) -> str:
    """Lines of Python with what they print."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(found[2], PAGE.name, "exec"), {})  # noqa: S102  # what the page is for
    return found[1] + printed.getvalue()


def accuracy() -> str:
    """What `shardplan validate` says of published runs whose team the constants never saw."""
    from shardplan.calibrate.validate import validate
    from shardplan.reports.accuracy.record import stated_accuracy

    return stated_accuracy(validate()).text.replace(" and of ", "\n  and of ")


def main(arguments: list[str]) -> int:
    """Writes or checks the page; returns the exit status."""
    old = PAGE.read_text(encoding="utf-8")
    now, errors = answer(), accuracy()
    new = PYTHON.sub(_with_printed, ACCURACY.sub(lambda _: errors, ANSWER.sub(lambda _: now, old)))
    if "--check" in arguments:
        return int(TIMING.sub("", new) != TIMING.sub("", old))  # no two runs take the same time
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Draws the answer that the start page shows, and puts the measured numbers into its text.

python docs/generate_start.py           write both
python docs/generate_start.py --check   exit with 1 where one is not what the program would write now
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import generate_readme
from terminal_svg import terminal_svg

DOCS = Path(__file__).parent
PAGE = DOCS / "index.md"
PICTURE = DOCS / "assets" / "answer.svg"
COMMAND = "shardplan plan llama-3.1-70b --cluster dgx-h100 --gpus 512 --tokens 15T"
TERMINAL = {"COLUMNS": "80", "FORCE_COLOR": "1", "COLORTERM": "truecolor", "TERM": "xterm-256color"}
RECORDS = DOCS.parent / "benchmarks" / "records"
FACT = re.compile(r"(?<=<!-- )(?P<name>right|runnable|instant) -->.*?(?=<!-- end -->)", re.DOTALL)


def picture() -> str:
    """The answer to the command, as a terminal shows it."""
    from shardplan.cli.main import app

    before, printed = dict(os.environ), io.StringIO()
    os.environ |= TERMINAL
    os.environ.pop("NO_COLOR", None)
    try:
        with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
            app(COMMAND.split()[1:])
    finally:
        os.environ.clear()
        os.environ |= before
    return terminal_svg(f"$ {COMMAND}\n\n{printed.getvalue()}", title="shardplan plan")


def right() -> str:
    """How far predictions are off."""
    from shardplan.calibrate import validate

    errors = " ".join(generate_readme.accuracy().split())
    runs = [prediction.run for prediction in validate.validate().predictions]
    own = sum("measured for shardplan" in (run.source or "") for run in runs)
    counted = f"{len(runs):,} measured training runs, {own} of them our own and the others published"
    return f"{counted}; on runs whose team the fit never saw, the estimate has {errors}"


def runnable() -> str:
    """How many frameworks are known, and by how many entries with a source."""
    from shardplan.physics.frameworks.capability_rows import capability_rows, refusal_rows
    from shardplan.physics.frameworks.stack import list_stacks, load_stack

    records = [found for name in list_stacks() if (found := load_stack(name).can_run) is not None]
    entries = sum(len(capability_rows(each)) + len(refusal_rows(each)) for each in records)
    return f"{len(records)} frameworks, {entries:,} entries"


def instant() -> str:
    """How long a search takes on one core, by the records of the benchmarks."""
    commands = json.loads((RECORDS / "commands.json").read_text(encoding="utf-8"))["commands"]
    seconds = {each["command"]: each["wall_s"] for each in commands}
    rates = json.loads((RECORDS / "evaluation_rate.json").read_text(encoding="utf-8"))["questions"]
    rate = next(each["plans_per_s"] for each in rates if each["model"] == "llama-3.1-70b")
    small = seconds["shardplan plan llama-3.1-70b --cluster dgx-h100 --gpus 512"]
    large = seconds["shardplan plan llama-3.1-405b --cluster dgx-h100 --gpus 16384"]
    return (
        f"{small:.1f} s for 70B on 512 accelerators, {large:.1f} s for 405B on 16,384, start of the program included; "
        f"{rate / 1e6:.1f} million plans a second"
    )


FACTS: Mapping[str, Callable[[], str]] = {"right": right, "runnable": runnable, "instant": instant}


def main(arguments: list[str]) -> int:
    """Writes or checks page and picture; returns the exit status."""
    old = PAGE.read_text(encoding="utf-8")
    new = FACT.sub(lambda found: f"{found['name']} -->{FACTS[found['name']]()}", old)
    drawn = picture()
    if "--check" in arguments:
        return int(new != old or not PICTURE.exists() or PICTURE.read_text(encoding="utf-8") != drawn)
    PAGE.write_text(new, encoding="utf-8")
    PICTURE.write_text(drawn, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

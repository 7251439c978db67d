"""Takes all snapshots anew: ``python -m tests.snapshots.write`` in the folder of the project. Read the difference."""

from __future__ import annotations

import os

from tests.snapshots.commands import COMMANDS, ROOT, WIDTHS, path_of, shown

if __name__ == "__main__":
    os.chdir(ROOT)
    (ROOT / "tests" / "snapshots" / "answers").mkdir(exist_ok=True)
    for name in COMMANDS:
        for columns in WIDTHS:
            path_of(name, columns).write_text(shown(name, columns), encoding="utf-8")

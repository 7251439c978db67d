"""Takes all snapshots anew: ``python -m tests.launch.export.write`` in the project's folder. Read the difference."""

from __future__ import annotations

from pathlib import Path

from tests.launch.export.cases import LAUNCHES

FOLDER = Path(__file__).parent / "answers"


def path_of(name: str, file: str) -> Path:
    """Where the snapshot of a file is kept: Python as text, which is no module of ours."""
    return FOLDER / f"{name}{Path(file).suffix.replace('.py', '.py.txt')}"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, launch in LAUNCHES.items():
        for file, text in launch.export().files.items():
            path_of(name, file).write_text(text, encoding="utf-8")

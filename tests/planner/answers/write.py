"""Records the answers anew, all of them or those named. From the root: python -m tests.planner.answers.write NAME ...

Do so only where answers are meant to change, and read the difference.
"""

from __future__ import annotations

import json
import sys

from tests.planner.answers.questions import QUESTIONS
from tests.planner.answers.record import RECORDS, record_of


def main(names: list[str]) -> None:
    """Writes a file for each question."""
    RECORDS.mkdir(exist_ok=True)
    for name in names or QUESTIONS:
        text = json.dumps(record_of(QUESTIONS[name]), indent=1, ensure_ascii=False)
        (RECORDS / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

"""``python -m shardplan``, and the entry point of the program: Ctrl-C ends it quietly, while it starts too."""

from __future__ import annotations

import gc
import os
import sys

NEW_OBJECTS = 100_000
"""New objects after which the interpreter looks for cycles that nothing uses. A command makes few of them,
and looking after every 700, as is usual, takes a twentieth of the time of a short command."""


def main() -> None:
    """Runs the command line."""
    gc.set_threshold(NEW_OBJECTS)
    sys.unraisablehook = _end_where_nothing_can_be_raised
    try:
        from shardplan.cli.main import main as run

        run()
    except (KeyboardInterrupt, Exception) as error:
        from shardplan.base.errors import is_from_interrupt

        if not is_from_interrupt(error):
            raise
        _say_interrupted()
        sys.exit(130)
    finally:
        gc.freeze()  # at its end the interpreter looks for cycles in all that is left, which takes as long as a search


def _say_interrupted() -> None:
    sys.stderr.write("shardplan: interrupted\n")


def _end_where_nothing_can_be_raised(lost: sys.UnraisableHookArgs) -> None:
    """Ends the program by Ctrl-C in a callback of the interpreter too, which would print it and go on."""
    if lost.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(lost)
        return
    _say_interrupted()
    sys.stderr.flush()
    os._exit(130)


if __name__ == "__main__":
    main()

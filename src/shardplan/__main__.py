"""``python -m shardplan``, and the entry point of the program: Ctrl-C ends it quietly, while it starts too."""

import gc
import sys

NEW_OBJECTS = 100_000
"""New objects after which the interpreter looks for cycles that nothing uses. A command makes few of them,
and looking after every 700, as is usual, takes a twentieth of the time of a short command."""


def main() -> None:
    """Runs the command line."""
    gc.set_threshold(NEW_OBJECTS)
    try:
        from shardplan.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("shardplan: interrupted\n")
        sys.exit(130)
    finally:
        gc.freeze()  # at its end the interpreter looks for cycles in all that is left, which takes as long as a search


if __name__ == "__main__":
    main()

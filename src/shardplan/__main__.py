"""``python -m shardplan``, and the entry point of the program: Ctrl-C ends it quietly, while it starts too."""

import sys


def main() -> None:
    """Runs the command line."""
    try:
        from shardplan.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("shardplan: interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    main()

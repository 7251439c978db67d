"""The command line: exit status 0 answered, 1 answered and the answer is no, 2 wrong input."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from dataclasses import fields
from typing import Annotated, Any, Final, NoReturn

import typer

from shardplan.cli.groups import SETTINGS, CommandEntry, CommandGroup, CorrectedCommand
from shardplan.cli.json_target import target_of
from shardplan.errors import InputError, ShardplanError, UnknownNameError
from shardplan.version import VERSION

WRONG_INPUT = 2
INTERRUPTED = 130
BROKEN_PIPE = 141
"""As a shell reports a program that the end of its pipe has stopped."""

UsageError: type[Any] = typer.BadParameter.__mro__[1]  # typer does not export the base of its usage errors


COMMANDS: Final[dict[str, CommandEntry]] = {
    "plan": CommandEntry(
        "Find the fastest plan that fits, and say why.",
        (
            "shardplan plan llama-3.1-70b --cluster dgx-h100 --gpus 512",
            "shardplan plan deepseek-v3 --cluster dgx-h100 --gpus 2048 --precision fp8 --json plans.json",
            "shardplan plan examples/config.json --cluster gb200-nvl72 --gpus 576 --fix tp=4 --limit pp=1,2,4,8",
        ),
    ),
    "estimate": CommandEntry(
        "Predict time, memory and traffic of one plan.",
        (
            "shardplan estimate llama-3.1-70b --cluster dgx-h100 --gpus 64 --tp 4 --pp 4 --vp 5",
            "shardplan estimate llama-3.1-70b --cluster dgx-h100 --gpus 64 --tp 8 --stack torchtitan",
            "shardplan estimate --from examples/plans.json --pick 2 --micro-batch-size 2",
        ),
    ),
    "compare": CommandEntry(
        "Put two or more plans side by side, term by term.",
        (
            "shardplan compare examples/tensor-parallel.json examples/fully-sharded.json",
            "shardplan compare examples/plans.json --pick 1,3",
        ),
    ),
    "examples": CommandEntry(
        "Write the example files that the help and the documentation use.",
        ("shardplan examples", "shardplan examples my-folder"),
    ),
    "models": CommandEntry(
        "List the built-in models, or show one.",
        ("shardplan models", "shardplan models deepseek-v3 --json -"),
        "catalogue",
    ),
    "clusters": CommandEntry(
        "List the built-in clusters, or show one.", ("shardplan clusters", "shardplan clusters dgx-h100"), "catalogue"
    ),
    "accelerators": CommandEntry(
        "List the built-in accelerators, or show one.",
        ("shardplan accelerators", "shardplan accelerators h100-sxm-80gb"),
        "catalogue",
    ),
    "stacks": CommandEntry(
        "List the training frameworks whose defaults are known, or show one.",
        ("shardplan stacks", "shardplan stacks torchtitan", "shardplan stacks --fields"),
    ),
    "profiles": CommandEntry(
        "List the calibration profiles, or show every constant of one.",
        ("shardplan profiles", "shardplan profiles hopper"),
    ),
    "validate": CommandEntry(
        "Hold predictions against measured runs.",
        ("shardplan validate --by tier", "shardplan validate examples/my-runs.csv"),
    ),
    "calibrate": CommandEntry(
        "Fit the constants of the estimate: to your own measured runs, or to kernels timed on this machine.",
        ("shardplan calibrate examples/my-runs.csv --out my-cluster.yaml",),
    ),
    "methods": CommandEntry(
        "List the methods of estimating a training run: ours, the published ones, and those of other packages.",
        ("shardplan methods", "shardplan methods subramanian2024"),
        "published.methods",
    ),
    "study": CommandEntry(
        "Repeat the whole study of a paper: every search of it, its tables and figures.",
        ("shardplan study subramanian2024", "shardplan study subramanian2024 --figure F1,F3 --workers 2"),
        "published.study",
        CorrectedCommand,
    ),
    "published": CommandEntry(
        "Ask a published method a case in its own terms, or check reference files.", module="published.commands"
    ),
}
"""The commands, in the order of the help."""


class Commands(CommandGroup):
    """The group of commands; it turns every refusal into words, a record and an exit status."""

    ENTRIES = COMMANDS

    def main(self, args: Sequence[str] | None = None, **extra: Any) -> NoReturn:  # type: ignore[override]  # it always exits
        """Runs a command and exits."""
        arguments = list(sys.argv[1:] if args is None else args)
        extra["standalone_mode"] = False
        try:
            status = super().main(arguments, **extra)
            sys.stdout.flush()  # here, where a reader that has gone is expected
        except ShardplanError as error:
            status = _refuse(error, arguments)
        except UsageError as error:
            status = _refuse(_from_usage(error, arguments), arguments)
        except BrokenPipeError:
            status = _abandon_output()
        except SystemExit as stop:  # typer's own answer to a broken pipe is 1; completion of a shell ends with 0
            status = _abandon_output() if stop.code == 1 else stop.code
        except (KeyboardInterrupt, typer.Abort):
            status = INTERRUPTED
        if status == INTERRUPTED:
            sys.stderr.write("shardplan: interrupted\n")
        sys.exit(status if isinstance(status, int) else 0)


def _refuse(error: ShardplanError, arguments: Sequence[str]) -> int:
    """Says what is wrong on standard error, and where ``--json`` points."""
    target = target_of(arguments)
    with contextlib.suppress(ShardplanError, BrokenPipeError):  # the target itself may be what is wrong
        target.write(error.to_record())
    hint = error.hint.removeprefix(_shared_start(error)).strip()
    lines = [f"shardplan: {error.message}", *([f"hint: {hint}"] if hint else [])]
    with contextlib.suppress(BrokenPipeError):
        sys.stderr.write("\n".join(lines) + "\n")
    return WRONG_INPUT


def _shared_start(error: ShardplanError) -> str:
    """The guess that message and hint of an unknown name share."""
    guess = error.message.partition("did you mean ")[2]
    return f"did you mean {guess}" if guess else ""


def _from_usage(error: Any, arguments: Sequence[str]) -> ShardplanError:
    """Our error from one of typer's."""
    context = getattr(error, "ctx", None)
    usage = f"see `{' '.join(('shardplan', *_command_of(context, arguments), '--help'))}`"
    option = getattr(error, "option_name", None)
    if option is not None and context is not None and hasattr(error, "possibilities"):
        field = option.removeprefix("--").removeprefix("no-").replace("-", "_")
        if context.info_name == "plan" and field in _searched():
            return InputError(
                f"unknown flag '{option}': the search chooses {field}",
                rule="flag is known",
                hint=f"--fix {field}=VALUE, or `shardplan estimate` for a single plan",
            )
        known = [name for each in context.command.params for name in (*each.opts, *each.secondary_opts)]
        return UnknownNameError("flag", option[:100], (name for name in known if name.startswith("--")), hint=usage)
    kinds = {"MissingParameter": "nothing needed is missing", "BadParameter": "a value is of its flag's kind"}
    rule = kinds.get(type(error).__name__, "the command line can be read")
    return InputError(str(error.format_message()).rstrip("."), rule=rule, hint=usage)


def _searched() -> tuple[str, ...]:
    """Fields of a plan: flags of ``estimate``, but not of ``plan``."""
    from shardplan.inputs.plan import Plan

    return ("dp", *(field.name for field in fields(Plan)))


def _command_of(context: Any, arguments: Sequence[str]) -> list[str]:
    """Words of the command that could not be read."""
    words: list[str] = []
    while context is not None and context.parent is not None:
        words.insert(0, str(context.info_name))
        context = context.parent
    return words or [each for each in arguments if each in COMMANDS][:1]


def _abandon_output() -> int:
    """The reader of standard output has gone: say nothing more, not even when Python flushes on exit."""
    sink = os.open(os.devnull, os.O_WRONLY)
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(sink, sys.stdout.fileno())
    return BROKEN_PIPE


app = typer.Typer(
    name="shardplan",
    cls=Commands,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=SETTINGS,
)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context, *, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    """Plan the distributed training of large transformer models: find the fastest plan that fits, and see why."""
    if version:
        sys.stdout.write(f"shardplan {VERSION}\n")
        raise typer.Exit
    if context.invoked_subcommand is None:
        sys.stdout.write(context.get_help() + "\n")


def main() -> None:
    """Entry point of the ``shardplan`` program."""
    os.environ.setdefault(
        "OPENBLAS_NUM_THREADS", "1"
    )  # nothing here multiplies matrices, and threads take time to start
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # a terminal that lacks a character shows ?
    app()

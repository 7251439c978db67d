"""The command line: exit status 0 answered, 1 answered and the answer is no, 2 wrong input."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

import shardplan
from shardplan.cli.catalogue import accelerators, clusters, models
from shardplan.cli.compare import compare
from shardplan.cli.estimate import estimate
from shardplan.cli.json_target import target_of
from shardplan.cli.plan import plan
from shardplan.errors import InputError, ShardplanError, UnknownNameError

__all__ = ["app", "main"]

WRONG_INPUT = 2
INTERRUPTED = 130
BROKEN_PIPE = 141
"""As a shell reports a program that the end of its pipe has stopped."""

UsageError: type[Any] = typer.BadParameter.__mro__[1]  # typer does not export the base of its usage errors


class Commands(TyperGroup):
    """The group of commands; it turns every refusal into words, a record and an exit status."""

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

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As typer's, with our words for a name that is none."""
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            raise UnknownNameError("command", args[0][:100], self.commands, hint=f"one of {', '.join(self.commands)}")
        return super().resolve_command(ctx, args)


class Command(TyperCommand):
    """A command whose help groups its flags, and never cuts their names off."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes arguments and flags under the titles of their groups."""
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                title = getattr(parameter, "rich_help_panel", None) or f"{parameter.param_type_name.capitalize()}s"
                groups.setdefault(title, []).append(record)
        for title in sorted(groups, key=lambda title: title == "Options"):
            if groups[title]:
                with formatter.section(title):
                    formatter.write_dl(groups[title])


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
    command = next((each for each in arguments if each in NAMES), "")
    usage = f"see `shardplan {command} --help`" if command else "see `shardplan --help`"
    option = getattr(error, "option_name", None)
    if option is not None and context is not None and hasattr(error, "possibilities"):
        known = [name for each in context.command.params for name in (*each.opts, *each.secondary_opts)]
        return UnknownNameError("flag", option[:100], (name for name in known if name.startswith("--")), hint=usage)
    kinds = {"MissingParameter": "nothing needed is missing", "BadParameter": "a value is of its flag's kind"}
    rule = kinds.get(type(error).__name__, "the command line can be read")
    return InputError(str(error.format_message()).rstrip("."), rule=rule, hint=usage)


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
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 110},
)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context, *, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    """Plan the distributed training of large transformer models: find the fastest plan that fits, and see why."""
    if version:
        sys.stdout.write(f"shardplan {shardplan.__version__}\n")
        raise typer.Exit
    if context.invoked_subcommand is None:
        sys.stdout.write(context.get_help() + "\n")


EXAMPLES = {
    plan: (
        "shardplan plan llama-3.1-70b --cluster dgx-h100 --gpus 512",
        "shardplan plan deepseek-v3 --cluster dgx-h100 --gpus 2048 --precision fp8 --json plans.json",
        "shardplan plan examples/config.json --cluster gb200-nvl72 --gpus 576 --fix tp=4 --limit pp=1,2,4,8",
    ),
    estimate: (
        "shardplan estimate llama-3.1-70b --cluster dgx-h100 --gpus 64 --tp 4 --pp 4 --vp 5",
        "shardplan estimate --from examples/plans.json --pick 2 --micro-batch-size 2",
    ),
    compare: (
        "shardplan compare examples/tensor-parallel.json examples/fully-sharded.json",
        "shardplan compare examples/plans.json --pick 1,3",
    ),
    models: ("shardplan models", "shardplan models deepseek-v3 --json -"),
    clusters: ("shardplan clusters", "shardplan clusters dgx-h100"),
    accelerators: ("shardplan accelerators", "shardplan accelerators h100-sxm-80gb"),
}
NAMES = {command.__name__ for command in EXAMPLES}
for _command, _examples in EXAMPLES.items():
    _epilog = "Examples:\n\n\b\n" + "\n".join(f"    {example}" for example in _examples)
    app.command(cls=Command, epilog=_epilog)(_command)


def main() -> None:
    """Entry point of the ``shardplan`` program."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # a terminal that lacks a character shows ?
    app()

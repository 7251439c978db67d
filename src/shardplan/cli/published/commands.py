"""``shardplan published``: cases of the published methods in their own terms, and checks of reference files."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from shardplan.base.errors import InputError, UnknownNameError
from shardplan.base.outputs import SEARCHED
from shardplan.cli.flags import OutputFlags, with_flags
from shardplan.cli.groups import SETTINGS, CommandGroup, CorrectedCommand, PlainCommand, examples
from shardplan.cli.output import FigureFiles, show_document
from shardplan.cli.progress import workers_of
from shardplan.cli.published.cases import (
    CalculatorFlags,
    Case,
    CaseFlags,
    DegreeFlags,
    LayerFlags,
    LimitsFlags,
    SearchedFlags,
    SearcherFlags,
    case_of,
    merged,
    read_case,
    section,
)
from shardplan.cli.published.study import study

OTHER: Final = "METHOD"
"""Name of the command that stands for methods of other packages."""
KEY: Final = "shardplan.methods.method"


class Methods(CommandGroup):
    """The group; a method of another package is a command with its name."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Like typer's; an unknown command may be a method of another package."""
        if not args or args[0].startswith("-") or (args[0] in self.commands and args[0] != OTHER):
            return super().resolve_command(ctx, args)
        from shardplan.methods.catalogue import list_methods

        if args[0] in list_methods():
            ctx.meta[KEY] = args[0]
            return args[0], self.commands[OTHER], args[1:]
        known = [*(name for name, command in self.commands.items() if not command.hidden), *list_methods()]
        names = ", ".join(dict.fromkeys(known))
        raise UnknownNameError("method", args[0][:100], dict.fromkeys(known), hint=f"one of {names}")


app = typer.Typer(cls=Methods, rich_markup_mode=None, add_completion=False, context_settings=SETTINGS)


@app.callback(invoke_without_command=True)
def published(context: typer.Context) -> None:
    """List the published methods, run one on a case in its own terms, repeat a study, or check reference files.

    A method of another package is a command with its name, with --input and --json.
    """
    if context.invoked_subcommand is None:
        sys.stdout.write(context.get_help() + "\n")


@with_flags
def calculator(*, flags: CalculatorFlags, case: CaseFlags, output: OutputFlags) -> int:
    """Rule-of-thumb memory and traffic of every (tp, pp), and a recommendation.

    Numbers that are known to be wrong are shown next to our own estimate.
    """
    target = output.checked_target(case.input)
    from shardplan.answers.methods.calculator import calculator_document, calculator_report
    from shardplan.base.units import parse_quantity
    from shardplan.methods.catalogue import load_method

    if flags.num_experts is not None and not flags.moe:
        raise InputError("--num-experts is given without --moe", rule="experts belong to a mixture", hint="add --moe")
    read = read_case(case, load_method("calculator"))
    base = PAGE_EXAMPLE if case.input is None else read
    memory = None if flags.memory is None else parse_quantity(flags.memory, "bytes", field="--memory") / 1e9
    experts = (flags.num_experts or DEFAULT_EXPERTS) if flags.moe else None
    given: Case = {name: {} for name in PAGE_EXAMPLE} | case_of(flags, memory=memory, num_experts=experts)
    del given["cluster"]
    report = calculator_report(merged(base, given), cluster=flags.cluster)
    return show_document(calculator_document(report), target)


PAGE_EXAMPLE: Final = {
    "model": {"params_billions": 70},
    "hardware": {"num_gpus": 64, "memory_per_gpu_gb": 80},
    "training": {"batch_size": 512, "sequence_length": 4096},
}
"""Defaults of the calculator's own command line."""
DEFAULT_EXPERTS: Final = 64


@with_flags
def subramanian2024(*, flags: SearchedFlags, degrees: DegreeFlags, case: CaseFlags, output: OutputFlags) -> int:
    """Search all configurations of a strategy by the model of arXiv 2410.00273, or price one.

    If nothing fits, it shows the configuration with least memory and exits with 1.
    """
    target = output.checked_target(case.input)
    from shardplan.answers.methods.subramanian2024 import subramanian2024_document
    from shardplan.methods.catalogue import load_method

    method = load_method("subramanian2024")
    asked = merged(read_case(case, method), case_of(flags) | case_of(degrees))
    return show_document(subramanian2024_document(asked, method.answer(asked)), target)


@with_flags
def data_movement(*, layer: LayerFlags, limits: LimitsFlags, case: CaseFlags, output: OutputFlags) -> int:
    """Time of a linear layer split over both of its dimensions, or the limits of training.

    Prices a layer, or searches all ways to split it over --num-devices.
    """
    target = output.checked_target(case.input)
    from shardplan.answers.methods.data_movement import data_movement_document, limits_chart
    from shardplan.methods.catalogue import load_method

    method = load_method("data-movement")
    base = read_case(case, method)
    is_curve = limits.limits or "limits" in base
    asked = merged(base, _limits_case(layer, limits) if is_curve else {"layer": {}} | case_of(layer))
    given = next((name for name, value in asdict(limits).items() if value is not None), None)
    if given is not None and "limits" not in asked:
        raise InputError(
            f"{_flag(given)} is given without --limits", rule="it is a flag of the limits curve", hint="add --limits"
        )
    files = None if limits.out is None else FigureFiles(limits.out, ("limits",), target)
    answer = method.answer(asked)
    target.check_content(b"")
    written = "" if files is None else files.write([files.drawn(limits_chart(answer), answer["points"])])[0]
    return show_document(data_movement_document(asked, answer, written), target)


def _limits_case(layer: LayerFlags, flags: LimitsFlags) -> Case:
    """The curve for a device and a width of numbers; other fields of a layer are refused. Raises InputError."""
    from shardplan.base.units import parse_quantity

    for name, value in asdict(layer).items():
        if value is not None and name not in ("device", "bytewidth"):
            raise InputError(
                f"{_flag(name)} is given with --limits",
                rule="the limits curve searches layers of its own",
                hint=f"leave out {_flag(name)}, or --limits",
            )
    time = None if flags.training_time is None else parse_quantity(flags.training_time, "time", field="--training-time")
    of_layer = case_of(layer)
    curve = case_of(replace(flags, limits=None, out=None), training_time=time) | of_layer.pop("layer", {})
    return of_layer | {"limits": curve}


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


@with_flags
def searcher(*, flags: SearcherFlags, case: CaseFlags, output: OutputFlags) -> int:
    """Heuristic time of every (dp, tp, pp), and the fastest, from a cluster and a model file."""
    read = (case.input, flags.cluster, flags.model)
    target, result = output.checked_target(*read), output.target(flags.output, "--output", SEARCHED)
    result.check(*read, other=output.target())
    if target.is_stdout and result.is_stdout:
        raise InputError(
            "both --json and --output are -", rule="one answer goes to standard output", hint="give one of them a file"
        )
    from shardplan.answers.methods.catalogue import searcher_document
    from shardplan.methods.catalogue import load_method
    from shardplan.methods.searcher.method import Searcher

    method = load_method("searcher")
    assert isinstance(method, Searcher)
    files = {"cluster": flags.cluster, "model": flags.model}
    parts = {name: section(path, name) for name, path in files.items() if path is not None}
    asked = merged({name: part for name, part in read_case(case, method).items() if name not in parts}, parts)
    with workers_of(flags.workers) as executor:
        document = searcher_document(asked, method.answer(asked, executor=executor), top=flags.top)
    target.check_content(b"")
    if result.where is not None:
        result.write_text(method.result_file(asked))
    return show_document(document, target, is_silent=result.is_stdout)


NameArgument = Annotated[
    str | None, typer.Argument(metavar="NAME", show_default=False, help="Name of an entry to show in full.")
]


@with_flags
def methods(*, output: OutputFlags, name: NameArgument = None) -> int:
    """List the methods of estimating a training run: ours, the published ones, and those of other packages.

    Each with what it counts, what it leaves out or has wrong, and where it was published.
    """
    target = output.checked_target()
    from shardplan.answers.methods import catalogue

    if name is None:
        return show_document(catalogue.methods_document(catalogue.method_entries()), target)
    return show_document(catalogue.entry_document(catalogue.method_entry(name)), target)


FilesArgument = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Reference files, of any method.")]


@with_flags
def check(*, files: FilesArgument, output: OutputFlags) -> int:
    """Recompute every case of reference files, and say how far the published figures are.

    Exits with 1 if a relative difference exceeds 1e-9 (1e-12 absolute if the reference is 0), or if a degree, a
    recommendation or a word differs.
    """
    target = output.checked_target(*files)
    from shardplan.answers.methods.catalogue import check_document
    from shardplan.methods.check import check_files

    return show_document(check_document(check_files(files)), target)


@with_flags
def other(*, context: typer.Context, case: CaseFlags, output: OutputFlags) -> int:
    """Run a case on a method of another package."""
    target = output.checked_target(case.input)
    from shardplan.answers.methods.catalogue import other_document
    from shardplan.methods.catalogue import asked_of, load_method

    method = load_method(context.meta[KEY])
    asked = read_case(case, method)
    return show_document(other_document(method.name, asked, asked_of(method, lambda: method.answer(asked))), target)


EXAMPLES: Final[dict[Callable[..., int], tuple[str, ...]]] = {
    methods: ("shardplan published methods", "shardplan published methods subramanian2024"),
    calculator: ("shardplan published calculator --params 70 --gpus 64 --memory 80 --batch-size 512 --seq-len 4096",),
    subramanian2024: (
        "shardplan published subramanian2024 --model gpt3_1T --system H200 --strategy 2d-seqp --gpus 2048",
        "shardplan published subramanian2024 --input examples/case.json --corrected --explain",
    ),
    data_movement: (
        "shardplan published data-movement --d-in 16384 --d-out 81920 --tp-in 8 --tp-out 40 --dp 32 --batch 32768",
        "shardplan published data-movement --d-in 16384 --d-out 81920 --batch 4194304 --num-devices 4096",
        "shardplan published data-movement --limits",
    ),
    searcher: (
        "shardplan published searcher --cluster examples/cluster.json --model examples/model.json --output output.json",
    ),
    study: (
        "shardplan published study subramanian2024",
        "shardplan published study subramanian2024 --figure F1,F3 --workers 2",
    ),
    check: ("shardplan published check examples/reference.json",),
}
for _command, _lines in EXAMPLES.items():
    app.command(
        cls=CorrectedCommand if _command in (subramanian2024, study) else PlainCommand, epilog=examples(_lines)
    )(_command)
app.command(OTHER, cls=PlainCommand, hidden=True)(other)

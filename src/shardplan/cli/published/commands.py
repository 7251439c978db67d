"""``shardplan published``: cases of the published methods in their own terms, and checks of reference files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from shardplan.base.errors import InputError, UnknownNameError
from shardplan.base.outputs import SEARCHED
from shardplan.cli.figure_files import FigureFiles
from shardplan.cli.flags.option_groups import OutputFlags, with_flags
from shardplan.cli.groups import SETTINGS, CommandGroup, CorrectedCommand, PlainCommand, examples
from shardplan.cli.progress import MOST_WORKERS, workers_of
from shardplan.cli.published.case import CaseFlags, merged, read_case, section, show_answer
from shardplan.cli.published.flags import (
    CalculatorFlags,
    DegreeFlags,
    LayerFlags,
    LimitsFlags,
    SearchedFlags,
    SearcherFlags,
)
from shardplan.cli.published.methods import methods
from shardplan.cli.published.study import study
from shardplan.inputs.readers.typed import number, whole

MOST: Final = 2**31
MOST_DEVICES: Final = 10**12
OTHER: Final = "METHOD"
"""Command of a method of another package."""
KEY: Final = "shardplan.methods.method"


class Methods(CommandGroup):
    """The group; a method of another package is a command of its name."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As typer's; a name that no command has may be that of another package's method."""
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

    A method of another package is a command of its name, with --input and --json.
    """
    if context.invoked_subcommand is None:
        sys.stdout.write(context.get_help() + "\n")


@with_flags
def calculator(*, flags: CalculatorFlags, case: CaseFlags, output: OutputFlags) -> int:
    """Rule-of-thumb memory and traffic of every (tp, pp), and a recommendation.

    Beside each number that is known to be wrong stands our own estimate's.
    """
    target = output.checked_target(case.input)
    from shardplan.answers.methods.calculator import calculator_document, calculator_report
    from shardplan.methods.catalogue import load_method

    if flags.num_experts is not None and not flags.moe:
        raise InputError("--num-experts is given without --moe", rule="experts belong to a mixture", hint="add --moe")
    read = read_case(case, load_method("calculator"))
    base = PAGE_EXAMPLE if case.input is None else read
    report = calculator_report(merged(base, _calculator_case(flags)), cluster=flags.cluster)
    return show_answer(calculator_document(report), target)


PAGE_EXAMPLE: Final = {
    "model": {"params_billions": 70},
    "hardware": {"num_gpus": 64, "memory_per_gpu_gb": 80},
    "training": {"batch_size": 512, "sequence_length": 4096},
}
"""Defaults of the calculator's own command line."""
DEFAULT_EXPERTS: Final = 64


def _calculator_case(flags: CalculatorFlags) -> dict[str, Any]:
    from shardplan.base.units import parse_bytes

    memory = None if flags.memory is None else parse_bytes(flags.memory, field="--memory") / 1e9
    experts = (_whole(flags.num_experts, "--num-experts") or DEFAULT_EXPERTS) if flags.moe else None
    return {
        "model": _given(
            params_billions=_number(flags.params, "--params"),
            hidden_size=_whole(flags.hidden_size, "--hidden-size"),
            num_layers=_whole(flags.num_layers, "--num-layers"),
            vocab_size=_whole(flags.vocab_size, "--vocab-size"),
            is_moe=flags.moe,
            num_experts=experts,
        ),
        "hardware": _given(
            num_gpus=_whole(flags.gpus, "--gpus"),
            memory_per_gpu_gb=memory,
            gpus_per_node=_whole(flags.gpus_per_node, "--gpus-per-node"),
        ),
        "training": _given(
            batch_size=_whole(flags.batch_size, "--batch-size"),
            sequence_length=_whole(flags.seq_len, "--seq-len"),
            num_microbatches=_whole(flags.num_microbatches, "--num-microbatches"),
        ),
    }


@with_flags
def subramanian2024(*, flags: SearchedFlags, degrees: DegreeFlags, case: CaseFlags, output: OutputFlags) -> int:
    """Search all configurations of a strategy by the model of arXiv 2410.00273, or price one.

    Exits with 1 if nothing fits; the configuration of least memory is shown then.
    """
    target = output.checked_target(case.input)
    from shardplan.answers.methods.subramanian2024 import subramanian2024_document
    from shardplan.methods.catalogue import load_method

    method = load_method("subramanian2024")
    numbers = {name: _whole(value, _flag(name)) for name, value in asdict(degrees).items()}
    asked = merged(read_case(case, method), _searched_case(flags) | _given(**numbers))
    return show_answer(subramanian2024_document(asked, method.answer(asked)), target)


def _searched_case(flags: SearchedFlags) -> dict[str, Any]:
    texts = {name: getattr(flags, name) for name in ("model", "system", "strategy", "corrected", "explain")}
    counts = {name: _whole(getattr(flags, name), _flag(name)) for name in ("nvs", "gpus", "global_batch_size", "top")}
    return _given(**texts, **counts)


@with_flags
def data_movement(*, layer: LayerFlags, limits: LimitsFlags, case: CaseFlags, output: OutputFlags) -> int:
    """Time of a linear layer split over both of its dimensions, or the limits of training.

    A layer is priced, or all ways to share --num-devices are searched.
    """
    target = output.checked_target(case.input)
    from shardplan.answers.methods.data_movement import data_movement_document, limits_chart
    from shardplan.methods.catalogue import load_method

    method = load_method("data-movement")
    base = read_case(case, method)
    asked = merged(base, _limits_case(layer, limits) if limits.limits or "limits" in base else _layer_case(layer))
    _check_limits(limits, asked)
    files = None if limits.out is None else FigureFiles(limits.out, ("limits",), target)
    answer = method.answer(asked)
    target.check_content(b"")
    written = "" if files is None else files.write([files.drawn(limits_chart(answer), answer["points"])])[0]
    return show_answer(data_movement_document(asked, answer, written), target)


def _layer_case(flags: LayerFlags) -> dict[str, Any]:
    names = ("d_in", "d_out", "tp_in", "tp_out", "dp")
    layer = {name: _whole(getattr(flags, name), _flag(name)) for name in names}
    return _given(
        device=flags.device,
        layer=_given(**layer, bytewidth=_number(flags.bytewidth, "--bytewidth")),
        b=_number(flags.batch, "--batch"),
        num_devices=_whole(flags.num_devices, "--num-devices", most=MOST_DEVICES),
        num_microbatches=_whole(flags.num_microbatches, "--num-microbatches"),
    )


def _limits_case(layer: LayerFlags, flags: LimitsFlags) -> dict[str, Any]:
    from shardplan.base.units import parse_time

    for name, value in asdict(layer).items():
        if value is not None and name not in ("device", "bytewidth"):
            raise InputError(
                f"{_flag(name)} is given with --limits",
                rule="the limits curve searches layers of its own",
                hint=f"leave out {_flag(name)}, or --limits",
            )
    time = None if flags.training_time is None else parse_time(flags.training_time, field="--training-time")
    curve = _given(
        min_flop=_number(flags.min_flop, "--min-flop", most=MOST_FLOP),
        max_flop=_number(flags.max_flop, "--max-flop", most=MOST_FLOP),
        points_per_decade=_whole(flags.points_per_decade, "--points-per-decade", most=50),
        training_time_s=time,
        variants=flags.variants,
        bytewidth=_number(layer.bytewidth, "--bytewidth"),
    )
    return _given(device=layer.device, limits=curve)


MOST_FLOP: Final = 1e40


def _check_limits(flags: LimitsFlags, asked: Mapping[str, Any]) -> None:
    given = [name for name, value in asdict(flags).items() if value is not None]
    if given and "limits" not in asked:
        raise InputError(
            f"{_flag(given[0])} is given without --limits",
            rule="it is a flag of the limits curve",
            hint="add --limits",
        )


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
    top, workers = whole(flags.top, "--top", most=MOST), whole(flags.workers, "--workers", most=MOST_WORKERS)
    from shardplan.answers.methods.catalogue import searcher_document
    from shardplan.methods.catalogue import load_method
    from shardplan.methods.searcher.method import Searcher

    method = load_method("searcher")
    assert isinstance(method, Searcher)
    files = {"cluster": flags.cluster, "model": flags.model}
    parts = {name: section(path, name) for name, path in files.items() if path is not None}
    asked = merged({name: part for name, part in read_case(case, method).items() if name not in parts}, parts)
    with workers_of(workers) as executor:
        document = searcher_document(asked, method.answer(asked, executor=executor), top=top)
    target.check_content(b"")
    if result.where is not None:
        result.write_text(method.result_file(asked))
    return show_answer(document, target, is_silent=result.is_stdout)


FilesArgument = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Reference files, of any method.")]


@with_flags
def check(*, files: FilesArgument, output: OutputFlags) -> int:
    """Recompute every case of reference files, and say how far the published figures are.

    Exits with 1 where a relative difference exceeds 1e-9 (1e-12 absolute where the reference is 0), or a degree, a
    recommendation or a word differs.
    """
    target = output.checked_target(*files)
    from shardplan.answers.methods.catalogue import check_document
    from shardplan.methods.check import check_files

    return show_answer(check_document(check_files(files)), target)


@with_flags
def other(*, context: typer.Context, case: CaseFlags, output: OutputFlags) -> int:
    """Ask a method of another package a case in its own terms."""
    target = output.checked_target(case.input)
    from shardplan.answers.methods.catalogue import other_document
    from shardplan.methods.catalogue import asked_of, load_method

    method = load_method(context.meta[KEY])
    asked = read_case(case, method)
    return show_answer(other_document(method.name, asked, asked_of(method, lambda: method.answer(asked))), target)


def _given(**fields: Any) -> dict[str, Any]:
    """Fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None}


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _whole(text: str | None, flag: str, *, most: int = MOST) -> int | None:
    return None if text is None else whole(text, flag, most=most)


def _number(text: str | None, flag: str, *, most: float = 1e30) -> float | None:
    return None if text is None else number(text, flag, most=most)


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

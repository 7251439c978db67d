"""The command line: exit status 0 answered, 1 answered and the answer is no, 2 wrong input, 70 a defect."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Final, NoReturn

import typer

from shardplan.base.errors import InputError, ShardplanError, is_from_interrupt
from shardplan.base.files import forget_reads
from shardplan.base.version import VERSION
from shardplan.base.words import words
from shardplan.cli.failures import (
    INTERRUPTED,
    ClosedStream,
    abandon_output,
    defect,
    interrupted,
    is_of_output,
    of_file,
    refuse,
    unwritable,
)
from shardplan.cli.groups import SETTINGS, CommandEntry, CommandGroup, ScriptCommand

UsageError: type[Any] = typer.BadParameter.__mro__[1]  # typer does not export the base of its usage errors

RL_STEP: Final = "--prompts 64 --samples 8 --response-tokens mean=1k,max=4k"
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
        "plan",
    ),
    "audit": CommandEntry(
        "Say what a launch script runs, which rules it breaks, and what would be better.",
        (
            "shardplan audit examples/launch.sh --cluster dgx-h100",
            "shardplan audit examples/launch.sh --cluster dgx-h100 --env TP=4 --keep tp,pp --json -",
            'shardplan audit examples/launch.sh --cluster dgx-h100 --observed "step 30s"',
        ),
        "launch",
        ScriptCommand,
    ),
    "resume": CommandEntry(
        "Say whether NEW can load the checkpoint that OLD saved, and what is lost.",
        (
            "shardplan resume examples/launch.sh examples/launch.sh --env new.TP=4",
            "shardplan resume examples/launch.sh examples/launch.sh --env new.NODES=16 --cluster dgx-h100 --json -",
        ),
        "launch",
    ),
    "export": CommandEntry(
        "Write a plan as launch files of a training framework.",
        (
            "shardplan export examples/plans.json --to megatron-lm --out launch.sh",
            "shardplan export examples/plans.json --to nemo --pick 2",
        ),
        "launch",
    ),
    "compare": CommandEntry(
        "Compare two or more plans side by side, term by term.",
        (
            "shardplan compare examples/tensor-parallel.json examples/fully-sharded.json",
            "shardplan compare examples/plans.json --pick 1,3",
        ),
        "plan",
    ),
    "scale": CommandEntry(
        "Plan one job on clusters of several sizes, and say where more accelerators stop paying.",
        (
            "shardplan scale llama-3.1-70b --cluster dgx-h100 --gpus 64..4096",
            "shardplan scale llama-3.1-8b --cluster dgx-h100 --gpus 8,16,32,48 --csv scale.csv --html scale.html",
        ),
        "decisions",
    ),
    "fit": CommandEntry(
        "Find the largest sequence, micro-batch or model, or the smallest cluster, that fits, with its plan.",
        (
            "shardplan fit llama-3.1-8b --cluster dgx-h100 --gpus 8 --largest sequence_length",
            "shardplan fit llama-3.1-70b --cluster dgx-h100 --smallest gpus",
        ),
        "decisions",
    ),
    "rl": CommandEntry(
        "Plan a step of reinforcement learning: how many accelerators train, how many generate, and which wait.",
        (
            f"shardplan rl qwen3-8b --cluster dgx-h100 --gpus 16 {RL_STEP}",
            f"shardplan rl qwen3-8b --cluster dgx-h100 --gpus 8+8 --placement async --staleness 2 {RL_STEP}",
        ),
        "runs",
    ),
    "whatif": CommandEntry(
        "Change the cluster or the job of a plan, plan again, and compare term by term.",
        (
            "shardplan whatif examples/plans.json --change inter_node_bandwidth=100 --change memory=141GB",
            "shardplan whatif examples/plans.json --change precision=fp8 --html whatif.html",
            "shardplan whatif llama-3.1-8b --cluster dgx-h100 --gpus 64 --change gpus=2x --change memory=+50%",
        ),
        "decisions",
    ),
    "budget": CommandEntry(
        "Say how many accelerators and days, and how much money and energy, a training run takes.",
        (
            "shardplan budget llama-3.1-405b --cluster dgx-h100 --tokens 15.6T --days 60",
            "shardplan budget llama-3.1-70b --clusters dgx-h100,dgx-b200 --tokens 15T --gpus 2048",
            "shardplan budget llama-3.1-8b --cluster dgx-h100 --tokens 1T --money 500k --price 2.5",
        ),
        "runs",
    ),
    "sensitivity": CommandEntry(
        "Say which hardware parameter pays: the elasticity of the best step time to each of them.",
        (
            "shardplan sensitivity llama-3.1-70b --cluster dgx-h100 --gpus 512",
            "shardplan sensitivity llama-3.2-1b --cluster dgx-h100 --gpus 64 --html sensitivity.html",
        ),
        "decisions",
    ),
    "pareto": CommandEntry(
        "List the best compromises: plans or sizes that no other beats in time, memory, robustness and money.",
        (
            "shardplan pareto llama-3.1-70b --cluster dgx-h100 --gpus 512",
            "shardplan pareto llama-3.1-70b --cluster dgx-h100 --gpus 64..4096 --tokens 15T",
            "shardplan pareto llama-3.2-1b --cluster dgx-h100 --gpus 16 --csv front.csv --html front.html",
        ),
        "decisions",
    ),
    "simulate": CommandEntry(
        "Simulate a step event by event: what each stage does and waits for at every moment, and the memory it holds.",
        (
            "shardplan simulate examples/plans.json --pick 2 --jitter 0.02 --seed 1",
            "shardplan simulate examples/plans.json --schedule breadth-first --out step.json --html step.html",
            "shardplan simulate --times examples/step-times.json --json -",
            "shardplan simulate --measured examples/measured-step.csv",
        ),
        "steps",
    ),
    "sweep": CommandEntry(
        "Run a grid of searches: thousands of models, clusters, sizes and networks.",
        ("shardplan sweep examples/sweep.yaml --out results",),
        "sweep",
    ),
    "plot": CommandEntry("Draw the results of a sweep.", module="sweep"),
    "serve": CommandEntry(
        "Serve the web app and its JSON API. Nothing leaves this machine.",
        ("shardplan serve", "shardplan serve --api-only --port 8080", "shardplan serve --host 0.0.0.0"),
        "serve",
    ),
    "schedules": CommandEntry(
        "List the pipeline schedules, or show and draw one.", ("shardplan schedules", "shardplan schedules zb-h1")
    ),
    "examples": CommandEntry(
        "Write the example files that the help and the documentation use.",
        ("shardplan examples", "shardplan examples my-folder"),
        "catalogue",
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
        "List the training frameworks with known defaults, or show one.",
        ("shardplan stacks", "shardplan stacks torchtitan", "shardplan stacks --fields"),
        "catalogue",
    ),
    "profiles": CommandEntry(
        "List the calibration profiles, or show every constant of one.",
        ("shardplan profiles", "shardplan profiles hopper"),
        "catalogue",
    ),
    "validate": CommandEntry(
        "Compare predictions with measured runs.",
        ("shardplan validate --by tier", "shardplan validate examples/my-runs.csv"),
    ),
    "calibrate": CommandEntry(
        "Fit the constants of the estimate to your own measured runs, or to kernels timed on this machine.",
        ("shardplan calibrate examples/my-runs.csv --out my-cluster.yaml",),
    ),
    "published": CommandEntry(
        "List the published methods, run one on a case in its own terms, repeat a study, or check reference files.",
        module="published.commands",
    ),
}
"""The commands, in the order of the reference."""
TITLES: Final = {
    "What everyone needs": (
        *("plan", "estimate", "compare", "audit", "export", "budget", "scale", "fit", "whatif", "serve"),
    ),
    "More decisions": ("sensitivity", "pareto", "rl", "resume", "simulate", "sweep", "plot"),
    "How sure it is": ("validate", "calibrate", "profiles"),
    "What is built in": ("models", "clusters", "accelerators", "stacks", "examples"),
    "Research": ("published", "schedules"),
}
"""Titles of the help, with their commands."""
OTHERWISE: Final = words(
    {
        "plan": "search optimize optimise tune find best recommend auto autotune solve",
        "estimate": "predict price memory mem mfu time cost-model",
        "audit": "check lint review inspect explain-script",
        "export": "launch write convert generate",
        "compare": "diff",
        "budget": "cost money energy train days",
        "scale": "scaling speedup strong-scaling weak-scaling",
        "fit": "max largest smallest capacity",
        "whatif": "change what-if scenario",
        "sensitivity": "elasticity bottleneck",
        "rl": "grpo ppo rlhf post-train posttrain",
        "simulate": "trace gantt simulation step",
        "serve": "web app ui gui server dashboard",
        "published methods": "methods",
        "published study": "study",
        "models": "model list list-models",
        "clusters": "cluster hardware systems list-clusters",
        "accelerators": "gpus gpu accelerator devices chips",
        "stacks": "frameworks framework stack",
        "profiles": "profile constants",
        "validate": "accuracy errors benchmark",
        "calibrate": "fit-constants calibration",
    }
)
"""Commands by other words."""
RENAMED: Final = {"timeline": "simulate"}
"""Former names of commands, which still work."""


class Commands(CommandGroup):
    """The group of commands; it turns every refusal into an error text, a record and an exit status."""

    ENTRIES = COMMANDS
    TITLES = TITLES
    OTHERWISE = OTHERWISE
    RENAMED = RENAMED

    def main(self, args: Sequence[str] | None = None, **extra: Any) -> NoReturn:  # type: ignore[override]  # it always exits
        """Runs a command and exits."""
        arguments = list(sys.argv[1:] if args is None else args)
        forget_reads()
        try:
            status = super().main(arguments, **{**extra, "standalone_mode": False})
            sys.stdout.flush()  # a reader that has gone is noticed here
        except SystemExit as stop:  # typer's own answer to a broken pipe is 1; completion of a shell ends with 0
            status = abandon_output() if stop.code == 1 else stop.code
        except (KeyboardInterrupt, typer.Abort):
            status = INTERRUPTED
        except Exception as error:  # noqa: BLE001  # anything else is a defect, and has its own status
            status = INTERRUPTED if is_from_interrupt(error) else _ended_by(error, arguments)
        if status == INTERRUPTED:
            interrupted()
        sys.exit(status if isinstance(status, int) else 0)


def _ended_by(error: Exception, arguments: Sequence[str]) -> int:
    """Reports why a command gives no answer; returns its exit status."""
    if isinstance(error, UsageError):
        error = _from_usage(error, arguments)
    if isinstance(error, ShardplanError):
        return refuse(error, arguments)
    if isinstance(error, BrokenPipeError):
        return abandon_output()
    if is_of_output(error):
        return unwritable(error)
    if isinstance(error, OSError) and error.filename is not None:
        return refuse(of_file(error), arguments)
    return defect(error)


def _from_usage(error: Any, arguments: Sequence[str]) -> ShardplanError:
    """Our error from one of typer's."""
    from shardplan.cli.unknown import stray_field, unknown_flag

    context = getattr(error, "ctx", None)
    usage = f"see `{' '.join(('shardplan', *_command_of(context, arguments), '--help'))}`"
    option = getattr(error, "option_name", None)
    flags = [] if context is None else context.command.params
    known = [name for each in flags for name in (*each.opts, *each.secondary_opts)]
    if option is not None and context is not None and hasattr(error, "possibilities"):
        return unknown_flag(option, known, command=str(context.info_name), usage=usage)
    message = str(error.format_message()).rstrip(".")
    kinds = {"MissingParameter": "nothing needed is missing", "BadParameter": "a value is of its flag's kind"}
    rule = kinds.get(type(error).__name__, "the command line can be read")
    return InputError(message, rule=rule, hint=stray_field(message, known) or usage)


def _command_of(context: Any, arguments: Sequence[str]) -> list[str]:
    """Words of the command that could not be parsed."""
    words: list[str] = []
    while context is not None and context.parent is not None:
        words.insert(0, str(context.info_name))
        context = context.parent
    return words or [each for each in arguments if each in COMMANDS][:1]


app = typer.Typer(
    name="shardplan",
    cls=Commands,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=SETTINGS,
    epilog="Start with: shardplan plan llama-3.1-70b --cluster dgx-h100 --gpus 512",
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
    if sys.stdout is None:
        sys.stdout = ClosedStream()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # a terminal that lacks a character shows ?
    app()

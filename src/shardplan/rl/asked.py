"""From a record of what is asked to an RL task: the same defaults, names and errors, whoever asks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from shardplan.ask.names import cluster_of, model_of
from shardplan.ask.questions import ask_search, choices_in
from shardplan.ask.rl_forms import POOLS_HINT
from shardplan.base.errors import InputError, UnknownNameError, shown
from shardplan.base.fields import described
from shardplan.base.files import read_text
from shardplan.base.units import parse_whole
from shardplan.base.words import FLAGS, folded, switch_word
from shardplan.decide.searching import Searches
from shardplan.estimation.question import Question
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan
from shardplan.inputs.readers.typed import grid, number, pairs_of, whole
from shardplan.planner.restrictions import values_excluded, values_given
from shardplan.planner.stopping import Stop
from shardplan.rl.checks import check_asked, check_sum
from shardplan.rl.engine import WEIGHT_BYTES
from shardplan.rl.generation import Responses
from shardplan.rl.lengths import ENDLESS, MOST_TOKENS, SPREAD, Lengths
from shardplan.rl.programs import Framework, framework_of
from shardplan.rl.task import DRAFTERS, PLACEMENTS, RlTask, algorithm_of, check_updates, split_fixed
from shardplan.rl.trainer import Packing
from shardplan.rl.transfer import checked_method, engine_facts

PROMPT_TOKENS: Final = 256
OF_EXPERTS: Final = ("ep", "overlap_ep", "moe_dispatcher")
"""Fields of a plan that a dense model has no use for."""
Record = Mapping[str, Any]


class AskedRl(NamedTuple):
    """An RL task, how its trainer is searched, and what was assumed."""

    task: RlTask
    searches: Searches
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def ask_rl(record: Record, rl: Record, *, reads_files: bool = True, stop: Stop | None = None) -> AskedRl:
    """The task of a question's record (:func:`shardplan.ask.questions.ask`) and the fields of ``RlForm`` in ``rl``.

    Raises InputError, which names the field and the rule.
    """
    try:
        return _task(record, rl, reads_files=reads_files, stop=stop)
    except InputError as error:
        if type(error) is not InputError or error.rule in error.message:
            raise
        raise InputError(f"{error.message}; {error.rule}", rule=error.rule, hint=error.hint) from None


def _task(record: Record, rl: Record, *, reads_files: bool, stop: Stop | None) -> AskedRl:
    _check_given(record, rl)
    train, generate = _pools(record.get("num_accelerators"))
    fixed, fixed_rollout = split_fixed(record.get("fix"))
    _check_names(fixed, record.get("limit"), record.get("exclude"))
    framework = framework_of(rl.get("framework"), rl.get("backend"), record.get("stack"))
    framework.check_plan({**(record.get("limit") or {}), **fixed})
    packing = _packing(rl, _answers(rl, reads_files=reads_files), framework)
    other = rl.get("rollout_cluster")
    total = train if generate is None or other is not None else train + generate
    of_trainer = {
        **framework.over(record),
        **({} if record.get("nodes") is not None else {"num_accelerators": total}),
        "fix": fixed or None,
        "sequence_length": packing.pack_tokens,
        "global_batch_size": packing.batch(1),
    }
    posed = ask_search(of_trainer, reads_files=reads_files, stop=stop)
    choices = _of_framework(choices_in({**record, "fix": fixed or None}), framework, posed.question.model)
    task = RlTask(
        question=posed.question,
        answers=packing.answers,
        packing=packing,
        critic=_critic(rl, posed.question.model, reads_files=reads_files),
        rollout_cluster=None if other is None else cluster_of(other, reads_files=reads_files),
        num_train=train if generate is not None else None,
        num_rollout=generate,
        fixed_rollout=fixed_rollout,
        **_choices(rl, framework),
    )
    engine_facts(task.engine)
    check_asked(task, rl, record.get("num_accelerators"))
    searches = Searches.of(stack=posed.stack, stop=stop, **choices)
    _check_values(searches, posed.question)
    assumed = (*posed.restricted(choices).assumptions, *_assumed(task))
    return AskedRl(task, searches, assumed, posed.warnings)


def _check_values(searches: Searches, question: Question) -> None:
    """Refuses values that no plan can have: their search would only say that no plan fits. Raises InputError."""
    try:
        values_given(searches, question)
        values_excluded(searches, question)
    except InputError as error:
        hint = error.hint.replace("--fix ", "--fix train.")
        raise InputError(f"trainer: {error.message}", rule=error.rule, hint=hint) from None


def _of_framework(choices: dict[str, Any], framework: Framework, model: ModelConfig) -> dict[str, Any]:
    """The choices, with what the trainer of a framework runs where nothing else is said."""
    said = {name for given in choices.values() for name in given or ()}
    own = {name: values for name, values in framework.plan.items() if name not in said}
    if not model.is_moe:
        own = {name: values for name, values in own.items() if name not in OF_EXPERTS}
    return {**choices, "limit": {**own, **(choices["limit"] or {})} or None}


def _packing(rl: Record, answers: Responses, framework: Framework) -> Packing:
    """How answers become sequences. Raises InputError."""
    updates = int(rl.get("updates") or 1)
    check_updates(answers.prompts, answers.samples, updates)
    return Packing(
        answers=answers,
        pack_tokens=int(rl.get("pack_tokens") or answers.prompt_tokens + answers.lengths.cap),
        updates=updates,
        pass_packs=float(rl.get("pass_packs") or 1.0),
        shared_prompts=bool(rl.get("prefix_shared")),
        padded=float(rl.get("padded") or 0.0),
        whole=bool(rl.get("whole")),
        epochs=int(rl.get("epochs") or 1),
        framework=framework,
    )


def _choices(rl: Record, framework: Framework) -> dict[str, Any]:
    """Fields of the task that stand for themselves. Raises InputError."""
    algorithm = _algorithm(rl)
    return {
        "algorithm": algorithm,
        "old_pass": _yes("old_pass", rl.get("old_pass"), otherwise=True),
        "reference": _yes("reference", rl.get("reference"), otherwise=algorithm_of(algorithm).reference),
        "reward_time": float(rl.get("reward_seconds") or 0.0),
        "rollout_precision": _format("rollout_precision", rl),
        "cache_precision": _format("cache_precision", rl),
        **_speculative(rl.get("speculative")),
        "engine": str(rl.get("engine") or framework.runs.get("engine", ("vllm",))[0]).lower(),
        "transfer": None if rl.get("transfer") is None else checked_method(str(rl["transfer"])),
        "placements": _placements(rl, framework),
        "staleness": int(1 if rl.get("staleness") is None else rl["staleness"]),
        "in_flight": _yes("in_flight", rl.get("in_flight"), otherwise=True),
        "memory_share": rl.get("memory_share"),
        "states_stay": bool(rl.get("states_stay")),
        "engine_stays": bool(rl.get("engine_stays")),
    }


def _algorithm(rl: Record) -> str:
    return str(rl.get("algorithm") or "grpo").lower()


def lengths_of(text: str, *, reads_files: bool = True) -> Lengths:
    """The lengths that ``mean=2k,max=4k`` or ``file=lengths.txt`` means. Raises InputError."""
    parts = [part for part in text.split(",") if part.strip()]
    pairs = pairs_of("--response-tokens", parts) if all("=" in part for part in parts) else []
    given, known = dict(pairs), ("mean", "max", "spread", "endless", "file")
    for name in given:
        if name not in known:
            raise UnknownNameError("name of --response-tokens", name, known, hint="write mean=2k,max=4k")
    cap = None if "max" not in given else whole(given["max"], "max", most=MOST_TOKENS, is_length=True)
    if "file" in given:
        return _measured(given, cap, reads_files=reads_files)
    if cap is None or "mean" not in given or len(given) < len(pairs):
        raise InputError(
            f"--response-tokens is {shown(text)}",
            rule="lengths have one mean and one max",
            hint='write --response-tokens "mean=2k,max=4k", or "file=lengths.txt"',
        )
    return Lengths(
        mean=float(whole(given["mean"], "mean", least=0, most=MOST_TOKENS, is_length=True)),
        cap=cap,
        spread=number(given["spread"], "spread", most=10, may_be_zero=True) if "spread" in given else SPREAD,
        endless=number(given["endless"], "endless", most=1, may_be_zero=True) if "endless" in given else ENDLESS,
    )


def _measured(given: Mapping[str, str], cap: int | None, *, reads_files: bool) -> Lengths:
    """Lengths in a file. Raises InputError."""
    if not reads_files or len(given) > 1 + (cap is not None):
        raise InputError(
            f"--response-tokens has file with {', '.join(sorted(set(given) - {'file'})) or 'no file to read here'}",
            rule="a file of lengths stands alone, or with max; the server reads no files",
            hint='write --response-tokens "file=lengths.txt"',
        )
    lines = enumerate(read_text(Path(given["file"])).splitlines(), start=1)
    found = [_length(line.strip(), f"{given['file']}, line {place}") for place, line in lines if line.strip()]
    return Lengths.of_file(found, cap)


def _length(text: str, where: str) -> int:
    """A length of a file. Raises InputError."""
    try:
        return parse_whole(text)
    except ValueError as error:
        raise InputError(
            f"{where}: {shown(text)} {error}",
            rule="a file of lengths has a whole number of tokens in each line",
            hint="write the length of every answer on a line of its own",
        ) from None


def _check_given(record: Record, rl: Record) -> None:
    """What a step cannot do without, and what follows from it and is not given. Raises InputError."""
    needed = {
        "prompts": "--prompts 64",
        "samples": "--samples 32",
        "response_tokens": '--response-tokens "mean=2k,max=4k"',
    }
    missing = [how for name, how in needed.items() if rl.get(name) is None]
    if missing:
        raise InputError(
            f"missing: {', '.join(missing)}",
            rule="an RL step has prompts, answers to each and lengths of answers",
            hint=f"add {' '.join(missing)}",
        )
    job = record.get("job")
    given = {**job, **record} if isinstance(job, Mapping) else record
    of = {"global_batch_size": "--prompts, --samples and --updates", "sequence_length": "--pack-tokens"}
    for name, instead in of.items():
        if given.get(name) is not None:
            raise InputError(
                f"{name} is {given[name]}",
                rule=f"{name} of the trainer follows from the answers",
                hint=f"set {instead}",
            )


def _pools(given: Any) -> tuple[int, int | None]:
    """Accelerators of the trainer and, where they are apart, of generation: ``64+128``. Raises InputError."""
    parts = str(given if given is not None else 1).split("+")
    try:
        counts = [math.prod(grid(part) or (parse_whole(part.strip()),)) for part in parts]
    except ValueError:
        counts = []
    if len(counts) not in (1, 2) or min(counts) < 1:
        raise InputError(
            f"--gpus is {shown(given)}", rule="accelerators are a number, or trainer+generation", hint=POOLS_HINT
        )
    check_sum(given, tuple(counts))
    return counts[0], counts[1] if len(counts) == 2 else None


def _check_names(*choices: Mapping[str, Any] | None) -> None:
    """Refuses what is no field of the trainer's plan: its search would only say that no plan fits."""
    known = ("dp", *described(Plan))
    for name in (name for given in choices for name in given or ()):
        if name not in known:
            raise UnknownNameError("field of a plan", name, known, hint="such as tp, pp or cp: --fix train.tp=2")


def _answers(rl: Record, *, reads_files: bool) -> Responses:
    given = rl["response_tokens"]
    lengths = given if isinstance(given, Lengths) else lengths_of(str(given), reads_files=reads_files)
    return Responses(
        prompts=int(rl["prompts"]),
        samples=int(rl["samples"]),
        prompt_tokens=int(rl.get("prompt_tokens") or PROMPT_TOKENS),
        lengths=lengths,
    )


def _yes(name: str, given: Any, *, otherwise: bool) -> bool:
    """A yes or no. Raises InputError."""
    if given is None or isinstance(given, bool):
        return otherwise if given is None else given
    found = FLAGS.get(folded(str(given)))
    if found is None:
        flag = f"--{name.replace('_', '-')}"
        raise InputError(
            f"{flag} is {shown(given)}", rule=f"{name.replace('_', ' ')} is yes or no", hint=f"write {flag} no"
        )
    return found


def _critic(rl: Record, policy: Any, *, reads_files: bool) -> Any:
    """The value model. Raises InputError where the algorithm trains none."""
    wanted = algorithm_of(_algorithm(rl)).critic
    if rl.get("critic") is None:
        return policy if wanted else None
    if not wanted:
        raise InputError(
            f"--critic is {shown(rl['critic'])} with --algorithm {rl.get('algorithm') or 'grpo'}",
            rule="of the algorithms, ppo trains a critic",
            hint="set --algorithm ppo, or leave --critic out",
        )
    critic = model_of(rl["critic"], reads_files=reads_files)
    if critic.vocab_size != policy.vocab_size:
        raise InputError(
            f"--critic {critic.name} has a vocabulary of {critic.vocab_size:,}, {policy.name} one of "
            f"{policy.vocab_size:,}",
            rule="a critic reads the tokens of the policy",
            hint=f"choose a critic with a vocabulary of {policy.vocab_size:,}, or leave --critic out",
        )
    return critic


def _format(name: str, rl: Record) -> str:
    given = str(rl.get(name) or "bf16").lower()
    if given not in WEIGHT_BYTES:
        raise UnknownNameError(name, given, WEIGHT_BYTES, hint=f"one of {', '.join(WEIGHT_BYTES)}")
    return given


def _speculative(given: Any) -> dict[str, Any]:
    """Who drafts and how many tokens, of ``mtp`` or ``eagle:2``. Raises InputError."""
    name, _, number_of = str(given or "none").partition(":")
    if folded(name) not in (*DRAFTERS, "none", "no"):
        hint = "write --speculative mtp, or mtp:2"
        raise UnknownNameError("--speculative", name, (*DRAFTERS, "none"), hint=hint)
    if folded(name) not in DRAFTERS:
        return {}
    drafts = whole(number_of, f"--speculative {folded(name)}", most=8) if number_of else 1
    return {"drafter": folded(name), "drafts": drafts}


def _placements(rl: Record, framework: Framework) -> tuple[str, ...]:
    """Those that are compared."""
    given = rl.get("placement")
    if given is None:
        return framework.runs.get("placement", tuple(PLACEMENTS))
    return tuple(name.strip() for name in str(given).replace("_", "-").split(","))


def _assumed(task: RlTask) -> tuple[str, ...]:
    """What was taken for granted of the answers and of what is not counted."""
    lengths = task.answers.lengths
    spread = (
        f"{len(lengths.measured):,} measured lengths"
        if lengths.measured
        else f"log-normal lengths, spread {lengths.spread:g}; {100 * lengths.endless:g} % of answers run to the cap"
    )
    texts = [
        f"answers: {spread}",
        "an engine keeps the cache of a prompt for all answers to it",
        "rewards are computed while answers are generated, but for --reward-seconds",
    ]
    framework = task.packing.framework
    if framework.backend:
        runs = "; ".join(
            f"{name} {'|'.join('none' if value is None else switch_word(value) for value in values)}"
            for name, values in framework.plan.items()
        )
        texts.append(f"{framework.name or 'the trainer'} with {framework.backend}, unless it is fixed: {runs}")
    if task.drafter == "eagle":
        texts.append("a draft layer beside the model (EAGLE) is right as often as multi-token prediction")
    if task.critic is not None:
        texts.append("the critic takes as long for a token as the policy for each of its active parameters")
    if task.question.job.train == "lora":
        facts = engine_facts(task.engine)
        alone = "runs adapters, whose cost is not counted: they alone are sent"
        sent = alone if facts.adapters else "runs no adapters: all weights are sent"
        texts.append(f"{task.engine} {sent} ({facts.adapters_source})")
    if task.algorithm == "dapo":
        texts.append("prompts that DAPO drops and samples again are not counted")
    return tuple(texts)

"""``shardplan.rl``: a step of reinforcement learning, trainer and generation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, Unpack

from shardplan.answers.document import AnswerDocument
from shardplan.answers.rl import NOTHING_MORE, More, rl_document
from shardplan.api.questions import SearchFields
from shardplan.api.saving import AsDocument
from shardplan.ask.names import ClusterLike, ModelLike
from shardplan.ask.rl_forms import RlForm
from shardplan.base.fields import check, dataclass, described
from shardplan.base.records import field_values
from shardplan.decide.scale import checked_sizes
from shardplan.decide.searching import Progress
from shardplan.inputs.readers.typed import pairs_of
from shardplan.planner import stopping
from shardplan.planner.stopping import Stop
from shardplan.rl.asked import ask_rl
from shardplan.rl.lengths import Lengths
from shardplan.rl.observed import differences
from shardplan.rl.search import RlResult, search_rl
from shardplan.rl.variants import changed, run_of, sensitivities, sizes, with_change

OBJECTS: Final = ("critic", "rollout_cluster", "response_tokens")
"""Fields that are texts of a form and may be objects in Python."""
TEXTS: Final = ("change", "observed")
"""Fields that are lists of texts, of which one may stand alone."""


class RlFields(SearchFields, total=False):
    """What :func:`rl` takes besides: fields of an RL step, and what every function that searches takes."""

    prompt_tokens: int | str
    algorithm: str
    reference: bool | str
    old_pass: bool | str
    critic: ModelLike
    reward_seconds: float
    updates: int
    pack_tokens: int | str
    placement: str
    staleness: int
    rollout_cluster: ClusterLike
    engine: str
    rollout_precision: str
    cache_precision: str
    speculative: str
    prefix_shared: bool
    transfer: str
    steps: int
    days: float
    change: str | Sequence[str]
    sensitivity: bool
    observed: str | Sequence[str]


@dataclass(frozen=True, kw_only=True)
class RlAnswer(RlResult, AsDocument):
    """The best plan of every placement: :class:`shardplan.rl.search.RlResult`. Rows: the placements."""

    given: tuple[str, ...] = ()
    """What was set in place of usual values, and what is said of it."""
    assumptions: tuple[str, ...] = ()
    more: More = NOTHING_MORE
    """Other sizes, what changes, and what was measured."""

    def document(self) -> AnswerDocument:
        """What ``shardplan rl`` prints."""
        return rl_document(self, self.given, self.assumptions, self.more)


def rl(
    model: ModelLike,
    cluster: ClusterLike,
    num_accelerators: int | str | Sequence[int],
    *,
    prompts: int,
    samples: int,
    response_tokens: str | Lengths,
    progress: Progress | None = None,
    **asked: Unpack[RlFields],
) -> RlAnswer:
    """Plans a step of reinforcement learning: which accelerators train, which generate, and which wait.

    ``rl("qwen3-30b-a3b", "dgx-h100", 32, prompts=64, samples=32, response_tokens="mean=2k,max=4k")``. The trainer's
    plans, the layouts of the engine, the split of the accelerators and their placement are searched.
    ``num_accelerators`` may be ``"64+128"``, trainer and generation, or a list of sizes to compare. Fields are fixed
    by pool: ``fix={"train.pp": 16, "rollout.tp": 32}``. Fields of the step have the names of the flags of ``shardplan
    rl``; other arguments are those of :func:`search`, without batch and sequence length, which follow from the answers.

    Raises ``InputError`` for what is unknown or malformed, and for what no placement can run.
    """
    known: dict[str, Any] = {**asked}
    step = {name: known.pop(name) for name in described(RlForm) if name in known}
    step |= {"prompts": prompts, "samples": samples, "response_tokens": response_tokens}
    stop = known.pop("stop", None)
    record = {"model": model, "cluster": cluster, "num_accelerators": num_accelerators, **known}
    return planned(record, checked(step), progress=progress, stop=stop)


def checked(step: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an RL step, each of its type and within its bounds. Raises InputError."""
    found = {name: value for name, value in step.items() if value is not None}
    for name in ("reference", "old_pass"):
        if isinstance(found.get(name), bool):
            found[name] = "yes" if found[name] else "no"
    for name in TEXTS:
        if name in found:
            found[name] = [found[name]] if isinstance(found[name], str) else [*found[name]]
    objects: dict[str, Any] = {
        name: found.pop(name) for name in OBJECTS if not isinstance(found.get(name), str) and name in found
    }
    form = RlForm(**found)
    check(form)
    return {**{name: getattr(form, name) for name in found}, **objects}


def planned(
    record: Mapping[str, Any],
    step: Mapping[str, Any],
    *,
    counts: Sequence[int] = (),
    reads_files: bool = True,
    progress: Progress | None = None,
    stop: Stop | None = None,
) -> RlAnswer:
    """The answer to a question's record and the fields of an RL step, whoever asks. Raises InputError.

    ``counts``: sizes to compare; the numbers of accelerators of the record where these are a list.
    """

    def between(done: int, of: int) -> None:
        stopping.check(stop)
        if progress is not None:
            progress(done, of)

    size = record.get("num_accelerators")
    if isinstance(size, list | tuple):
        counts = checked_sizes(size)
        record = {**record, "num_accelerators": counts[-1]}
    changes, run = pairs_of("--change", step.get("change") or ()), run_of(step.get("steps"), step.get("days"))
    ask = partial(ask_rl, reads_files=reads_files, stop=stop)
    asked = ask(record, step)
    for change in changes:
        ask(*with_change(record, step, *change))  # so that a wrong one is refused before the search
    found = search_rl(asked.task, asked.searches, between)
    texts, best = step.get("observed"), found.best
    more = More(
        sizes=sizes(record, step, counts, between, ask=ask) if counts else (),
        changed=changed(record, step, changes, best, between, ask=ask),
        parameters=sensitivities(record, step, asked, between, ask=ask) if step.get("sensitivity") else (),
        run=run,
        observed=differences(texts, best) if texts and best else (),
    )
    return RlAnswer(**field_values(RlResult, found), given=asked.warnings, assumptions=asked.assumptions, more=more)

"""How many token copies the most loaded rank of experts gets, by how the router shares them out."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from shardplan.base.arrays import Numbers
from shardplan.inputs.documents import normal
from shardplan.inputs.job import Job
from shardplan.inputs.layers import MixtureOfExperts
from shardplan.inputs.model import ModelConfig


def most_loaded(config: MixtureOfExperts, job: Job, ep: Numbers) -> Numbers:
    r"""Token copies of the most loaded expert-parallel rank relative to the mean, for which the others wait.

    Of ranks that hold :math:`m = E / ep` experts each. Expert by expert, as a job may state them, it is the largest
    sum of a rank's shares times ep, on average over layers. Of a router in a known state it is expected to be

    .. math:: e^{\,\tau z - \tau^2 / 2}, \quad \tau^2 = \ln\left(1 + \frac{\sigma^2}{m} \frac{E - m}{E - 1}\right),
        \quad z = \Phi^{-1}\left(\frac{ep - 3/8}{ep + 1/4}\right)

    the largest of ep log-normal loads whose spread is that of means of m experts drawn without replacement (G. Blom,
    1958, for z). On the counts that the spreads come from it is within 12 % of the mean over random placements up to
    two experts a rank (``tests/physics/workload/test_routing.py``).

    One where a rank has all experts, and where experts take a fixed number of tokens (``moe_capacity``). At most
    :math:`\min(ep, E / k)`: every token sends all of its k copies to one rank, or one to each of its experts.
    """
    routing = job.routed
    if routing.is_balanced or job.software.moe_capacity:
        return 1.0
    most = np.minimum(ep, config.num_experts / config.top_k)
    if routing.ratio is not None:
        return np.minimum(routing.ratio, most)
    found = _stated(config, routing.layers, ep) if routing.layers else _expected(config, routing.spread(config), ep)
    return np.clip(found, 1.0, most)


def check_routing(model: ModelConfig, job: Job) -> None:
    """Refuse shares of experts that the model has not. Raises ``InputError``."""
    for moe in _mixtures(model):
        job.routed.check(moe, model.name)


def most_loaded_of(model: ModelConfig, job: Job, ep: Numbers) -> Numbers:
    """The same of the layers of a model whose ranks differ most; 1 without experts."""
    most: Numbers = 1.0
    for moe in _mixtures(model):
        most = np.maximum(most, most_loaded(moe, job, ep))
    return most


def _mixtures(model: ModelConfig) -> list[MixtureOfExperts]:
    return [kind.mlp for kind in model.layer_kinds if isinstance(kind.mlp, MixtureOfExperts)]


def _expected(config: MixtureOfExperts, spread: float, ep: Numbers) -> Numbers:
    experts, ranks = config.num_experts, np.asarray(ep, dtype=np.float64)
    each = np.maximum(experts / ranks, 1.0)
    variance = spread**2 / each * (experts - each) / max(experts - 1, 1)
    tau = np.sqrt(np.log1p(variance))
    return np.exp(tau * _of_each(ranks, _largest) - tau**2 / 2)


def _largest(ranks: float) -> float:
    """Expected largest of as many standard normal numbers."""
    return normal().inv_cdf((ranks - 0.375) / (ranks + 0.25)) if ranks > 1 else 0.0


def _stated(config: MixtureOfExperts, layers: tuple[Mapping[int, float], ...], ep: Numbers) -> Numbers:
    """Experts lie on the ranks in their order."""
    sums = [np.cumsum([0.0, *(shares.get(each, 0.0) for each in range(config.num_experts))]) for shares in layers]

    def load(ranks: float) -> float:
        borders = np.linspace(0, config.num_experts, max(int(ranks), 1) + 1)
        whole = np.arange(config.num_experts + 1)
        return float(np.mean([np.diff(np.interp(borders, whole, total)).max() * ranks for total in sums]))

    return _of_each(np.asarray(ep, dtype=np.float64), load)


def _of_each(numbers: Numbers, of_one: Callable[[float], float]) -> Numbers:
    """A function of one number, of each of several, few of which differ."""
    distinct, at = np.unique(np.asarray(numbers), return_inverse=True)
    found = np.asarray([of_one(float(each)) for each in distinct])
    return found[at].reshape(np.shape(numbers))

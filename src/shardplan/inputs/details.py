"""What a launch file states of a model and no cost depends on: positions, norms, activation, routing scores."""

from __future__ import annotations

from shardplan.fields import dataclass


@dataclass(frozen=True, kw_only=True)
class ModelDetails:
    """Values of a ``config.json`` that leave time and memory as they are. None: the file does not state it."""

    rope_theta: float | None = None
    """Base of rotary positions."""
    partial_rotary_factor: float | None = None
    """Share of a head's channels that are rotated."""
    rope_scaling: tuple[tuple[str, bool | float | str], ...] = ()
    """Scaling of rotary positions, by name in ``config.json``; empty: none, or none stated."""
    norm_eps: float | None = None
    """Number that norms add below the root."""
    hidden_act: str | None = None
    """Activation function, or that of the gate: ``silu``, ``gelu`` ..."""
    initializer_range: float | None = None
    """Standard deviation of initial weights."""
    scoring_func: str | None = None
    """How the router turns its outputs into scores: ``softmax`` or ``sigmoid``."""
    routed_scaling_factor: float | None = None
    """Factor of the routed experts' outputs."""

    @property
    def scaling_kind(self) -> str:
        """Kind of scaling of rotary positions, such as ``llama3`` or ``yarn``; empty: none is stated."""
        known = dict(self.rope_scaling)
        return str(known.get("rope_type", known.get("type", ""))) if known else ""

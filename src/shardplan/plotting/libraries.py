"""The libraries that draw: an optional extra, looked for when something is drawn."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from shardplan.errors import InputError


def plotly_parts() -> tuple[Any, Any]:
    """Traces of plotly, and its function for panels. Raises ``InputError``."""
    return _module("plotly.graph_objects"), _module("plotly.subplots").make_subplots


def matplotlib_parts() -> tuple[Any, Any]:
    """The figure of matplotlib, and the canvas that writes PNG. Raises ``InputError``."""
    return _module("matplotlib.figure").Figure, _module("matplotlib.backends.backend_agg").FigureCanvasAgg


def matplotlib_settings(settings: dict[str, Any]) -> Any:
    """A context in which matplotlib has other settings. Raises ``InputError``."""
    return _module("matplotlib").rc_context(settings)


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        library = name.partition(".")[0]
        raise InputError(
            f"{library} is not installed, which draws figures",
            rule="figures need the extra 'plots'",
            hint="pip install 'shardplan[plots]'",
        ) from None

"""Figures: :mod:`chart` describes one, :mod:`page` and :mod:`picture` draw it. A notebook shows its picture."""

from shardplan.plotting.chart import Chart
from shardplan.plotting.picture import png_picture

Chart._repr_png_ = png_picture  # type: ignore[attr-defined]

"""A figure that a notebook shows."""

from __future__ import annotations

from shardplan.fields import dataclass
from shardplan.plotting.panels import Panels
from shardplan.plotting.picture import png_picture


@dataclass(frozen=True, kw_only=True)
class Chart(Panels):
    """Panels in rows and columns, with the picture that stands for them."""

    def _repr_png_(self) -> bytes:
        """The picture that a notebook shows. Raises ``InputError`` where matplotlib is not installed."""
        return png_picture(self)

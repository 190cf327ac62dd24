r"""The row maps: how rows ``x`` with a constant ``c`` are bounded before anything is asked of them.

``"clip"``
    ``(s x, c)`` with ``s = min(1, data_norm / ||x||)``: longer rows are scaled down. Norms are at most
    ``hypot(data_norm, c)``.
``"sphere"``
    ``t (x, c)`` with ``t = data_norm / ||(x, c)||``: all rows get norm ``data_norm``, the constant included.
``"fill"``
    ``t (s x, c)`` with ``t = data_norm / ||(s x, c)||``: the sphere after the clip. A row of zeros has nothing to fill
    the bound with: it is ``(0, t c)`` with the ``t`` of a row of norm ``data_norm``.

A row's factors depend on that row and on public numbers only, so what one record can do is bounded by its own row, and
``fit`` and ``predict`` can share the map. Noise is in proportion to the bound, whether rows reach it or not. On the
sphere all of them do: where ``||x|| = f data_norm`` with ``f <= 1``, features have the share
``f / hypot(f, 0.3)`` of the bound instead of ``f / hypot(1, 0.3)`` (``c = 0.3 data_norm``), 3.5 times as much for
small ``f``, and the sign of a score stays that of the linear function ``x . coef + intercept``. What is given up is the
length of a row as a measure of confidence. Rows longer than ``data_norm`` would be left with next to no constant on
the sphere; filling clips them first, and for rows that are all that long, or zeros, it is the clip in another unit.
"""

from __future__ import annotations

from math import hypot

__all__ = ["ROW_MAPS", "row_bound"]

ROW_MAPS = ("clip", "sphere", "fill")


def row_bound(data_norm: float, intercept: float, rows: str) -> float:
    """Return what no row exceeds in norm, its constant included, on any data set.

    Examples
    --------
    >>> row_bound(3.0, 4.0, "clip"), row_bound(3.0, 4.0, "fill")
    (5.0, 3.0)
    """
    return hypot(data_norm, intercept) if rows == "clip" else float(data_norm)

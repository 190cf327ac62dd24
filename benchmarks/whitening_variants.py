"""``whitened_gd`` with one of its ingredients taken away or another constant: what ``whitening.py`` compares."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dpskl.mechanisms.noise import NoiseSource
from dpskl.mechanisms.whitened_gradient import WhitenedGradient
from dpskl.mechanisms.whitener import Whitener
from dpskl.records.problem import Problem
from dpskl.solvers import whitened_gd

__all__ = ["VARIANTS", "Variant", "variant"]

Array = np.ndarray[Any, Any]

_SOLVER = "dpskl.solvers.whitened_gd"
_RAW_CLIP = 0.2  # of rows of norm 1


class _Uniform(Whitener):
    """No whitening: every direction is taken to have the mean variance, whatever was released."""

    def __init__(self, moment: Array, ridge: float, top: float) -> None:
        dimension = len(moment)
        super().__init__(np.full(dimension, top / dimension), ridge, top)


class _Raw(Whitener):
    """No change of coordinates at all: the norm of a row is the norm of its gradient."""

    def __init__(self, moment: Array, ridge: float, top: float) -> None:
        super().__init__(np.ones(len(moment)), ridge, top)
        self.scales = self.matrix = np.ones(len(moment))
        self.matrix.flags.writeable = False
        self.effective_dimension = 1.0


def _clipped_before(
    self: WhitenedGradient, problem: Problem, whitener: Whitener, clip_norm: float, v: Array, noise: NoiseSource
) -> Array:
    """Release the gradient clipped and made noisy in the norm of the rows, and whiten what comes out."""
    total = problem.gradient_sum(whitener.to_weights(v), _RAW_CLIP)
    noisy = noise.add_normal(total / _RAW_CLIP, self.noise_scale)
    return whitener.to_whitened(noisy) * (_RAW_CLIP / clip_norm)


def _constants(**changes: Any) -> tuple[tuple[str, Any], ...]:
    """Return the replacements of the constants of both kinds of loss."""
    return tuple(
        (f"{_SOLVER}.{name}", getattr(whitened_gd, name)._replace(**changes)) for name in ("_LOGISTIC", "_HINGE")
    )


class Variant(NamedTuple):
    """What a variant is called, the parameters of its solver, and what is replaced for its fits."""

    title: str
    parameters: tuple[tuple[str, Any], ...] = ()
    patches: tuple[tuple[str, Any], ...] = ()


_FULL = (("whitening", "full"),)  # as the prototype's

VARIANTS = {
    "default": Variant("the defaults"),
    "full": Variant("full second moment", _FULL),
    "diagonal": Variant("diagonal only", (("whitening", "diagonal"),)),
    "raw_clip": Variant(
        f"full; clipped before whitening, at {_RAW_CLIP}",
        _FULL,
        (("dpskl.mechanisms.whitened_gradient.WhitenedGradient.release", _clipped_before),),
    ),
    "uniform": Variant("no whitening", _FULL, ((f"{_SOLVER}.Whitener", _Uniform),)),
    "raw": Variant(
        "no change of coordinates, clip 0.5, 20 times the time",
        _FULL,
        ((f"{_SOLVER}.Whitener", _Raw), *_constants(time=60.0, clip=0.5, largest_clip=0.5)),
    ),
    "clip_1": Variant("full, clip of 1 at every budget", _FULL, _constants(clip=1.0)),
    "largest_step": Variant("full, step of 1 at every budget", _FULL, _constants(time=1e9, caps=(1.0, 0.4))),
    "no_momentum": Variant("full, no momentum", _FULL, ((f"{_SOLVER}._LARGEST_MOMENTUM", 0.0),)),
    "fixed_clip": Variant("clip does not grow", (), ((f"{_SOLVER}._GROWTH_FROM", 1e9),)),
    "diagonal_fixed_clip": Variant(
        "diagonal only, clip does not grow", (("whitening", "diagonal"),), ((f"{_SOLVER}._GROWTH_FROM", 1e9),)
    ),
    "no_momentum_fixed_clip": Variant(
        "full, no momentum, clip does not grow",
        _FULL,
        ((f"{_SOLVER}._LARGEST_MOMENTUM", 0.0), (f"{_SOLVER}._GROWTH_FROM", 1e9)),
    ),
    "growth_from_3": Variant("clip grows from q = 3", (), ((f"{_SOLVER}._GROWTH_FROM", 3.0),)),
    "growth_from_48": Variant("clip grows from q = 48", (), ((f"{_SOLVER}._GROWTH_FROM", 48.0),)),
}


def variant(name: str) -> tuple[tuple[str, Any], ...]:
    """Return what has to be replaced for a variant; nothing for ``""``."""
    return VARIANTS[name].patches if name else ()

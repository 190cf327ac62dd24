"""Transformers that take declared bounds and read nothing from the data, so that they cost no privacy."""

from dpskl.preprocessing.clipper import RowNormClipper
from dpskl.preprocessing.knots import knots_for
from dpskl.preprocessing.plots import plot_shape
from dpskl.preprocessing.scaler import PublicScaler
from dpskl.preprocessing.shapes import shape_functions
from dpskl.preprocessing.splines import PublicSplineTransformer

__all__ = ["PublicScaler", "PublicSplineTransformer", "RowNormClipper", "knots_for", "plot_shape", "shape_functions"]

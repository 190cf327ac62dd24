"""Transformers that take declared bounds and read nothing from the data, so that they cost no privacy."""

from dpskl.preprocessing.clipper import RowNormClipper
from dpskl.preprocessing.declarations import Categories, Drop, Numeric
from dpskl.preprocessing.knots import knots_for
from dpskl.preprocessing.plots import plot_shape
from dpskl.preprocessing.scaler import PublicScaler
from dpskl.preprocessing.schema import Schema
from dpskl.preprocessing.shapes import shape_functions
from dpskl.preprocessing.splines import PublicSplineTransformer
from dpskl.preprocessing.table_encoder import TableEncoder
from dpskl.preprocessing.table_pipeline import make_table_pipeline

__all__ = [
    "Categories",
    "Drop",
    "Numeric",
    "PublicScaler",
    "PublicSplineTransformer",
    "RowNormClipper",
    "Schema",
    "TableEncoder",
    "knots_for",
    "make_table_pipeline",
    "plot_shape",
    "shape_functions",
]

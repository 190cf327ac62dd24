"""Transformers that take declared bounds and read nothing from the data, so that they cost no privacy."""

from dpskl.preprocessing.clipper import RowNormClipper
from dpskl.preprocessing.scaler import PublicScaler

__all__ = ["PublicScaler", "RowNormClipper"]

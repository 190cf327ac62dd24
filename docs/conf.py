"""Sphinx settings: ``sphinx-build -b html docs docs/_build`` in an environment with the extra ``docs``."""

from dpskl import __version__

project = "dpskl"
author = "The dpskl developers"
copyright = "2026, " + author
release = version = __version__
extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx_gallery.gen_gallery",
]
html_theme = "furo"
exclude_patterns = ["_build"]
autosummary_generate = True
numpydoc_show_class_members = False
suppress_warnings = ["config.cache"]
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"/(plot_|quickstart)",
    "download_all_examples": False,
}

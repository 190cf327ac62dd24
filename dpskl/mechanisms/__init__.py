"""Mechanisms: each file holds one, with its theorem, its sensitivity, its noise and its cost.

Only these modules and :mod:`dpskl.records.problem` read raw data on behalf of solvers.
"""

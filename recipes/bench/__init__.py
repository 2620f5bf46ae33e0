"""Costs of the fast paths, each measured in turn with its plain form: ``python -m
recipes.bench``.
"""

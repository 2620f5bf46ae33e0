"""Plots of a result."""

"""Tuning: grids over one reading of the validation text, and weights learned from it."""

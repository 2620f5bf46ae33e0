"""Tuning: grids over one reading of the validation text."""

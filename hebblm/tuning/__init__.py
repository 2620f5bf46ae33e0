"""Tuning: grids over one reading of the validation text, weights learned from it, and readings of the paper."""

"""Readings of the paper that it leaves open, each compared with the default."""

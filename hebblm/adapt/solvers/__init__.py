"""Solvers of MbPA's descent: exact, or on a few hundred classes."""

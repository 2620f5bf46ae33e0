"""Measurements of cost: every fast path beside its plain reference, interleaved in one run."""

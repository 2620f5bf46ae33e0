"""Adaptation: equations, rules and adapters; knows no model, no file and no command line."""

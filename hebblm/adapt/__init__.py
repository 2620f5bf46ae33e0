"""Adaptation: equations, rules and adapters, without models, files or command lines."""

"""Evaluation: predict, score, update; scenarios, runs and their observers."""

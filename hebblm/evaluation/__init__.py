"""Evaluation: predict, score, update; scenarios, runs and what observes them."""

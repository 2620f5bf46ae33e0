"""Evaluation: predict, score, update; metrics, scenarios and tuning."""

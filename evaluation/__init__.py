"""Scores, baselines, generation and the report of a trained model. A library: no Prefect import."""

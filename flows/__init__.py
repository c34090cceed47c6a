"""Prefect flows, the recipe and the command line: thin, they chain tasks."""

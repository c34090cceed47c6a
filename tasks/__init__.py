"""Prefect tasks: each turns one library call into a checkpointed artifact."""

"""A GPT trained in three dimensions of parallelism, and its export. A library, free of Prefect."""

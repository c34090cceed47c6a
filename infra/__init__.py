"""How a run is executed on a machine: processes, launchers, the Prefect server."""

"""evalcore on Prefect: flows, their deployments, and `evalcore run --prefect`."""

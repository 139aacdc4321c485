"""Files of saved evals: a workflow, its evals, their frozen inputs."""

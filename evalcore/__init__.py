"""evalcore: evaluation of LLM workflows as a distributed job pipeline."""

__version__ = "0.1.0"

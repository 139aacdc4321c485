"""What bounds the calls of a run: its budget, rate limits, retries and how many run at once."""

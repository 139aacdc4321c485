"""PLAN: suite × variants × iterations become an ordered sequence of identified work items."""

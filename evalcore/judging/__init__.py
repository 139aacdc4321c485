"""Judges: how they are asked, what counts as an answer, and what several of them come to."""

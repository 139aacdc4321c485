"""What a process tells of its runs while they go on: structured logs, spans, metrics.

Off by default: then nothing here is made, and no hook costs more than a comparison with None.
"""

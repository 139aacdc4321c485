"""What a file can say, declared once: one frozen class per check, scorer, gate and block."""

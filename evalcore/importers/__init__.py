"""Files of other programs → suites: one module or package for each program."""

"""EXPRESSIONS: `${…}` in script suites and the statement `starlark`, bounded in time and memory.

A security boundary: what stands in a suite file reaches no object, attribute or function beyond
plain data and the functions of `engine`. Public: `engine`, `limits`, `template`.
"""

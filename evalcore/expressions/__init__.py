"""EXPRESSIONS: `${…}` in script suites, Starlark scripts and the patterns of `match`, all bounded.

A security boundary: what stands in a suite file reaches no object, attribute or function beyond the
ones listed here, and ends within its `Budget`. Public: `failure`, `budget`, `template`, `tree`,
`starlark`, `pattern`.
"""

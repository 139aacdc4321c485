"""Calls `get_assert` of one plug-in file; a program, started by `plugin.custom` as `python -I`.

Standard input: `{"output", "context"}`. Standard output: `{"returned": …}` and nothing else:
what the plug-in prints goes to standard error. It imports only the standard library.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from typing import Any


def main(source: str) -> None:
    """Answer the question on standard input; the plug-in's exceptions end the process."""
    question = json.load(sys.stdin)
    # The plug-in and its children inherit standard error in the place of standard output, and
    # nothing to read; the answer's descriptor is not inherited.
    answer_to = os.dup(1)
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    get_assert = _load(source)
    returned = get_assert(question["output"], question["context"])
    answer = json.dumps({"returned": returned}).encode()
    sys.stderr.flush()
    while answer:
        answer = answer[os.write(answer_to, answer) :]
    # Threads and exit handlers of the plug-in cannot hold up or change an answer that is given.
    os._exit(0)


def _load(source: str) -> Any:
    spec = importlib.util.spec_from_file_location("evalcore_plugin", source)
    if spec is None or spec.loader is None:
        sys.exit(f"{source} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    try:
        return module.get_assert
    except AttributeError:
        sys.exit(f"{source} has no function get_assert(output, context)")


if __name__ == "__main__":
    main(sys.argv[1])

"""Runs Starlark scripts; a program, started by `starlark` as `python -I`.

One line of JSON in is one script, one line out its result; between the two it asks for calls of
functions that live in the other process. It has a memory limit, and is killed when time is up.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

_DEEPEST_CALLS = 100
_LARGEST_BITS = 10_000
_POSITION = re.compile(r"-->\s*script:(\d+)(?::(\d+))?")


class Stopped(Exception):  # noqa: N818 - ends the script from within a function of the other side
    """The other process does not want the script to go on."""


def main() -> None:
    """Answer scripts until standard input ends."""
    wire = _wire()
    answers = os.dup(1)
    os.dup2(2, 1)
    import starlark

    _limit_memory(int(sys.argv[1]))
    lines = sys.stdin.buffer
    os.write(answers, wire.encode({"ready": True}))
    while line := lines.readline():
        script = wire.decode(line)
        send = _sender(answers, wire)
        _Script(starlark, script, lambda: wire.decode(lines.readline()), send).answer()


def _wire() -> ModuleType:
    """Load `starlark_wire` from its file: the package around it is not needed here."""
    path = Path(__file__).with_name("starlark_wire.py")
    spec = importlib.util.spec_from_file_location("starlark_wire", path)
    if spec is None or spec.loader is None:
        raise ImportError(str(path))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _sender(to: int, wire: ModuleType) -> Callable[[dict[str, Any]], None]:
    def send(message: dict[str, Any]) -> None:
        try:
            data = wire.encode(message)
        except wire.UnsendableError as error:
            if "call" in message:
                raise TypeError(f"a function of a script takes no {error}") from None
            data = wire.encode({"error": f"the result holds {error}", "kind": "TypeError"})
        while data:
            data = data[os.write(to, data) :]

    return send


def _limit_memory(allowed: int) -> None:
    """Bound what this process may take beyond what it has now."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        most = pages * os.sysconf("SC_PAGE_SIZE") + allowed
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class _Script:
    """One script."""

    def __init__(
        self,
        starlark: Any,
        script: dict[str, Any],
        receive: Callable[[], dict[str, Any]],
        send: Callable[[dict[str, Any]], None],
    ) -> None:
        self._starlark = starlark
        self._script = script
        self._receive = receive
        self._send = send
        self._looks = 0
        self._stopped = False

    def answer(self) -> None:
        """Send the result or what went wrong."""
        try:
            result = self._result()
        except MemoryError:
            self._send({"error": "there is not enough memory for it", "kind": "LimitError"})
        except Exception as error:  # noqa: BLE001 - a script may raise anything
            self._send(self._failure(str(error)))
        else:
            self._send({"result": result})

    def _result(self) -> Any:
        starlark = self._starlark
        dialect = starlark.Dialect.extended()
        dialect.enable_load = False
        dialect.enable_f_strings = True
        source = self._script["source"]
        tree = starlark.parse("script", source, dialect)
        if self._script["only_parse"]:
            return None
        module = starlark.Module()
        for name, function in self._functions().items():
            module.add_callable(name, function)
        for name, value in self._script["scope"].items():
            module[name] = value
        for name in self._script["functions"]:
            module.add_callable(name, self._remote(name))
        self._eval(module, tree)
        for name, ending in (("result", "result"), ("run", "run()")):
            try:
                return self._eval(module, starlark.parse("script", ending, dialect))
            except starlark.StarlarkError as error:
                if f"Variable `{name}` not found" not in str(error):
                    raise
        raise ValueError("the script sets no variable 'result' and defines no function 'run'")

    def _eval(self, module: Any, tree: Any) -> Any:
        starlark = self._starlark
        kinds = starlark.LibraryExtension
        extensions = [kinds.StructType, kinds.Json, kinds.Map, kinds.Filter, kinds.Partial]
        options = starlark.EvalOptions(
            check_cancelled=self._looked, max_callstack_size=_DEEPEST_CALLS
        )
        global_names = starlark.Globals.extended_by(extensions)
        return starlark.eval_with(options, module, tree, global_names).value

    def _looked(self) -> bool:
        """Return whether the script has taken all its steps; asked once in about a thousand."""
        self._looks += 1
        return self._looks * 1000 > int(self._script["steps"])

    def _remote(self, name: str) -> Callable[..., Any]:
        def call(*values: Any, **by_name: Any) -> Any:
            self._send({"call": name, "values": list(values), "by_name": by_name})
            answer = self._receive()
            if "returned" not in answer:
                self._stopped = True
                raise Stopped(name)
            return answer["returned"]

        return call

    def _functions(self) -> dict[str, Callable[..., Any]]:
        """Return what expressions have and Starlark has not."""

        def log(message: Any, *values: Any) -> None:
            try:
                text = str(message) % values if values else str(message)
            except (TypeError, ValueError):
                text = " ".join(map(str, (message, *values)))
            self._send({"log": text})

        def write(*values: Any) -> None:
            self._send({"log": " ".join(map(str, values))})

        return {
            "get": _get,
            "hex": hex,
            "log": log,
            "oct": oct,
            "parse_json": _parse_json,
            "pow": _power,
            "print_json": _print_json,
            "print": write,
            "round": round,
            "sum": sum,
        }

    def _failure(self, text: str) -> dict[str, Any]:
        if self._stopped:
            return {"stopped": True}
        match = re.search(r"^error: (?:Parse error: )?(.*)$", text, re.MULTILINE)
        reason = (
            match[1] if match else text.strip().splitlines()[0] if text.strip() else "no reason"
        )
        positions = _POSITION.findall(text)
        line, column = positions[-1] if positions else ("", "")
        if "Evaluation cancelled" in text:
            kind, reason = "LimitError", "it takes more steps than a script may take"
        elif "allstack" in text or "stack overflow" in text.lower():
            kind, reason = "RecursionError", f"more than {_DEEPEST_CALLS} calls stand on each other"
        else:
            kind = _kind(reason)
        return {"error": reason, "kind": kind, "line": int(line or 0), "column": int(column or 0)}


def _kind(reason: str) -> str:
    """Return the name of the exception that Python would raise for this."""
    named = re.match(r"([A-Z]\w*(?:Error|Exception)): ", reason)
    if named is not None:
        return named[1]
    for words, kind in (
        ("by zero", "ZeroDivisionError"),
        ("Key ", "KeyError"),
        ("not found", "NameError"),
        ("no attribute", "AttributeError"),
        ("out of bound", "IndexError"),
        ("not supported", "TypeError"),
        ("type", "TypeError"),
    ):
        if words in reason:
            return kind
    return "ValueError"


def _get(source: Any, key: Any, default: Any = None) -> Any:
    if isinstance(source, dict):
        return source.get(key, default)
    if isinstance(source, (list, str)) and isinstance(key, int):
        return source[key] if -len(source) <= key < len(source) else default
    return default


def _parse_json(text: Any, ignore_error: Any = False) -> Any:
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        if ignore_error:
            return text
        raise ValueError(f"the text is no JSON: {error}") from None


def _print_json(value: Any, pretty: Any = False) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2 if pretty else None, default=str)


def _power(base: Any, exponent: Any) -> Any:
    whole = isinstance(base, int) and isinstance(exponent, int)
    if whole and abs(exponent) * base.bit_length() > _LARGEST_BITS:
        raise ValueError("the integer would be too large")
    return base**exponent


if __name__ == "__main__":
    main()

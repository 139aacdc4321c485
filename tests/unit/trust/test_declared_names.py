"""Which names a module has, without running it."""

from __future__ import annotations

import pytest

from evalcore.trust.declared_names import declared_names


@pytest.mark.parametrize(
    "source",
    [
        "def fn(): ...",
        "async def fn(): ...",
        "class fn: ...",
        "fn = print",
        "fn: object = print",
        "a, (fn, *b) = x",
        "import fn",
        "import os.path as fn",
        "from os import path as fn",
        "try:\n  from a import b\nexcept ImportError:\n  def fn(): ...",
        "if x:\n  fn = 1",
        "with x as fn: ...",
        "for fn in x: ...",
        "(fn := 1)",
        "def a():\n  global fn\n  fn = 1",
        "match x:\n  case {'a': [fn, *_]}: ...",
    ],
)
def test_a_name_that_a_module_has_is_declared(source: str) -> None:
    declared = declared_names(source.encode())
    assert declared is not None
    assert "fn" in declared.names
    assert "other" not in declared.names


@pytest.mark.parametrize(
    "source",
    [
        "from os import *",
        "def __getattr__(name): ...",
        "globals()['fn'] = 1",
        "exec('fn = 1')",
        "import sys\nsetattr(sys.modules[__name__], 'fn', 1)",
    ],
)
def test_a_module_that_may_have_any_name_is_not_judged(source: str) -> None:
    assert declared_names(source.encode()) is None


def test_functions_and_classes_are_told() -> None:
    declared = declared_names(b"import a\nb = 1\ndef c():\n  d = 1\nclass E: ...")
    assert declared is not None
    assert declared.functions == ("c", "E")


def test_what_is_no_python_is_an_error() -> None:
    with pytest.raises(SyntaxError):
        declared_names(b"def")

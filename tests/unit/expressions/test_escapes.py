"""No expression gets out of its box: each attempt ends with a message, and soon."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from evalcore.expressions import limits
from evalcore.expressions.engine import ExpressionError, ExpressionSyntaxError, plain_data
from evalcore.expressions.template import compile_template

REACHED: list[object] = []


def tool(*arguments: object, **named: object) -> str:
    REACHED.append((arguments, named))
    return "reached"


class Client:
    """What a tool may have left in the scope."""

    token = "secret-token"

    def __init__(self) -> None:
        self.environment = os.environ

    def run(self) -> str:
        REACHED.append(self)
        return "reached"

    def __call__(self, *arguments: object) -> str:
        return tool(*arguments)


class Hostile(str):
    """A text whose class has methods of its own."""

    __slots__ = ()

    def upper(self) -> str:
        REACHED.append(self)
        return "reached"

    def __mod__(self, other: object) -> str:
        REACHED.append(other)
        return "reached"

    def __add__(self, other: object) -> str:
        REACHED.append(other)
        return "reached"


def scope() -> dict[str, Any]:
    cycle: list[Any] = [1]
    cycle.append(cycle)
    return {
        "cycle": cycle,
        "tool": tool,
        "client": Client(),
        "module": os,
        "kind": Client,
        "space": SimpleNamespace(token="secret-token"),
        "hostile": Hostile("text"),
        "error": ValueError("x"),
        "text": "abc",
        "xs": [3, 1, 2],
        "d": {"a": 1, "__class__": "key", "run": tool},
        "big": "x" * 1_000_000,
        "fn": {"key": tool},
        "_private": "secret-token",
        "_": "previous",
        "many": {("x" * 100, n) for n in range(3_000)},
    }


# What may never be: names, attributes and syntax that are refused when the text is read.
REFUSED = {
    "dunder of a literal": "().__class__",
    "dunder of a variable": "text.__class__.__mro__[1].__subclasses__()",
    "dunder of a mapping": "d.__class__",
    "dunder method called": "text.__getattribute__('upper')",
    "dunder of a number": "(1).__class__.__base__",
    "dunder behind parentheses": "(text).__doc__",
    "dunder of a call's value": "str(1).__class__",
    "dunder in an f-string": "f'{text.__class__}'",
    "dunder in a format specification": "f'{1:{text.__class__}}'",
    "dunder in a comprehension": "[x.__class__ for x in xs]",
    "dunder in a comprehension's condition": "[x for x in xs if x.__class__]",
    "dunder in a lambda": "map(lambda x: x.__class__, xs)",
    "dunder among keywords": "dict(__class__=1)",
    "full-width dunder": "text.__cl\uff41ss__",
    "full-width underscore": "text.\uff3f\uff3fclass\uff3f\uff3f",
    "private name": "_private",
    "private attribute": "client._token",
    "dunder name": "__builtins__",
    "import function": "__import__('os').system('id')",
    "import as a function for map": "map(__import__, ['os'])",
    "name bound by a comprehension": "[__x for __x in xs]",
    "parameter of a lambda": "map(lambda __x: 1, xs)",
    "debug flag": "__debug__",
    "assignment expression": "(x := 1)",
    "import statement": "import os",
    "statement after a statement": "1; 2",
    "closing the brackets around": "1) + (2",
    "await": "await text",
    "yield": "(yield 1)",
    "async comprehension": "[x async for x in xs]",
    "dunder method of a type": "map(str.__getattribute__, [text], ['upper'])",
    "type for isinstance from a value": "isinstance(text, kind)",
    "type for isinstance from a call": "isinstance(text, get(d, 'a'))",
    "comprehension storing an attribute": "[1 for d.a in xs]",
    "bytes": "b'abc'",
    "ellipsis": "...",
    "matrix product": "xs @ xs",
    "starred alone": "*xs",
    "huge hexadecimal literal": "0x" + "f" * 10_000,
    "huge decimal literal": "9" * 10_000,
    "null byte": "1\0",
    "deep brackets": "(" * 5_000 + ")" * 5_000,
    "deep lists": "[" * 85 + "]" * 85 + " or " + "not " * 300 + "1",
    "deep unary operators": "-" * 20_000 + "1",
    "deep negations": "not " * 10_000 + "1",
    "deep powers": "**".join(["2"] * 2_000),
    "deep conditions": "1 if xs else " * 2_000 + "0",
    "deep subscripts": "d" + "[0]" * 5_000,
    "a very long text": "1 + " * 30_000 + "1",
    "dunder among the arguments of what is not there": "nothing(().__class__)",
    "brackets that do not match": "[1)",
    "nothing": "",
}

# What is refused when it runs.
FAILING = {
    "lambda as a result": "lambda: 1",
    "lambda in a list": "[lambda: 1]",
    "lambda in a dict": "{'f': lambda: 1}",
    "lambda as a default": "get(d, 'zz', lambda: 1)",
    "lambda from a lambda": "map(lambda x: lambda: x, xs)",
    "calling a call's value": "get(d, 'run')()",
    "calling an element": "xs[0]()",
    "calling what a mapping holds": "d['run']()",
    "calling a literal": "'text'()",
    "calling a comprehension": "[x for x in xs]()",
    "scope's function as a key": "sorted(xs, key=tool)",
    "scope's function for map": "map(tool, xs)",
    "scope's function for filter": "filter(tool, xs)",
    "scope's object as a key": "min(xs, key=client)",
    "mapping's function as a key": "max(xs, key=d.run)",
    "method of the scope's object as a key": "max(xs, key=client.run)",
    "function spread into map": "map(*[tool, xs])",
    "function named for map": "map(function=tool)",
    "key spread into sorted": "sorted(xs, **fn)",
    "key spread into a list's sort": "xs.sort(**fn)",
    "map as the function of map": "map(map, xs)",
    "method of a type that is not listed": "map(str.encode, [text])",
    "lambda among the arguments of what is not there": "nothing(lambda: 1)",
    "eval": "eval('1')",
    "open": "open('/etc/passwd')",
    "type": "type(text)",
    "getattr": "getattr(text, '__class__')",
    "globals": "globals()",
    "breakpoint": "breakpoint()",
    "object": "object()",
    "scope's function": "tool(1)",
    "scope's class": "kind()",
    "scope's object called": "client()",
    "method of the scope's object": "client.run()",
    "attribute of the scope's object": "client.token",
    "attribute of a namespace": "space.token",
    "attribute of a module": "module.environ",
    "attribute of a function": "tool.func_globals",
    "attribute of an exception": "error.args",
    "method of an exception": "error.with_traceback(None)",
    "mapping's function called": "d.run()",
    "a function as a value": "len",
    "functions in a list": "[len, str]",
    "type as a value": "str",
    "method without a call": "text.upper",
    "method of a derived class": "hostile.token",
    "format: dunder": "'{0.__class__}'.format(text)",
    "format: dunder without a number": "'{.__class__}'.format(text)",
    "format: attribute of an object": "'{0.token}'.format(client)",
    "format: index then attribute": "'{0[0].token}'.format([client])",
    "format: nested specification": "'{0:{1.__class__}}'.format(1, text)",
    "format: private name": "'{_x}'.format(**{'x': 1})",
    "format: deeply nested": "'{0:{1:{2}}}'.format(1, 2, 3)",
    "format: element of an object": "'{0[token]}'.format(client)",
    "format: method": "'{0.upper}'.format(text)",
    "format of what was put together": "('{0._' + '_class_' + '_}').format(text)",
    "format_map: dunder": "'{a.__class__}'.format_map(d)",
    "format_map: an object": "'{token}'.format_map(client)",
    "format through a type": "list(map(str.format, ['{0.__class__}'], [text]))",
    "percent: star": "'%*d' % (1000000000, 1)",
    "percent: huge width": "'%1000000000d' % 1",
    "percent: huge precision": "'%.1000000000f' % 1.5",
    "percent: object as a number": "'%d' % client",
    "percent: many times": "'%(a)s' * 1000 % {'a': big}",
    "gi_frame of a generator": "(x for x in xs).gi_frame",
    "send to a generator": "(x for x in xs).send(None)",
    "throw into a generator": "(x for x in xs).throw(error)",
    "f_globals through map": "map(lambda g: g.gi_frame, [(x for x in xs)])",
    "traceback of an error": "error.tb_frame",
    "function's code": "tool.func_code",
    "mro": "kind.mro()",
    "encode": "text.encode('utf-8')",
    "translate": "text.translate({97: 'x'})",
    "dict.fromkeys": "dict.fromkeys(xs)",
    "index of an object": "client['token']",
    "iteration over an object": "[x for x in client]",
    "length of an object": "len(client)",
    "arithmetic of an object": "client + 1",
    "order of objects": "client < client",
    "float of an object": "float(client)",
    "join of objects": "','.join([client])",
    "generator within a list": "[(x for x in xs)]",
    "map within a mapping": "{'a': map(str, xs)}",
    "generator in a list as text": "str([(x for x in xs)])",
    "generator in a mapping's values as text": "str({'a': (x for x in xs)}.values())",
    "generator as text": "str(x for x in xs)",
    "generator as a key": "{(x for x in xs): 1}",
    "generator kept in a list of the test": "xs.append(x for x in xs)",
    "generator kept in a mapping of the test": "d.update(g=[map(str, xs)])",
    "list that would hold itself": "xs.append(xs)",
    "list that would hold itself further down": "xs.extend([{'a': (xs,)}])",
    "mapping that would hold itself": "d.setdefault('d', [d])",
    "slice of anything": "slice(slice(xs))",
    "budget of a function": "len(xs, budget=1)",
    "budget by its other name": "abs(1, _=1)",
}

# What would take too much, and is refused before it is done.
TOO_MUCH = {
    "power": "10 ** 10 ** 10",
    "shift": "1 << 10 ** 9",
    "product of integers": "(1 << 9000) * (1 << 9000)",
    "text repeated": "'x' * 10 ** 9",
    "text of a repeated list": "str([[1] * 1000000] * 1000)",
    "replace": "big.replace('x', 'y' * 1000)",
    "format width": "'{:1000000000}'.format(1)",
    "representation": "str([big] * 1000)",
    "range as a list": "list(range(10 ** 9))",
    "nested loops": "[1 for a in range(1000) for b in range(1000) for c in range(1000)]",
    "lambda in a loop": "list(map(lambda x: sum(range(10000)), range(10000)))",
    "list that doubles": "[xs.extend(xs) for _ in range(100)]",
    "list that holds itself": "cycle",
    "json nested deeply": "parse_json('[' * 100000)",
    "records of the log": "[log('x') for _ in range(5000)]",
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_a_forbidden_text_is_refused_when_it_is_read(text: str) -> None:
    with pytest.raises(ExpressionSyntaxError) as refused:
        compile_template(f"${{{text}}}")
    assert str(refused.value)


@pytest.mark.parametrize("text", FAILING.values(), ids=FAILING)
def test_a_forbidden_reach_fails_with_the_expression_named(text: str) -> None:
    REACHED.clear()
    template = compile_template(f"${{{text}}}")
    with pytest.raises(ExpressionError) as failed:
        template.render(scope())
    assert "secret-token" not in str(failed.value)
    assert failed.value.kind
    assert text.strip()[:20].split("\n")[0] in str(failed.value)
    assert REACHED == []


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SECONDS", 1.0)


@pytest.mark.multiprocess
@pytest.mark.parametrize("text", TOO_MUCH.values(), ids=TOO_MUCH)
def test_what_would_take_too_much_is_refused(text: str, short: None) -> None:
    with pytest.raises(ExpressionError) as failed:
        compile_template(f"${{{text}}}").render(scope())
    assert failed.value.kind in ("LimitError", "RecursionError", "ValueError", "OverflowError")


def test_an_endless_loop_ends_that_expression_only(short: None) -> None:
    loop = compile_template("${sum(x for x in range(10 ** 12))}")
    with pytest.raises(ExpressionError, match=r"longer than 1 s"):
        loop.render({})
    assert compile_template("${sum(x for x in range(10))}").render({}) == 45


def test_what_a_tool_gives_becomes_plain_data() -> None:
    REACHED.clear()
    given = plain_data({"client": Client(), "text": [Hostile("a")], "any": SimpleNamespace(a=1)})
    assert given == {"client": given["client"], "text": ["a"], "any": "namespace(a=1)"}
    assert "Client object" in given["client"]
    assert " at 0x" not in given["client"]
    assert {type(given["client"]), type(given["text"][0])} == {str}
    assert REACHED == []

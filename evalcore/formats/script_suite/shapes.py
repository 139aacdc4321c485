"""What the files of script suites hold: the suite, its groups of tests, and the script."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import with_config
from typing_extensions import TypedDict

from evalcore.declared.types import Repetitions, Text
from evalcore.formats.section import STRICT, EvalcoreSection, QuestionKeys
from evalcore.scripts.program import LevelShape
from evalcore.scripts.statements import Compiled, ScriptPart


@with_config(STRICT)
class ScriptQuestion(QuestionKeys, total=False):
    """A question for people; `of` is the variable or expression that they judge."""

    of: Text


@with_config(STRICT)
class ScriptSection(EvalcoreSection, total=False):
    """The section `evalcore:` of a script suite; `human` is asked about each test."""

    human: list[ScriptQuestion]


@with_config(STRICT)
class ScriptTestSection(TypedDict, total=False):
    """The section `evalcore:` of one test."""

    human: list[ScriptQuestion]


class TestGroup(LevelShape):
    """A suite within the file: tests, with data and tools of their own."""

    tests: Annotated[Any, Compiled("tests")] = None


class _SuiteFile(ScriptPart):
    shared: Annotated[Any, Compiled("level")] = None
    iterations: Repetitions = 1
    evalcore: Annotated[Any, Compiled("evalcore")] = None


class GroupedFile(_SuiteFile, json_schema_extra={"required": ["suites"]}):
    """A suite file whose tests stand in suites."""

    suites: Annotated[Any, Compiled("suites")] = None


class FlatFile(_SuiteFile, json_schema_extra={"required": ["tests"]}):
    """A suite file of tests alone."""

    tests: Annotated[Any, Compiled("tests")] = None


class ScriptVariable(ScriptPart):
    """A variable of the environment that the script reads; a `secret` one is never shown."""

    description: Any = None
    persistent: Any = None
    secret: Any = None


class ScriptChat(ScriptPart):
    """The chat of a script in a terminal; an evaluation does not use it."""

    model_ref: Any = None
    system_message: Any = None
    tools: Any = None
    default_prompt: Any = None
    user_banner: Any = None


class ScriptCommand(ScriptPart):
    """The command line of a script; an evaluation does not use it."""

    process_input: Any = None
    tools: Any = None
    json_output: Any = None
    do: Any = None


class ScriptShape(ScriptPart):
    """A script: models, variables, servers, data and tools."""

    models: Any = None
    env: dict[str, ScriptVariable | None] | None = None
    shared: LevelShape | None = None
    tools: Any = None
    mcp: Any = None
    chat: ScriptChat | None = None
    cli: ScriptCommand | None = None

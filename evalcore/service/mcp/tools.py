"""Tools as their routes define them: schemas, annotations, and the request that a call makes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError, create_model
from pydantic.fields import FieldInfo
from starlette.routing import Match

from evalcore.service.errors import ServiceError, mistake, not_found, wire_mistakes
from evalcore.service.mcp.tool_table import TOOL_TABLE, ToolRow
from evalcore.service.models import RequestBody, ResponseBody
from evalcore.service.routes import eval_runs, evals
from evalcore.service.routes.eval_runs import TRIGGER_HEADER
from evalcore.shapes import is_model

# In the order in which the application looks for the route of a request.
_ROUTES: Final = tuple(
    route
    for router in (eval_runs.router, evals.router)
    for route in router.routes
    if isinstance(route, APIRoute)
)
_ID: Final = re.compile(r"[\w-]{1,200}", re.ASCII)
_READING: Final = frozenset({"GET"})
_REPEATABLE: Final = frozenset({"GET", "PATCH", "DELETE"})
_REPLACING: Final = frozenset({"PATCH", "DELETE"})


class DeletedResource(ResponseBody):
    """That a resource was deleted."""

    id: str
    deleted: Literal[True]


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """The request of the REST interface that a call of a tool makes."""

    method: str
    path: str
    query: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class _Parameter:
    """An argument beside the body; `alias` is its name in the request's `part`."""

    part: Literal["path", "query", "header"]
    alias: str
    info: FieldInfo


@dataclass(frozen=True)
class RouteTool:
    """A tool and its route."""

    row: ToolRow
    route: APIRoute

    @property
    def method(self) -> str:
        """The HTTP method of the route."""
        return next(iter(self.route.methods or ()))

    @property
    def description(self) -> str:
        """What the tool does, and what to know to call it."""
        return f"{self.route.description} {self.row.advice}"

    @property
    def annotations(self) -> dict[str, Any]:
        """The hints of the protocol, as the HTTP method has them.

        A run may call models and services outside: a tool that starts one is in an open world.
        """
        return {
            "title": self.row.title,
            "readOnlyHint": self.method in _READING,
            "destructiveHint": self.method in _REPLACING,
            "idempotentHint": self.method in _REPEATABLE,
            "openWorldHint": self.row.endpoint is eval_runs.create_run,
        }

    @cached_property
    def input_schema(self) -> dict[str, Any]:
        """The JSON Schema of the request body, with ids and query parameters beside its fields."""
        named = {name: parameter.info for name, parameter in self._parameters.items()}
        return _arguments(self.row.name, self._body or RequestBody, named).model_json_schema()

    @cached_property
    def output_schema(self) -> dict[str, Any]:
        """The JSON Schema of the response."""
        shape: type[BaseModel] = self.route.response_model or DeletedResource
        return shape.model_json_schema(mode="serialization")

    def request(self, arguments: Mapping[str, Any]) -> ToolRequest:
        """Return the request of a call.

        Raises `ServiceError` 422 for parameters that do not fit, 404 for what cannot be an id. The
        body is left to the service.
        """
        written = {name: value for name, value in arguments.items() if value is not None}
        beside = {name: written[name] for name in self._parameters if name in written}
        rest = {name: arguments[name] for name in arguments if name not in self._parameters}
        self._check(beside if self._body else {**rest, **beside})
        parts: dict[str, dict[str, Any]] = {"path": {}, "query": {}, "header": {}}
        for name, value in beside.items():
            parameter = self._parameters[name]
            parts[parameter.part][parameter.alias] = value
        return ToolRequest(
            self.method,
            self._path(parts["path"]),
            parts["query"],
            {**_printable(parts["header"]), TRIGGER_HEADER: "mcp"},
            _json(rest) if self._body else None,
        )

    def answer(self, content: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the tool answers; `content` is None for a response without a body."""
        if content is not None:
            answer: dict[str, Any] = content
            return answer
        (identifier,) = (arguments[name] for name in self._parameters)
        return DeletedResource(id=identifier, deleted=True).model_dump()

    @cached_property
    def _body(self) -> type[BaseModel] | None:
        shape: Any = self.route.body_field and self.route.body_field.field_info.annotation
        return shape if is_model(shape) else None

    @cached_property
    def _parameters(self) -> Mapping[str, _Parameter]:
        return dict(_parameters(self.route.dependant))

    @cached_property
    def _beside(self) -> type[BaseModel]:
        named = {name: parameter.info for name, parameter in self._parameters.items()}
        return _arguments(self.row.name, RequestBody, named)

    def _check(self, beside: Mapping[str, Any]) -> None:
        try:
            self._beside.model_validate_json(json.dumps(beside))
        except ValidationError as error:
            details = [
                {**detail, "loc": self._loc(detail["loc"])}
                for detail in error.errors(include_url=False)
            ]
            raise ServiceError(422, wire_mistakes(details, self._beside)) from None

    def _loc(self, loc: tuple[str | int, ...]) -> tuple[str | int, ...]:
        parameter = self._parameters.get(str(loc[0])) if loc else None
        if parameter is None:
            return ("arguments", *loc)
        return (parameter.part, parameter.alias, *loc[1:])

    def _path(self, identifiers: Mapping[str, str]) -> str:
        """Return the path of the resource; an id that names another route does not exist."""
        path = self.route.path.format(**identifiers)
        for name, identifier in identifiers.items():
            if not _ID.fullmatch(identifier) or self._first_route(path) is not self.route:
                kind = "eval run" if name == "run_id" else name.removesuffix("_id")
                raise not_found(kind, identifier)
        return path

    def _first_route(self, path: str) -> APIRoute | None:
        scope = {"type": "http", "method": self.method, "path": path}
        return next((route for route in _ROUTES if route.matches(scope)[0] is Match.FULL), None)


def _parameters(dependant: Dependant) -> Iterator[tuple[str, _Parameter]]:
    for parameter in dependant.path_params:
        yield parameter.name, _Parameter("path", parameter.alias, parameter.field_info)
    for parameter in dependant.query_params:
        yield parameter.name, _Parameter("query", parameter.alias, parameter.field_info)
    for parameter in dependant.header_params:
        if parameter.alias != TRIGGER_HEADER:
            yield parameter.name, _Parameter("header", parameter.alias, parameter.field_info)
    for inner in dependant.dependencies:
        yield from _parameters(inner)


def _arguments(name: str, base: type[BaseModel], infos: Mapping[str, FieldInfo]) -> type[BaseModel]:
    if not infos:
        return base
    fields: dict[str, Any] = {name: (info.annotation, info) for name, info in infos.items()}
    return create_model(name, __base__=base, **fields)


def _printable(headers: Mapping[str, str]) -> Mapping[str, str]:
    for alias, value in headers.items():
        if not (value.isascii() and value.isprintable()):
            raise mistake(["header", alias], "Input should have printable ASCII characters only")
    return headers


def _json(body: Mapping[str, Any]) -> bytes:
    """Return the body as JSON; every character is kept, so that the service can refuse some."""
    try:
        return json.dumps(body).encode("ascii")
    except RecursionError:
        raise mistake(["body"], "the body is nested too deep") from None


def _route_of(row: ToolRow) -> APIRoute:
    return next(route for route in _ROUTES if route.endpoint is row.endpoint)


TOOLS: Final[Mapping[str, RouteTool]] = {
    row.name: RouteTool(row, _route_of(row)) for row in TOOL_TABLE
}

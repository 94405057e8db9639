"""The OpenAPI 3.1 document, generated from the operations and the wire types."""

from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from typing import Any

import msgspec

from whitelie.service.api.operations import OPERATIONS, Operation
from whitelie.service.refusals import STATUS, Error

REFERENCE = "#/components/schemas/{name}"
KEY = {"key": {"type": "http", "scheme": "bearer"}}


@cache
def encoded() -> bytes:
    """Return the document as JSON."""
    return msgspec.json.encode(document())


def document() -> dict[str, Any]:
    """Return the document."""
    _, schemas = msgspec.json.schema_components(
        [Error, *_types(OPERATIONS)], ref_template=REFERENCE
    )
    paths: dict[str, Any] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "whitelie",
            "version": version("whitelie"),
            "description": "Decides which arm to show, and learns from bits flipped on the device.",
        },
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": KEY},
    }


def _types(operations: Sequence[Operation]) -> list[Any]:
    used: list[Any] = []
    for operation in operations:
        used += operation.body if isinstance(operation.body, tuple) else [operation.body]
        used.append(operation.answer)
    return [type_ for type_ in used if type_ is not None and not isinstance(type_, str)]


def _described(operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "responses": {str(operation.status): _answer(operation), **_refusals(operation)},
    }
    if parameters := _parameters(operation):
        described["parameters"] = parameters
    if operation.roles:
        described["security"] = [{"key": []}]
    if operation.body is not None:
        content = {"application/json": {"schema": _schema(operation.body)}}
        if operation.name == "feedback":  # pages may send text/plain without a preflight
            content["text/plain"] = {"schema": {"type": "string", "description": "The same JSON."}}
        described["requestBody"] = {"required": operation.name != "decide", "content": content}
    return described


def _answer(operation: Operation) -> dict[str, Any]:
    if operation.answer is None:
        return {"description": "Done."}
    if isinstance(operation.answer, str):
        content = {operation.answer: {"schema": {"type": "string"}}}
    else:
        content = {"application/json": {"schema": _schema(operation.answer)}}
    return {"description": operation.summary, "content": content}


def _refusals(operation: Operation) -> dict[str, Any]:
    by_status: dict[int, list[str]] = {}
    for code in operation.codes:
        by_status.setdefault(STATUS[code], []).append(code)
    content = {"application/json": {"schema": {"$ref": REFERENCE.format(name="Error")}}}
    return {
        str(status): {"description": ", ".join(codes), "content": content}
        for status, codes in sorted(by_status.items())
    }


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    parameters: list[dict[str, Any]] = []
    if "{id}" in operation.path:
        parameters.append(
            {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
        )
    if operation.name == "create":
        schema = {"type": "string", "minLength": 1, "maxLength": 255}
        parameters.append({"name": "Idempotency-Key", "in": "header", "schema": schema})
    if operation.query is not None:
        fields = msgspec.json.schema(operation.query)["$defs"][operation.query.__name__]
        parameters += [
            {"name": name, "in": "query", "schema": _without_null(schema)}
            for name, schema in fields["properties"].items()
        ]
    return parameters


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a parameter that is left out when it has no value."""
    (kind,) = [each for each in schema["anyOf"] if each != {"type": "null"}]
    return dict(kind)


def _schema(type_: Any) -> dict[str, Any]:
    if isinstance(type_, tuple):
        return {"anyOf": [_schema(each) for each in type_]}
    (schema,), _ = msgspec.json.schema_components([type_], ref_template=REFERENCE)
    return schema

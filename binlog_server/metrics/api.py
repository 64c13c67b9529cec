"""The OpenAPI document of the status API: made of `status.STATUS`, the plots, and the table of metrics."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, Final

from binlog_server.metrics.history import PLOTS
from binlog_server.metrics.status import STATUS, Shape, as_object

_NUMBERS: Final = {"type": "array", "items": {"type": ["number", "null"]}}
HISTORY: Final[Shape] = {
    "every_s": {"type": "number"},
    "at": {**_NUMBERS, "description": "seconds since 1970, a sample each"},
    "series": as_object(
        {name: {**_NUMBERS, "description": f"{p.title}, {p.unit}"} for name, p in PLOTS.items()}
    ),
}
METRIC_VALUES: Final = {
    "type": "object",
    "description": "by name, as in docs/metrics.md",
    "additionalProperties": {
        "type": "array",
        "items": as_object({"labels": {"type": "object"}, "value": {"type": "number"}}),
    },
}
SCHEMAS: Final[Mapping[str, Mapping[str, Any]]] = {
    "/api/status": as_object(STATUS),
    "/api/history": as_object(HISTORY),
    "/api/metrics": METRIC_VALUES,
    "/api/openapi.json": {"type": "object"},
}
_SUMMARIES: Final = {
    "/api/status": "The server, its upstreams, replicas, files, leases, and last errors",
    "/api/history": "The last hour",
    "/api/metrics": "All metrics, without histograms",
    "/api/openapi.json": "This document",
}


def openapi() -> dict[str, Any]:
    """The document, version 3.1."""
    paths = {
        path: _get(_SUMMARIES[path], "application/json", schema) for path, schema in SCHEMAS.items()
    }
    events = "The status every two seconds, each the data of an event"
    paths["/api/events"] = _get(events, "text/event-stream", {"type": "string"})
    return {
        "openapi": "3.1.0",
        "info": {"title": "binlog-server", "version": version("binlog-server")},
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "basic": {"type": "http", "scheme": "basic"},
            }
        },
        "security": [{}, {"bearer": []}, {"basic": []}],
    }


def _get(summary: str, content_type: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    answers = {
        "200": {"description": summary, "content": {content_type: {"schema": schema}}},
        "401": {"description": "metrics_token is asked for"},
        "403": {
            "description": "no metrics_token, no certificate, and this is not the machine itself"
        },
        "429": {"description": "too many wrong tokens; Retry-After says for how many seconds"},
        "500": {"description": "the store cannot be asked"},
    }
    return {"get": {"summary": summary, "responses": answers}}

"""Calls of a server in this process, and values that are right and wrong."""

import http.client
import json
import socket
from typing import NamedTuple

LOCAL = (("host", "localhost:8000"), ("content-type", "application/json"))


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.json["error"]["type"]


def call(app, method, path, body=b"", headers=LOCAL, length=None):
    """The answer to a request whose body is this, or this JSON, and says that it has so many bytes."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    if method != "GET":
        lines.append(f"Content-Length: {len(content) if length is None else length}")
    with socket.create_connection(app.server_address[:2], timeout=20.0) as connection:
        connection.sendall("\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1", "replace") + content)
        answer = http.client.HTTPResponse(connection, method=method)
        answer.begin()
        return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())


def post(app, path, body, headers=LOCAL):
    return call(app, "POST", path, body, headers)


def get(app, path, headers=LOCAL):
    return call(app, "GET", path, b"", headers)


VALID = {
    "/ask": {"q": 2, "key": "k", "time": 1.0, "context": [0.5], "candidates": [[0.1], [0.2]]},
    "/tell": {"ids": [0, 1], "y": [0.5, 1.0], "time": 2, "outcomes": {"heat": [1.0, 2.0]}, "failed": False, "key": "t"}
    | {"noise": [0.1, 0.2], "sem": 0.5},
    "/forget": {"actions": [[0.5, 0.5]], "context": [1.0], "all": True, "key": "f"},
    "/answer": {"points": [[0.5, 0.5]], "y": [0.5], "variance": 0.1, "time": 1.0, "key": "a"},
    "/questions": {"time": 1.0},
    "/recommend": {"context": [0.5], "candidates": [[0.1]], "time": "2026-01-01"},
    "/stop": {"regret": 0.5, "confidence": 0.9, "no_better_by": 0.1, "beta": 2.0, "time": 1.0, "context": [0.5]},
    "/posterior": {"points": [[0.5, 0.5], [0.25, 0.75]], "context": [0.5]},
}
WRONG = (
    None, True, -1, 0.5, 10**30, 10**400, -(10**18), 1e308, "", "x", "\ud800", "1", "2026-13-01",
    [], [[]], [[], [1]], [None], [[[1]]], [True], [[0.5, "a"]], [[0.5, 0.5, 0.5]], [1, 2, 3], [[1e308, -1e308]],
    {}, {"": 0}, {"heat": None}, [{}], [{"a": 1}, 2],
)  # fmt: skip

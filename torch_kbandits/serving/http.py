"""The service over HTTP: routes, JSON, limits, the token; needs starlette."""

import asyncio
import hmac
import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any, cast

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from torch_kbandits import checks
from torch_kbandits.errors import KernelBanditError
from torch_kbandits.serving.metrics import CONTENT_TYPE, journal_of, metrics
from torch_kbandits.serving.queue import Queue
from torch_kbandits.serving.refusals import (
    MalformedRequestError,
    MediaTypeError,
    MethodError,
    NotSavingError,
    SlowRequestError,
    TooLargeError,
    UnauthorizedError,
    UnknownPathError,
    status_of,
)
from torch_kbandits.serving.requests import parsed
from torch_kbandits.serving.service import Service

#: Bytes of the body of a request, unless told otherwise.
MAX_REQUEST = 2**20
#: Seconds in which a body must arrive.
_PATIENCE = 30.0
#: Letters of the message of an error.
_LONGEST_MESSAGE = 2000
#: Names of this machine by which a browser or a client on it calls it.
_LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")

_log = logging.getLogger(__name__)


def application(service: Service, *, token: str | None = None, max_request: int = MAX_REQUEST) -> ASGIApp:
    """Return the ASGI application of a service, which is closed with it.

    Args:
        service: open.
        token: that requests must bring, ``Authorization: Bearer TOKEN``; None for requests to this machine alone: then
            they must call it by a local name, which no page of another site that a browser here shows can.
        max_request: bytes of a body at most.
    """
    checks.positive_integer("max_request", max_request)
    queue, start = Queue(service), monotonic()

    async def posted(request: Request) -> Response:
        return _json(200, await queue.answer(_name(request), parsed(await _body(request, max_request))))

    async def seen(request: Request) -> Response:
        found = await queue.answer(name := _name(request), {})
        if name != "pending":
            found |= {"uptime": monotonic() - start, "journal": journal_of(service), "latency": queue.latencies()}
        return Response(metrics(found), media_type=CONTENT_TYPE) if name == "metrics" else _json(200, found)

    async def ready(request: Request) -> Response:
        if service.failure is not None:
            raise NotSavingError(f"Nothing is answered any more, start the server anew: {service.failure}.")
        return _json(200, {"ready": True})

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await asyncio.get_running_loop().run_in_executor(None, queue.close)

    routes = [
        *(Route(f"/{name}", posted, methods=["POST"]) for name in ("ask", "tell", "forget", "recommend", "belief")),
        *(Route(f"/{name}", seen, methods=["GET"]) for name in ("pending", "health", "metrics")),
        Route("/ready", ready, methods=["GET"]),
    ]
    handlers = {KernelBanditError: _refused, HTTPException: _not_there, Exception: _unexpected}
    app = Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan)
    app.router.redirect_slashes = False
    return _Gate(app, token)


class _Gate:
    """Lets in who may come in, and lets out named errors alone."""

    def __init__(self, app: Starlette, token: str | None) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sent = False

        async def noted(message: Any) -> None:
            nonlocal sent
            sent = True
            await send(message)

        try:
            self._admit(Request(scope))
            await self._app(scope, receive, noted)
        except KernelBanditError as error:
            await _refusal(error)(scope, receive, send)
        except Exception:
            _log.exception("%s %s failed", scope["method"], scope["path"])
            if not sent:
                await (await _unexpected())(scope, receive, send)

    def _admit(self, request: Request) -> None:
        """Refuse who has no token, or calls by a name that is not of this machine where there is no token."""
        if self._token is None:
            host = request.headers.get("host", "")
            name = host if host.endswith("]") else host.rpartition(":")[0] or host
            if name.lower() not in _LOCAL_NAMES:
                raise MalformedRequestError(
                    f"Call this server by one of {', '.join(_LOCAL_NAMES)}, got {checks.shown(host)}: by other names "
                    "it takes requests with a token alone."
                )
        elif request.scope["path"] != "/ready":
            kind, _, given = request.headers.get("authorization", "").partition(" ")
            if kind.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self._token.encode()):
                raise UnauthorizedError("Send the token of this server: Authorization: Bearer TOKEN.")


def _name(request: Request) -> str:
    """Return what a request is for, the end of its path."""
    return request.scope["path"].rpartition("/")[2]


async def _body(request: Request, most: int) -> bytes:
    """Return the body of a request, read no further than the limit."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise MediaTypeError(f"Send JSON, Content-Type: application/json; got {checks.shown(kind)}.")
    parts, size = [], 0
    too_large = TooLargeError(f"The body may have {most:,} bytes: ask or tell in parts, or raise --max-request.")
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and len(length) < 20 and int(length) > most:
        raise too_large
    try:
        async with asyncio.timeout(_PATIENCE):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise too_large
                parts.append(part)
    except TimeoutError:
        raise SlowRequestError(f"The body did not arrive within {_PATIENCE:g} s: send it at once.") from None
    except ClientDisconnect:
        raise MalformedRequestError("The connection broke before all of the body was there: send it again.") from None
    return b"".join(parts)


async def _refused(request: Request, error: Exception) -> Response:
    return _refusal(cast(KernelBanditError, error))


async def _unexpected(*_: Any) -> Response:
    message = "Something unexpected happened, which the log of the server shows; nothing changed."
    return _error(500, "InternalError", message)


def _refusal(error: KernelBanditError) -> Response:
    return _error(status_of(error), type(error).__name__, str(error))


async def _not_there(request: Request, error: Exception) -> Response:
    path = checks.shown(request.scope["path"])
    if isinstance(error, HTTPException) and error.status_code == 405:
        refused = _refusal(MethodError(f"{path} does not take {checks.shown(request.method)}."))
        refused.headers.update(error.headers or {})
        return refused
    return _refusal(UnknownPathError(f"There is no {path}."))


def _error(status: int, kind: str, message: str) -> Response:
    response = _json(status, {"error": {"type": kind, "message": message[:_LONGEST_MESSAGE]}})
    if status == 503:
        response.headers["retry-after"] = "1"
    if status == 401:
        response.headers["www-authenticate"] = "Bearer"
    if status in (408, 413):  # the rest of the body is not read
        response.headers["connection"] = "close"
    return response


def _json(status: int, content: Mapping[str, Any]) -> Response:
    # Half of a pair of surrogates, which JSON may hold, has no UTF-8: so all is ASCII.
    return Response(json.dumps(content, allow_nan=False), status, media_type="application/json")

"""The service over HTTP, in JSON, until the process is told to stop."""

import hmac
import ipaddress
import json
import logging
import signal
import socket
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler
from os import PathLike
from socketserver import ThreadingTCPServer
from threading import Event, Lock, Thread
from typing import Any, cast

from torch_kbandits import checks
from torch_kbandits.errors import ArmsChangedError, EmptyHistoryError, InfeasibleError, InputError, KernelBanditError
from torch_kbandits.serving.requests import RefusedError, parsed
from torch_kbandits.serving.service import Service

#: Bytes of the body of a request, unless told otherwise.
MAX_REQUEST = 2**20
#: Connections at most, also so many wait to be accepted: of files any system lets a process open more.
MOST_CONNECTIONS = 128
_PATIENCE = 30.0  # seconds in which a client must send something, or read an answer
_SHORTEST_TOKEN, _LONGEST_MESSAGE = 16, 2000  # letters of a token at least, and of the message of an error at most
#: Names of this machine by which a browser or a client on it calls it.
_LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
#: What there is, and by which method.
_METHODS: dict[str, str] = dict.fromkeys(("/ask", "/tell", "/forget", "/recommend", "/posterior", "/stop"), "POST")
_METHODS |= dict.fromkeys(("/questions", "/answer"), "POST")
_METHODS |= dict.fromkeys(("/pending", "/health", "/metrics", "/ready"), "GET")
#: What a status says beside its message.
_HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 405: {"Allow": "GET, POST"}, 503: {"Retry-After": "1"}}

_log = logging.getLogger(__name__)


def serve(
    service: Service,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    max_request: int = MAX_REQUEST,
    log: str | PathLike[str] | None = None,
    listening: Callable[[str], None] = lambda address: None,
) -> None:
    """Answer requests until the process gets SIGTERM or SIGINT; then save the bandit whole and close the service.

    Args:
        service: open; also closed if this fails.
        host: a name or an address of this machine.
        port: 0 for any that is free.
        token: that requests must bring, ``Authorization: Bearer TOKEN``; needed where others than this machine can
            reach the address. Without one requests must call the server by a local name.
        max_request: bytes of the body of a request.
        log: the path of a file that gets each ask and tell, see ``Bandit.log_to``; None for no log.
        listening: called with the address once there is one.

    ``InputError`` if an argument does not fit, or a token is needed; ``OSError`` if the address or the log cannot be
    had.
    """
    with closing(service):
        _check_address(host, port, token)
        if log is not None:
            service.bandit.log_to(log, contexts=True)
        stop = Event()
        with _Server(service, host, port, token, checks.positive_integer("max_request", max_request)) as server:
            handlers = {each: signal.signal(each, lambda *_: stop.set()) for each in (signal.SIGINT, signal.SIGTERM)}
            Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
            try:
                name, number = server.server_address[:2]
                listening(f"http://{f'[{name}]' if ':' in str(name) else name}:{number}")
                while not stop.wait(1.0):  # where signals interrupt no wait, they are seen in between
                    pass
            finally:
                server.stop()
                for number, handler in handlers.items():
                    signal.signal(number, handler)


def _check_address(host: str, port: int, token: str | None) -> None:
    """Refuse an address that others can reach without a token, and a token that can be guessed."""
    if checks.non_negative_integer("port", port) > 65535:
        raise InputError(f"port must be at most 65535, got {checks.shown(port)}.")
    if token is not None and not (len(token) >= _SHORTEST_TOKEN and token.isascii() and token.isprintable()):
        raise InputError(
            f"The token must have at least {_SHORTEST_TOKEN} letters and digits: "
            "python -c 'import secrets; print(secrets.token_urlsafe())' makes one."
        )
    try:
        is_local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_local = host == "localhost"
    if token is None and not is_local:
        raise InputError(
            f"Others can reach {checks.shown(host)}: give a token, --token-file FILE or KBANDITS_TOKEN, or leave out "
            "--host, and this machine alone can."
        )


class _Server(ThreadingTCPServer):
    """Listens at the first address of a name, with a thread for each connection."""

    allow_reuse_address = daemon_threads = True
    request_queue_size = MOST_CONNECTIONS

    def __init__(self, service: Service, host: str, port: int, token: str | None, max_request: int) -> None:
        self.service, self.token, self.max_request = service, token, max_request
        #: How often each operation was answered, and in how many seconds in all.
        self.counts, self.seconds = Counter[str](), defaultdict[str, float](float)
        #: Connections that there are, and of them those whose request is carried out.
        self.open, self.busy = set[Any](), set[Any]()
        self.measuring, self._start = Lock(), time.monotonic()
        self.address_family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        super().__init__(cast(Any, address), _Connection)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether there is room for a connection."""
        return len(self.open) < MOST_CONNECTIONS

    def process_request(self, request: Any, client_address: Any) -> None:
        self.open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.debug("A connection of %s broke.", client_address, exc_info=True)

    def state(self) -> dict[str, Any]:
        """Return what is counted and measured here."""
        journal = self.service.journal
        saved = {"bytes": journal.size, "changes": self.service.num_changes}
        saved |= {"syncs": journal.num_syncs, "sync_seconds": journal.sync_seconds}
        with self.measuring:
            latency = {name: {"count": count, "seconds": self.seconds[name]} for name, count in self.counts.items()}
        return {"uptime": time.monotonic() - self._start, "journal": saved, "latency": latency}

    def stop(self) -> None:
        """Take no more connections, and wait until the requests that there are were answered, for a while."""
        self.shutdown()
        until = time.monotonic() + _PATIENCE
        while self.busy and time.monotonic() < until:
            time.sleep(0.01)


class _Connection(BaseHTTPRequestHandler):
    """The requests of a client, one after the other."""

    protocol_version, server_version, sys_version = "HTTP/1.1", "kbandits", ""
    disable_nagle_algorithm = True
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(_PATIENCE)

    def finish(self) -> None:
        with suppress(OSError):  # with bytes unread the system would end the connection before the answer is read
            self.connection.shutdown(socket.SHUT_WR)
            until = time.monotonic() + _PATIENCE
            while self.rfile.read1() and time.monotonic() < until:
                pass
        super().finish()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse what is no request, or has a method that nothing here takes."""
        self.close_connection = True
        self._refuse(RefusedError(f"{message or 'That is no request'}.", 405 if code == 501 else 400))

    def log_message(self, format: str, *args: Any) -> None:
        """Keep no log of requests."""

    def do_GET(self) -> None:
        closes, self.close_connection = self.close_connection, True  # unless the body is read
        path, start = self.path.partition("?")[0], time.perf_counter()
        try:
            self._admit()
            if path not in _METHODS:
                raise RefusedError(f"There is no {checks.shown(path)}.", 404)
            if self.command != _METHODS[path]:
                raise RefusedError(f"{path} takes {_METHODS[path]}, not {self.command}.", 405)
            body = self._body()
            self.close_connection = closes
            self.server.busy.add(self)
            answer = self._answer(path[1:], parsed(body))
            with self.server.measuring:
                self.server.counts[path[1:]] += 1
                self.server.seconds[path[1:]] += time.perf_counter() - start
            self._send(200, *answer)
        except (ConnectionError, TimeoutError):
            raise
        except Exception as error:
            self._refuse(error)
        finally:
            self.server.busy.discard(self)

    do_POST = do_GET  # noqa: N815

    def _admit(self) -> None:
        """Refuse who has no token, or calls by a name that is not of this machine where there is no token."""
        if self.server.token is None:
            host = self.headers.get("Host", "")
            name = host if host.endswith("]") else host.rpartition(":")[0] or host
            if name.lower() not in _LOCAL_NAMES:
                raise RefusedError(
                    f"Call this server by one of {', '.join(_LOCAL_NAMES)}, got {checks.shown(host)}: by other names "
                    "it takes requests with a token alone."
                )
        elif self.path != "/ready":
            kind, _, given = self.headers.get("Authorization", "").partition(" ")
            if kind.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self.server.token.encode()):
                raise RefusedError("Send the token of this server: Authorization: Bearer TOKEN.", 401)

    def _body(self) -> bytes:
        """Return the body of a request, read no further than the limit."""
        given, in_parts = {*self.headers.get_all("Content-Length", [])}, "Transfer-Encoding" in self.headers
        if self.command == "GET" and not given and not in_parts:
            return b""
        kind = self.headers.get_content_type() if "Content-Type" in self.headers else ""
        if kind != "application/json":
            raise RefusedError(f"Send JSON, Content-Type: application/json; got {checks.shown(kind)}.", 415)
        if in_parts or len(given) != 1 or not (digits := given.pop()).isdecimal() or not digits.isascii():
            raise RefusedError("Send the body in one, with its Content-Length, a whole number.", 411)
        length, most = int(digits[:20]), self.server.max_request
        if length > most:
            raise RefusedError(f"A body may have {most:,} bytes: ask or tell in parts, or raise --max-request.", 413)
        try:
            body = self.rfile.read(length)
        except TimeoutError:
            raise RefusedError(f"The body did not arrive within {_PATIENCE:g} s: send it at once.", 408) from None
        if len(body) < length:
            raise ConnectionAbortedError
        return body

    def _answer(self, operation: str, request: Mapping[str, Any]) -> tuple[bytes, str]:
        """Return the content of an answer, and its kind."""
        service = self.server.service
        if operation == "ready":
            if service.failure is not None:
                raise RefusedError(f"Nothing is answered any more, start the server anew: {service.failure}.", 503)
            return _json({"ready": True})
        found = service.answer(operation, request)
        if operation == "metrics":
            return _prometheus(found | self.server.state()).encode(), "text/plain; version=0.0.4"
        return _json(found | self.server.state() if operation == "health" else found)

    def _refuse(self, error: Exception) -> None:
        """Answer with an error of the package by its name; of others the log alone has the words."""
        status, name, message = 422, type(error).__name__, str(error)[:_LONGEST_MESSAGE]
        if isinstance(error, RefusedError):
            status = error.status
        elif isinstance(error, EmptyHistoryError | InfeasibleError):
            status = 409
        elif isinstance(error, ArmsChangedError):
            status = 503
        elif not isinstance(error, KernelBanditError):
            _log.error("%s %s failed", self.command, self.path, exc_info=error)
            message = "Something unexpected happened, which the log of the server shows; nothing changed."
            status, name = 500, "InternalError"
        self._send(status, *_json({"error": {"type": name, "message": message}}))

    def _send(self, status: int, content: bytes, kind: str) -> None:
        self.send_response(status)
        headers = {"Content-Type": kind, "Content-Length": str(len(content))} | _HEADERS.get(status, {})
        for name, value in (headers | ({"Connection": "close"} if self.close_connection else {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _prometheus(state: Mapping[str, Any]) -> str:
    """Return the text, format 0.0.4, of what ``/health`` has, of which ``bandit`` is text already."""
    numbers = {f"{name}_total": state[name] for name in ("asked", "told")} | {"pending": state["pending"]}
    numbers |= {f"journal_{name}": state["journal"][name] for name in ("bytes", "changes")}
    numbers |= {f"journal_{name}_total": state["journal"][name] for name in ("syncs", "sync_seconds")}
    lines = []
    for name, number in (numbers | {"uptime_seconds": state["uptime"]}).items():
        kind = "counter" if name.endswith("_total") else "gauge"
        lines += [f"# TYPE kbandits_serving_{name} {kind}", f"kbandits_serving_{name} {number!r}"]
    metric = "kbandits_serving_latency_seconds"
    lines.append(f"# TYPE {metric} summary")
    for operation, found in sorted(state["latency"].items()):
        label = f'operation="{operation}"'
        lines += [f"{metric}_count{{{label}}} {found['count']}", f"{metric}_sum{{{label}}} {found['seconds']!r}"]
    return "\n".join([*lines, state["bandit"]])


def _json(content: Mapping[str, Any]) -> tuple[bytes, str]:
    # Half of a pair of surrogates, which JSON may hold, has no UTF-8: so all is ASCII.
    return json.dumps(content, allow_nan=False).encode(), "application/json"

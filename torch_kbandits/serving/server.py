"""The service at an address, until it is told to stop; needs uvicorn."""

import asyncio
import ipaddress
import socket
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.serving.http import MAX_REQUEST, application
from torch_kbandits.serving.service import Service

#: Letters of a token, at least.
_SHORTEST_TOKEN = 16
#: Seconds for which a connection is kept whose client sends no request, or reads nothing of an answer.
_PATIENCE = 10.0
#: Seconds in which answers must be read once the server is told to stop.
_LAST_SECONDS = 30
#: Connections at most; also so many are accepted at a time.
_MOST_CONNECTIONS = 256


def serve(
    service: Service,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    max_request: int = MAX_REQUEST,
    listening: Callable[[str], None] = lambda address: None,
) -> None:
    """Answer requests until the process gets SIGTERM or SIGINT; then save the bandit whole and close the service.

    Args:
        service: open; also closed if this fails.
        host: a name or an address of this machine.
        port: from 0, for any that is free, to 65,535.
        token: that requests must bring; needed where others than this machine can reach the address.
        max_request: bytes of the body of a request.
        listening: called with the address once there is one.

    Raises:
        InputError: if an argument does not fit, or others can reach the address and there is no token.
        OSError: if the address cannot be had.
    """
    with ExitStack() as failed:
        failed.callback(service.close)
        check_address(host, port, token)
        app = application(service, token=token, max_request=max_request)
        where = listening_at(host, port)
        failed.pop_all()
    name, number = where.getsockname()[:2]
    listening(f"http://{f'[{name}]' if ':' in name else name}:{number}")
    config = uvicorn.Config(
        app,
        http=_Connection,
        ws="none",
        lifespan="on",
        access_log=False,
        log_level="warning",
        server_header=False,
        backlog=_most_connections(),
        timeout_graceful_shutdown=_LAST_SECONDS,
    )
    with suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[where])


class _Connection(H11Protocol):
    """HTTP, of which a connection ends whose client is not heard of, or reads nothing, for too long.

    Where there are as many as may be, the one that waits longest for a request makes room for a new one.
    """

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, transport))
        self._watch: asyncio.TimerHandle | None = None
        self._look_later()
        there = [each for each in cast(set[_Connection], self.connections) if not each.transport.is_closing()]
        if len(there) > _most_connections():
            waiting = (each for each in there if each.is_idle or each.cycle.more_body)  # this one is
            min(waiting, key=lambda each: each.idle_since).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watch is not None:
            self._watch.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look_later()

    @property
    def is_idle(self) -> bool:
        """Whether no request is carried out."""
        return self.cycle is None or self.cycle.response_complete

    def _look_later(self) -> None:
        """Look at the client after a while, from now on."""
        if self._watch is not None:
            self._watch.cancel()
        self.idle_since, self._left = self.loop.time(), self.transport.get_write_buffer_size()
        self._watch = self.loop.call_later(_PATIENCE, self._look)

    def _look(self) -> None:
        """End the connection if it waits for the client, who has read nothing since."""
        if (self.is_idle or self.flow.write_paused) and self.transport.get_write_buffer_size() >= self._left:
            self.transport.abort()
        else:
            self._look_later()


def _most_connections() -> int:
    """Return how many connections there may be, at most a quarter of the files that this process may have open."""
    try:
        import resource
    except ImportError:  # where there is no such limit
        return _MOST_CONNECTIONS
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MOST_CONNECTIONS if allowed < 0 else min(_MOST_CONNECTIONS, max(1, allowed // 4))


def check_address(host: str, port: int, token: str | None) -> None:
    """Refuse an address that others can reach without a token, and a token that can be guessed.

    Raises:
        InputError: if so.
    """
    if checks.non_negative_integer("port", port) > 65535:
        raise InputError(f"port must be at most 65535, got {checks.shown(port)}.")
    if token is not None and not (len(token) >= _SHORTEST_TOKEN and token.isascii() and token.isprintable()):
        raise InputError(
            f"The token must have at least {_SHORTEST_TOKEN} letters and digits: "
            "python -c 'import secrets; print(secrets.token_urlsafe())' makes one."
        )
    if token is None and not _is_local(host):
        raise InputError(
            f"Others can reach {checks.shown(host)}: give a token, --token-file FILE or KBANDITS_TOKEN, or leave out "
            "--host, and this machine alone can."
        )


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listening_at(host: str, port: int) -> socket.socket:
    """Return a socket that listens at the first address of a name."""
    # asyncio sends small answers at once where a socket says that it is of TCP; else they wait 40 ms for each other.
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with ExitStack() as failed:
        found = failed.enter_context(socket.socket(family, kind, protocol))
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen()
        failed.pop_all()
    return found

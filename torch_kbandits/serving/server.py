"""The service at an address, until it is told to stop; needs uvicorn."""

import ipaddress
import socket
from collections.abc import Callable
from contextlib import ExitStack, suppress

import uvicorn

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.serving.http import MAX_REQUEST, application
from torch_kbandits.serving.service import Service

#: Letters of a token, at least.
_SHORTEST_TOKEN = 16


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
        app, http="h11", ws="none", lifespan="on", access_log=False, log_level="warning", server_header=False
    )
    with suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[where])


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

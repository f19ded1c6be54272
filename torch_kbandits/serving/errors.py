"""Why a request is refused, by name, each with its status."""

from torch_kbandits.errors import ArmsChangedError, EmptyHistoryError, InfeasibleError, KernelBanditError


class RefusedError(KernelBanditError):
    """A request is refused; nothing changed. The message says why and what to do; ``status`` is the response's."""

    status = 422


class MalformedRequestError(RefusedError):
    """The request is no HTTP that this server takes, or its body no JSON object within the limits."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class UnauthorizedError(RefusedError):
    """The token is missing or another."""

    status = 401


class UnknownIdError(RefusedError):
    """No point of this id was ever asked for."""

    status = 404


class AlreadyToldError(RefusedError):
    """An id is pending no more, and this is not the request that was answered before."""

    status = 409


class KeyReusedError(RefusedError):
    """A key came with another request."""

    status = 409


class NotSavingError(RefusedError):
    """The journal could not be written, so nothing is answered any more until the server is started anew."""

    status = 503


def status_of(error: KernelBanditError) -> int:
    """Return the status with which an error is answered."""
    if isinstance(error, RefusedError):
        return error.status
    if isinstance(error, (EmptyHistoryError, InfeasibleError)):
        return 409
    return 503 if isinstance(error, ArmsChangedError) else 422

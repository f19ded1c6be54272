"""Why a request is refused, by name, each with its status."""

from torch_kbandits.errors import ArmsChangedError, EmptyHistoryError, InfeasibleError, KernelBanditError


class RefusedError(KernelBanditError):
    """A request is refused; nothing changed. The message says why and what to do; ``status`` is the response's."""

    status = 422

    def __init_subclass__(cls, *, status: int) -> None:
        cls.status = status


class MalformedRequestError(RefusedError, status=400):
    """The request is no HTTP that this server takes, or its body no JSON object within the limits."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class UnauthorizedError(RefusedError, status=401):
    """The token is missing or another."""


class NotPendingError(RefusedError, status=409):
    """An id was never asked for, or is pending no more, and this is not the request that was answered before."""


class KeyReusedError(RefusedError, status=409):
    """A key came with another request."""


class NotSavingError(RefusedError, status=503):
    """The journal could not be written, so nothing is answered any more until the server is started anew."""


def status_of(error: KernelBanditError) -> int:
    """Return the status with which an error is answered."""
    if isinstance(error, RefusedError):
        return error.status
    if isinstance(error, (EmptyHistoryError, InfeasibleError)):
        return 409
    return 503 if isinstance(error, ArmsChangedError) else 422

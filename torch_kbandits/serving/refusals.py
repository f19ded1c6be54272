"""Why a request is refused, by name, each with its status."""

from torch_kbandits.errors import ArmsChangedError, EmptyHistoryError, InfeasibleError, InputError, KernelBanditError


class RefusedError(KernelBanditError):
    """A request is refused; nothing changed. The message says why and what to do."""

    #: Of the response.
    status = 422

    def __init_subclass__(cls, *, status: int) -> None:
        cls.status = status


class MalformedRequestError(RefusedError, status=400):
    """The body is no JSON object within the limits, or the request is no HTTP that this server takes."""


class UnauthorizedError(RefusedError, status=401):
    """The token is missing or another."""


class UnknownPathError(RefusedError, status=404):
    """There is nothing of this name."""


class UnknownIdError(RefusedError, status=404):
    """No point of this id was ever asked for."""


class MethodError(RefusedError, status=405):
    """What is there takes another method."""


class SlowRequestError(RefusedError, status=408):
    """The body did not arrive in time."""


class AlreadyToldError(RefusedError, status=409):
    """An id was told other values, or forgotten."""


class KeyReusedError(RefusedError, status=409):
    """A key came with another request."""


class TooLargeError(RefusedError, status=413):
    """The request is larger than the limit."""


class MediaTypeError(RefusedError, status=415):
    """The body does not say that it is JSON."""


class BusyError(RefusedError, status=503):
    """Too many requests wait; try again after a moment."""


class NotSavingError(RefusedError, status=503):
    """The journal could not be written, so nothing is answered any more until the server is started anew."""


def status_of(error: KernelBanditError) -> int:
    """Return the status with which an error is answered."""
    if isinstance(error, RefusedError):
        return error.status
    if isinstance(error, InputError):
        return 422
    if isinstance(error, (EmptyHistoryError, InfeasibleError)):
        return 409
    return 503 if isinstance(error, ArmsChangedError) else 422

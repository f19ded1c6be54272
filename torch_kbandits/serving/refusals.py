"""Why a request is refused, by name, each with its status."""

from torch_kbandits.errors import ArmsChangedError, EmptyHistoryError, InfeasibleError, InputError, KernelBanditError


class RefusedError(KernelBanditError):
    """A request is refused; nothing changed. The message says why and what to do."""

    #: Of the response.
    status = 422


class MalformedRequestError(RefusedError):
    """The body is no JSON object within the limits, or the request is no HTTP that this server takes."""

    status = 400


class UnauthorizedError(RefusedError):
    """The token is missing or another."""

    status = 401


class UnknownPathError(RefusedError):
    """There is nothing of this name."""

    status = 404


class UnknownIdError(RefusedError):
    """No point of this id was ever asked for."""

    status = 404


class MethodError(RefusedError):
    """What is there takes another method."""

    status = 405


class SlowRequestError(RefusedError):
    """The body did not arrive in time."""

    status = 408


class AlreadyToldError(RefusedError):
    """An id was told other values, or forgotten."""

    status = 409


class KeyReusedError(RefusedError):
    """A key came with another request."""

    status = 409


class TooLargeError(RefusedError):
    """The request is larger than the limit."""

    status = 413


class MediaTypeError(RefusedError):
    """The body does not say that it is JSON."""

    status = 415


class BusyError(RefusedError):
    """Too many requests wait; try again after a moment."""

    status = 503


class NotSavingError(RefusedError):
    """The journal could not be written, so nothing is answered any more until the server is started anew."""

    status = 503


def status_of(error: KernelBanditError) -> int:
    """Return the status with which an error is answered."""
    if isinstance(error, RefusedError):
        return error.status
    if isinstance(error, InputError):
        return 422
    if isinstance(error, (EmptyHistoryError, InfeasibleError)):
        return 409
    return 503 if isinstance(error, ArmsChangedError) else 422

"""What can go wrong, by name. Each error is also the built-in one that callers may already catch."""


class KernelBanditError(Exception):
    """Base of every error that this package raises on purpose."""


class InputError(KernelBanditError, ValueError):
    """An argument is not what the call takes; the message says what was expected and what came."""


class EmptyHistoryError(KernelBanditError, RuntimeError):
    """The call needs at least one observation and there is none."""


class DictionaryFullError(KernelBanditError, RuntimeError):
    """A dictionary rule wants more points than its cap allows, and the cap is set to refuse."""


class InfeasibleError(KernelBanditError, RuntimeError):
    """No candidate may be played: none is known to be safe, or none can be within its limits."""


class NumericalError(KernelBanditError, RuntimeError):
    """A quantity left the range that rounding explains, such as a clearly negative variance."""


class ArmsChangedError(KernelBanditError, RuntimeError):
    """The arms are no longer those that the bandit began with; the message says what changed and what to do."""


class StateMismatchError(KernelBanditError, ValueError):
    """A saved state belongs to another configuration; the message names every difference."""


class FileError(KernelBanditError, OSError):
    """A file cannot be read or written; ``errno`` and ``filename`` are the system's, ``strerror`` says what to do."""

    def __str__(self) -> str:
        return str(self.strerror)


class DamagedFileError(KernelBanditError, ValueError):
    """A file is not what was written: cut, changed, or of another kind; the message says what is wrong."""


class KernelBanditWarning(UserWarning):
    """Base of every warning that this package gives."""


class TheoryWarning(KernelBanditWarning):
    """The run is valid, but a setting voids the guarantee of the algorithm's paper."""


class ExpertWarning(KernelBanditWarning):
    """An expert that a bandit asked failed, or may not be asked any more; the rounds go on without its answers."""


class OverlapWarning(KernelBanditWarning):
    """The log of one policy says little of another, which plays what that seldom or never played."""

"""The posterior of a saved bandit, as files of figures."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any

from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.bandit import Bandit
from torch_kbandits.errors import EmptyHistoryError, InputError
from torch_kbandits.files import file_error
from torch_kbandits.plotting.dictionary import plot_dictionary, plot_leverage
from torch_kbandits.plotting.posterior import plot_line, plot_plane
from torch_kbandits.plotting.style import FORMATS, write_figure


def plot_saved(
    path: str | PathLike[str],
    directory: str | PathLike[str],
    *,
    coordinates: Sequence[int | str] = (),
    at: Tensor | None = None,
    center: float = 0.0,
    format: str = "png",
) -> list[Path]:
    """Draw the posterior of the bandit of a file, its leverage scores and its dictionary.

    Args:
        path: of a file that ``bandit.save`` wrote.
        directory: where the figures go; made if it does not exist.
        coordinates: by name or number, each of which gets a line; the first two get a plane. None for those of
            ``plot_line`` and, where there are several coordinates, ``plot_plane``.
        at: a point (d,) with the other coordinates, joint with contexts. None for the recommended point; with contexts
            for the latest point played.
        center: constant to add to rewards.
        format: "png", "pdf" or "svg".

    Returns:
        The files line (with the name of a coordinate that was asked for), plane, leverage and dictionary, the last two
        only if something was told that counts.

    Raises:
        InputError: if an argument does not fit.
        FileError: if the file cannot be read, or a figure not be written.
        DamagedFileError: if it is cut, changed or no bandit's.
        StateMismatchError: if it is of a newer format, or of a bandit that cannot be made again from a file.
        MissingExtraError: if matplotlib is not installed.
    """
    checks.one_of("format", format, FORMATS)
    bandit = Bandit.load(path)
    if at is None and _has_context(bandit) and bandit.num_told:
        at = bandit.history.X[-1]
    drawn = {}
    for name, draw in _figures(bandit, coordinates, {"at": at, "center": checks.finite_number("center", center)}):
        with suppress(EmptyHistoryError):
            drawn[Path(directory) / f"{name}.{format}"] = draw()
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise file_error("written", directory, error) from error
    for file, figure in drawn.items():
        write_figure(file, figure, bbox_inches="tight")
    return list(drawn)


def _has_context(bandit: Bandit) -> bool:
    candidates = bandit.candidates
    return candidates.context_dim > int(candidates.is_timed)


def _figures(
    bandit: Bandit, coordinates: Sequence[int | str], words: dict[str, Any]
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the names of figures, and what draws them."""
    if not coordinates:
        yield "line", lambda: plot_line(bandit, **words)
        with suppress(InputError):  # there may be no second coordinate to draw over
            plane = plot_plane(bandit, **words)
            yield "plane", lambda: plane
    for coordinate in coordinates:
        yield (
            f"line-{str(coordinate).replace(' ', '-').replace('/', '-')}",
            lambda coordinate=coordinate: plot_line(bandit, coordinate, **words),
        )
    if len(coordinates) > 1:
        yield "plane", lambda: plot_plane(bandit, coordinates[:2], **words)
    yield "leverage", lambda: plot_leverage(bandit)
    yield "dictionary", lambda: plot_dictionary(bandit)

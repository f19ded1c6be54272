"""The posterior of a saved bandit, as files of figures."""

from collections.abc import Sequence
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
    if at is None and bandit.candidates.context_dim > int(bandit.candidates.is_timed) and bandit.num_observations:
        at = bandit.history.X[-1]
    words: dict[str, Any] = {"at": at, "center": checks.finite_number("center", center)}
    drawn = {}
    if not coordinates:
        drawn["line"] = plot_line(bandit, **words)
        with suppress(InputError):  # there may be no second coordinate to draw over
            drawn["plane"] = plot_plane(bandit, **words)
    for each in coordinates:
        drawn[f"line-{str(each).replace(' ', '-').replace('/', '-')}"] = plot_line(bandit, each, **words)
    if len(coordinates) > 1:
        drawn["plane"] = plot_plane(bandit, coordinates[:2], **words)
    for name, draw in (("leverage", plot_leverage), ("dictionary", plot_dictionary)):
        with suppress(EmptyHistoryError):
            drawn[name] = draw(bandit)
    files = {Path(directory) / f"{name}.{format}": figure for name, figure in drawn.items()}
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise file_error("written", directory, error) from error
    for file, figure in files.items():
        write_figure(file, figure, bbox_inches="tight")
    return list(files)

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
    """Draw the posterior of the bandit of a file that ``bandit.save`` wrote, its leverage scores and its dictionary.

    Args:
        path: of the file.
        directory: where the figures go; made if it does not exist.
        coordinates: by name or number, each of which gets a line; the first two get a plane. None for those of
            ``plot_line`` and, where there are several coordinates, ``plot_plane``.
        at: a point (d,) with the other coordinates, joint with contexts. None for the recommended point; with contexts
            for the latest point played.
        center: constant to add to rewards.
        format: "png", "pdf" or "svg".

    Returns:
        The files line (with the name of a coordinate that was asked for), plane, leverage and dictionary, the last two
        only if something was told that counts. Errors are those of ``plot_line`` and ``Bandit.load``.
    """
    checks.one_of("format", format, FORMATS)
    bandit = Bandit.load(path)
    if at is None and bandit.candidates.context_dim > int(bandit.candidates.is_timed) and bandit.num_observations:
        at = bandit.history.X[-1]
    words: dict[str, Any] = {"at": at, "center": checks.finite_number("center", center)}
    lines = {f"line-{str(each).replace(' ', '-').replace('/', '-')}": each for each in coordinates} or {"line": None}
    drawn = {name: plot_line(bandit, coordinate, **words) for name, coordinate in lines.items()}
    if len(coordinates) != 1:
        with suppress(*(() if coordinates else (InputError,))):  # there may be no second coordinate to draw over
            drawn["plane"] = plot_plane(bandit, coordinates[:2] or None, **words)
    for name, draw in (("leverage", plot_leverage), ("dictionary", plot_dictionary)):
        with suppress(EmptyHistoryError):
            drawn[name] = draw(bandit)
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise file_error("written", directory, error) from error
    for name, figure in drawn.items():
        write_figure(Path(directory) / f"{name}.{format}", figure, bbox_inches="tight")
    return [Path(directory) / f"{name}.{format}" for name in drawn]

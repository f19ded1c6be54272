"""The figures of a saved bandit, by the function and by the command."""

from typing import Any

import pytest
import torch
from click.testing import CliRunner
from problems import DOUBLE, data, on_a_cube, rbf

from torch_kbandits import InputError, algorithms
from torch_kbandits.cli import main
from torch_kbandits.errors import DamagedFileError, FileError
from torch_kbandits.looking import plot_saved

WORDS = {"kernel": rbf(0.4), "regularization": 0.05, "seed": 0, "beta": 1.5}
START = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}


def saved(path, rounds=8, d=2):
    bandit = algorithms.BKB(candidates=data(20, d)[0], **WORDS)
    for _ in range(rounds):
        x = bandit.ask()
        bandit.tell(x, torch.sin(5.0 * x).sum(-1))
    bandit.save(path)
    return path


def saved_with_context(path):
    actions = data(6, 1)[0]
    bandit = algorithms.CBKB(candidates=actions, context_dim=1, **WORDS)
    for t in range(8):
        context = torch.tensor([0.1 * t], dtype=DOUBLE)
        x = bandit.ask(context=context)
        bandit.tell(x, torch.sin(5.0 * x).sum(-1), context=context)
    bandit.save(path)
    return path


def saved_and_fitted(path):
    bandit = on_a_cube(num_initial=4)
    for _ in range(6):
        x = bandit.ask()
        bandit.tell(x, torch.sin(5.0 * x).sum(-1))
    bandit.save(path)
    return path


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("make", "format"), [(saved, "svg"), (saved_with_context, "pdf"), (saved_and_fitted, "png")])
def test_the_command_writes_all_figures(tmp_path, make, format):
    make(tmp_path / "bandit.kb")
    result = CliRunner().invoke(main, ["look", str(tmp_path / "bandit.kb"), "--format", format])
    assert result.exit_code == 0, result.output
    names = [f"{name}.{format}" for name in ("line", "plane", "leverage", "dictionary")]
    assert result.output.splitlines() == [str(tmp_path / "bandit-figures" / name) for name in names]
    assert sorted(file.name for file in (tmp_path / "bandit-figures").iterdir()) == sorted(names)
    for name in names:
        assert (tmp_path / "bandit-figures" / name).read_bytes().startswith(START[format])


def test_bad_input_is_named_and_nothing_is_written(tmp_path):
    file = saved(tmp_path / "bandit.kb")
    (tmp_path / "damaged.kb").write_bytes(file.read_bytes()[:-9])
    cases: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"coordinates": ["x1", "x9"]}, InputError, "'x9' is no coordinate"),
        ({"coordinates": ["x1", "x1"]}, InputError, "coordinates must differ"),
        ({"center": float("nan")}, InputError, "center must be a finite number"),
        ({"at": torch.full((2,), torch.nan, dtype=DOUBLE)}, InputError, "at must be finite"),
        ({"at": torch.zeros(3, dtype=DOUBLE)}, InputError, "at must"),
        ({"format": "gif"}, InputError, "format must be"),
    ]
    for words, kind, message in cases:
        with pytest.raises(kind, match=message):
            plot_saved(file, tmp_path / "none", **words)
    with pytest.raises(FileError, match="cannot be read"):
        plot_saved(tmp_path / "missing.kb", tmp_path / "none")
    with pytest.raises(DamagedFileError):
        plot_saved(tmp_path / "damaged.kb", tmp_path / "none")
    with pytest.raises(FileError, match="cannot be written"):
        plot_saved(file, file / "folder")
    result = CliRunner().invoke(main, ["look", str(file), "--at", "a,b"])
    assert result.exit_code == 2
    assert "--at must be a number or numbers with commas" in result.output
    assert not (tmp_path / "none").exists()

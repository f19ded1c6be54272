"""``kbandits``: run, compare, summarise and draw bandit algorithms from the command line."""

import dataclasses
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch_kbandits.extras import how_to_install, require

try:
    import click
except ModuleNotFoundError as missing:
    raise SystemExit(
        f"kbandits needs the package {missing.name!r}, which is not installed. {how_to_install('experiments')}"
    ) from None

from torch_kbandits import __version__, experiments, plotting
from torch_kbandits.errors import InputError, KernelBanditError
from torch_kbandits.files import read_whole
from torch_kbandits.plotting.style import BANDS, SCALES
from torch_kbandits.plotting.style import FORMATS as FIGURES

_TABLES = ("table", "markdown", "csv")
_KINDS = ("algorithms", "environments", "widths", "kernels")
_BAND = click.option(
    "--band", type=click.Choice(BANDS), default=BANDS[0], show_default=True, help="What is drawn around the curves."
)
_SCALE = click.option(
    "--scale",
    type=click.Choice(SCALES),
    default=SCALES[0],
    show_default=True,
    help="Of regret; auto is logarithmic where algorithms end more than twenty times apart.",
)
_PROBLEMS = click.option(
    "--environment", "environments", multiple=True, help="Only this one, by its label; may be given several times."
)
_WORKERS = click.option("--workers", type=int, help="Parallel processes; by default one for each core.")
_FORMAT = click.option("--format", "format_", type=click.Choice(FIGURES), default="png", show_default=True)
_RECORDS = click.argument("records", type=click.Path(path_type=Path))
_PLAYERS = click.option(
    "--algorithm", "algorithms", multiple=True, help="Only this one, by its label; may be given several times."
)


class _BadInput(click.ClickException):
    """What was typed does not fit."""

    exit_code = 2


class _Commands(click.Group):
    """The commands, in the order of their use. What the package raises on purpose is a line, and no traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (KernelBanditError, OSError) as error:
            raise (_BadInput if isinstance(error, InputError) else click.ClickException)(str(error)) from None
        except MemoryError:
            raise click.ClickException("There is not enough memory for this: make it smaller.") from None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="kbandits")
def main() -> None:
    """Compare kernelized bandit algorithms where the best reward is known; look at saved bandits, and serve them.

    \b
    See what there is, then let two settings of an algorithm play the same problem:
      kbandits list
      kbandits compare --environment rkhs-function --algorithm bkb --rounds 200 --seeds 3 --beta 2

    Larger experiments are described by a file: kbandits run --help.
    """  # noqa: D301  (click reads the escape)


@main.command("list")
@click.argument("kind", required=False, type=click.Choice(_KINDS))
def list_(kind: str | None) -> None:
    """Show the algorithms, environments, widths and kernels, with their options and defaults.

    \b
    Example:
      kbandits list environments
    """  # noqa: D301  (click reads the escape)
    from torch_kbandits.experiments.listing import TABLES

    console = require("rich.console").Console()
    for name in [kind] if kind else _KINDS:
        console.print(TABLES[name]())


@main.command()
@click.argument("spec", type=click.Path(path_type=Path))
@click.option(
    "--directory", type=click.Path(path_type=Path), help="Where records go; by default runs/NAME OF THE SPEC."
)
@_WORKERS
@click.option("--seeds", metavar="N or N,N,…", help="How many seeds, or which, instead of the spec's.")
@click.option("--rounds", type=int, help="Rounds of each run, instead of the spec's.")
@click.option("--checkpoint-every", type=int, help="Rounds between two checkpoints of a run, instead of the spec's.")
def run(
    spec: Path,
    directory: Path | None,
    workers: int | None,
    seeds: str | None,
    rounds: int | None,
    checkpoint_every: int | None,
) -> None:
    """Make the runs of a TOML or JSON SPEC, or those that are not made yet.

    Each finished run is kept at once: after Ctrl-C or a crash the same command, or kbandits resume, goes on where it
    was. With checkpoints a run that was stopped on its way goes on from its last one.

    \b
    A spec:
      rounds = 500
      seeds = 5
      [settings]
      beta = 2.0
      [[environments]]
      name = "rkhs-function"
      [[algorithms]]
      name = "bkb"

    \b
    Example:
      kbandits run quick.toml --directory runs/quick --workers 2
    """  # noqa: D301  (click reads the escape)
    from torch_kbandits import checks

    experiment, changes = experiments.load_spec(spec), dict[str, Any]()
    if seeds is not None:
        changes["seeds"] = _seeds(seeds)
    if rounds is not None:
        changes["rounds"] = experiments.parse_rounds("--rounds", rounds)
    if checkpoint_every is not None:
        changes["checkpoint_every"] = checks.positive_integer("--checkpoint-every", checkpoint_every)
    experiment = dataclasses.replace(experiment, **changes)
    _make(experiment, directory or Path("runs") / experiment.name, workers)


@main.command()
@click.argument("directory", type=click.Path(path_type=Path))
@_WORKERS
def resume(directory: Path, workers: int | None) -> None:
    """Go on with the experiment of a DIRECTORY, however it was stopped.

    The directory knows its spec. Finished runs are kept, runs with checkpoints go on from their last one, the others
    are made again.

    \b
    Example:
      kbandits resume runs/quick
    """  # noqa: D301  (click reads the escape)
    _make(experiments.spec_in(directory), directory, workers)


@main.command()
@click.option("--environment", "-e", "problems", multiple=True, required=True, metavar="NAME[:KEY=VALUE,…]")
@click.option("--algorithm", "-a", "players", multiple=True, required=True, metavar="NAME[:KEY=VALUE,…]")
@click.option("--rounds", default=200, show_default=True, help="Rounds of each run.")
@click.option("--seeds", default="5", show_default=True, metavar="N or N,N,…", help="How many seeds, or which.")
@click.option("--beta", metavar="NUMBER or WIDTH", help="The multiplier of the standard deviation for all algorithms.")
@click.option("--setting", "-s", multiple=True, metavar="KEY=VALUE", help="Another setting for all, as in a spec.")
@click.option("--baseline", help="The algorithm from which paired differences of regret are taken.")
@click.option("--directory", type=click.Path(path_type=Path), help="Keep records and figures there.")
@_WORKERS
def compare(
    problems: Sequence[str],
    players: Sequence[str],
    rounds: int,
    seeds: str,
    beta: str | None,
    setting: Sequence[str],
    baseline: str | None,
    directory: Path | None,
    workers: int | None,
) -> None:
    """Let algorithms play environments and show a table: the quick way, without a spec.

    Options of an environment or an algorithm follow its name; label=… names it in the table. Values are as in TOML.

    \b
    Example:
      kbandits compare -e rkhs-function:lengthscale=0.1 -a bkb -a "bkb:oversampling=10,label=large" --beta 2
    """  # noqa: D301  (click reads the escape)
    from torch_kbandits import algorithms, environments
    from torch_kbandits.environments.options import pick
    from torch_kbandits.experiments.names import parse_assignment, parse_entry, parse_value

    settings = dict(parse_assignment(text, "--setting") for text in setting)
    if beta is not None:
        settings["beta"] = parse_value(beta)
    content = {
        "name": "comparison",
        "rounds": rounds,
        "seeds": list(_seeds(seeds)),
        "settings": settings,
        "environments": [parse_entry(text, "--environment", environments.names()) for text in problems],
        "algorithms": [parse_entry(text, "--algorithm", algorithms.names()) for text in players],
    }
    experiment = experiments.parse_spec(content)
    if baseline is not None:
        pick("--baseline", "algorithm", baseline, [entry.label for entry in experiment.algorithms])
    if directory is None:
        with tempfile.TemporaryDirectory() as scratch:
            _finish(_run(experiment, Path(scratch), workers), baseline)
        return
    _finish(_run(experiment, directory, workers), baseline, directory)
    click.echo(f"Records and figures: {directory}")


@main.command()
@_RECORDS
@click.option("--baseline", help="The algorithm from which paired differences of regret are taken.")
@_PROBLEMS
@_PLAYERS
@click.option("--format", "format_", type=click.Choice(_TABLES), default="table", show_default=True)
def summarize(records: Path, baseline: str | None, format_: str, **chosen: tuple[str, ...]) -> None:
    """Show finished runs as tables: medians and means over seeds, and differences from a baseline.

    RECORDS is the directory of a run, or its file records.jsonl.

    \b
    Example:
      kbandits summarize runs/quick --baseline bkb --format markdown
    """  # noqa: D301  (click reads the escape)
    click.echo(experiments.render(experiments.summarize(_load(records, **chosen), baseline), format_), nl=False)


@main.command()
@_RECORDS
@click.option("--output", type=click.Path(path_type=Path), help="Where figures go; by default beside the records.")
@click.option("--baseline", help="The algorithm from which paired differences of regret are drawn.")
@_PROBLEMS
@_PLAYERS
@_BAND
@_SCALE
@_FORMAT
def plot(
    records: Path,
    output: Path | None,
    baseline: str | None,
    band: str,
    scale: str,
    format_: str,
    **chosen: tuple[str, ...],
) -> None:
    """Draw finished runs: regret, its average, its difference from a baseline, dictionary growth, time.

    RECORDS is the directory of a run, or its file records.jsonl.

    \b
    Example:
      kbandits plot runs/quick --output figures --band deviation
    """  # noqa: D301  (click reads the escape)
    output = output or (records if records.is_dir() else records.parent)
    words = {"band": band, "scale": scale, "baseline": baseline, "format": format_}
    for file in experiments.plot(_load(records, **chosen), output, **words):
        click.echo(str(file))


@main.command()
@_RECORDS
@click.option("--output", "-o", type=click.Path(path_type=Path), help="The file; by default report.html beside them.")
@click.option("--baseline", help="The algorithm from which paired differences of regret are taken.")
@_BAND
@_SCALE
def report(records: Path, output: Path | None, baseline: str | None, band: str, scale: str) -> None:
    """Write finished runs as one page of HTML: tables, figures, what was run and how to run it again.

    RECORDS is the directory of a run, or its file records.jsonl. The page needs no network and no other file.

    \b
    Example:
      kbandits report runs/quick -o quick.html --baseline bkb
    """  # noqa: D301  (click reads the escape)
    click.echo(str(experiments.write_report(records, output, baseline=baseline, band=band, scale=scale)))


@main.command()
@click.argument("bandit", type=click.Path(path_type=Path))
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Where figures go; by default BANDIT-figures.")
@click.option("--coordinate", "-c", multiple=True, help="By name, or its number from 0: a line along it; two, a plane.")
@click.option("--at", metavar="X,X,…", help="The point with the other coordinates; by default the recommended one.")
@click.option("--center", type=float, default=0.0, help="What was subtracted from rewards before they were told.")
@_FORMAT
def look(
    bandit: Path, output: Path | None, coordinate: Sequence[str], at: str | None, center: float, format_: str
) -> None:
    """Draw the posterior of a saved bandit, its leverage scores and its dictionary.

    BANDIT is a file that bandit.save wrote.

    \b
    Example:
      kbandits look prices.kb --coordinate price --coordinate hour
    """  # noqa: D301  (click reads the escape)
    import torch

    coordinates = [int(each) if each.isdecimal() and len(each) < 10 else each for each in coordinate]
    point = None if at is None else torch.tensor(_numbers("--at", at, float), dtype=torch.float64)
    output = output or bandit.with_name(f"{bandit.stem}-figures")
    words = {"coordinates": coordinates, "at": point, "center": center, "format": format_}
    for file in plotting.plot_saved(bandit, output, **words):
        click.echo(str(file))


@main.command()
@click.argument("bandit", type=click.Path(path_type=Path))
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen; beyond this machine, a token.")
@click.option("--port", default=8000, show_default=True, help="0 for any that is free.")
@click.option(
    "--token-file", type=click.Path(path_type=Path), help="With the token; else KBANDITS_TOKEN, if it is set."
)
@click.option("--max-request", default=2**20, show_default=True, help="Bytes of the body of a request.")
@click.option("--compact-after", default=1000, show_default=True, help="Changes until the bandit is saved whole.")
def serve(bandit: Path, host: str, port: int, token_file: Path | None, max_request: int, compact_after: int) -> None:
    """Answer ask and tell over HTTP, in JSON. What was answered is on the disk, and survives any crash.

    BANDIT is a file that bandit.save wrote; beside it BANDIT.journal gets each change.

    \b
    Example:
      kbandits serve prices.kb --port 8000
      curl -H 'Content-Type: application/json' -d '{"q": 1}' http://127.0.0.1:8000/ask
    """  # noqa: D301  (click reads the escape)
    from torch_kbandits.serving import server

    token = os.environ.get("KBANDITS_TOKEN") or None
    if token_file is not None:
        token = read_whole(token_file).decode(errors="replace").strip()
    server.serve(
        server.Service.open(bandit, compact_after=compact_after),
        host=host,
        port=port,
        token=token,
        max_request=max_request,
        listening=lambda address: click.echo(f"Serving {bandit} at {address}"),
    )


# ---------------------------------------------------------------- inside


def _make(experiment: "experiments.ExperimentSpec", directory: Path, workers: int | None) -> None:
    """Make the runs of an experiment that are not made yet, and show what came of all."""
    _finish(_run(experiment, directory, workers), None)
    click.echo(f"Records: {directory}. Figures: kbandits plot {directory}")


def _run(experiment: "experiments.ExperimentSpec", directory: Path, workers: int | None) -> "experiments.Outcome":
    try:
        return experiments.run_experiment(experiment, directory, workers=workers)
    except KeyboardInterrupt:
        click.echo(
            f"Stopped. Finished runs are kept in {directory}; kbandits resume {directory} goes on from there.", err=True
        )
        sys.exit(130)


def _finish(outcome: "experiments.Outcome", baseline: str | None, figures: Path | None = None) -> None:
    """Show what came of an experiment, and draw it where a directory is given; exit code 1 if a run failed."""
    if outcome.records:
        known = baseline if baseline in {record.algorithm["label"] for record in outcome.records} else None
        if figures is not None:
            experiments.plot(outcome.records, figures, baseline=known)
        click.echo(experiments.render(experiments.summarize(outcome.records, known), "table"), nl=False)
    if outcome.skipped:
        click.echo(f"{outcome.skipped} run(s) were finished before.")
    if outcome.failures:
        raise click.ClickException(
            f"{len(outcome.failures)} run(s) failed; see above, and failures.log for the tracebacks."
        )


def _load(path: Path, environments: Sequence[str] = (), algorithms: Sequence[str] = ()) -> "list[experiments.Record]":
    """Return the finished runs, of the labels given alone; of all if none is."""
    from torch_kbandits.environments.options import pick

    records, losses = experiments.load_experiment(path)
    for loss in losses:
        click.echo(loss, err=True)
    for kind, labels in (("environment", environments), ("algorithm", algorithms)):
        known = {getattr(record, kind)["label"] for record in records}
        wanted = {pick(f"--{kind}", f"{kind} of these runs", label, known) for label in labels} or known
        records = [record for record in records if getattr(record, kind)["label"] in wanted]
    return records


def _seeds(text: str) -> tuple[int, ...]:
    numbers = _numbers("--seeds", text, int)
    return experiments.parse_seeds(numbers if "," in text else numbers[0])


def _numbers(name: str, text: str, kind: Callable[[str], Any]) -> list[Any]:
    try:
        return [kind(part) for part in text.removesuffix(",").split(",")]
    except ValueError:
        from torch_kbandits import checks

        expected = "a number or numbers with commas between them"
        raise InputError(f"{name} must be {expected}, got {checks.shown(text)}.") from None


if __name__ == "__main__":
    main(prog_name="kbandits")

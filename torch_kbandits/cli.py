"""``kbandits``: run, compare, summarise and draw bandit algorithms from the command line."""

import dataclasses
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from torch_kbandits.extras import how_to_install

try:
    import click
except ModuleNotFoundError as missing:
    raise SystemExit(
        f"kbandits needs the package {missing.name!r}, which is not installed. {how_to_install('experiments')}"
    ) from None

from torch_kbandits import __version__, experiments, plotting
from torch_kbandits.errors import EmptyHistoryError, FileError, InputError, KernelBanditError
from torch_kbandits.files import read_whole
from torch_kbandits.plotting.style import FORMATS, SCALES

_PATH = click.Path(path_type=Path)
_RECORDS = click.argument("records", type=_PATH)
_WORKERS = click.option("--workers", type=int, help="Parallel processes; by default one for each core.")
_BASELINE = click.option("--baseline", help="The algorithm from which paired differences of regret are taken.")
_OUTPUT = click.option("--output", "-o", type=_PATH, help="Where figures go; by default beside what is drawn.")
_FORMAT = click.option("--format", type=click.Choice(FORMATS), default="png", show_default=True)


class _Commands(click.Group):
    """The commands, in the order of their use. What the package raises on purpose is a line, and no traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (InputError, FileError) as error:
            raise click.UsageError(str(error)) from None
        except (KernelBanditError, OSError) as error:
            raise click.ClickException(str(error)) from None
        except MemoryError:
            raise click.ClickException("There is not enough memory for this: make it smaller.") from None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="kbandits")
def main() -> None:
    """Compare kernelized bandit algorithms where the best reward is known; look at saved bandits, and serve them.

    See what there is with kbandits list, then let algorithms play a problem: kbandits compare -e rkhs-function -a bkb
    -a random --rounds 200 --seeds 3 --beta 2. Larger experiments are described by a file: kbandits run --help.
    """


@main.command("list")
@click.argument("kind", required=False, type=click.Choice(("algorithms", "environments", "widths", "kernels")))
def list_(kind: str | None) -> None:
    """Show algorithms, environments, widths and kernels with their options and defaults: kbandits list widths."""
    from torch_kbandits.algorithms import registry as algorithms
    from torch_kbandits.environments import registry as environments
    from torch_kbandits.experiments.registry import KERNELS, WIDTHS
    from torch_kbandits.experiments.spec import options_of

    describe = cast(Any, environments.describe)  # which does so of anything that makes something
    known = {
        "algorithms": [(name, algorithms.summary(name), options_of("algorithm", name)) for name in algorithms.names()],
        "environments": [(name, *describe(name)) for name in environments.names()],
        "widths": [(name, *describe(made_by)) for name, made_by in WIDTHS.items()],
        "kernels": [(name, *describe(made_by)) for name, made_by in KERNELS.items()],
    }
    for each in [kind] if kind else known:
        click.secho(f"{each.capitalize()}\n", bold=True)
        for name, summary, options in known[each]:
            hidden = {key for key, value in options.items() if value is None or "<" in repr(value)}  # given or made
            shown = [key if key in hidden else f"{key}={value!r}" for key, value in options.items()]
            click.echo(f"{name}: {summary}\n{click.wrap_text(', '.join(shown), 110, '    ', '    ')}\n")


@main.command()
@click.argument("spec", type=_PATH)
@click.option("--directory", type=_PATH, help="Where records go; by default runs/NAME OF THE SPEC.")
@_WORKERS
@click.option("--seeds", metavar="N or N,N,…", help="How many seeds, or which, instead of the spec's.")
@click.option("--rounds", type=int, help="Rounds of each run, instead of the spec's.")
def run(spec: Path, directory: Path | None, workers: int | None, seeds: str | None, rounds: int | None) -> None:
    """Make the runs of a TOML or JSON SPEC, or those that are not made yet: kbandits run quick.toml --workers 2.

    Each finished run is kept at once: after Ctrl-C or a crash the same command, or kbandits resume, goes on where it
    was. A small SPEC: rounds = 500 and seeds = 5, then [[environments]] with name = "rkhs-function", then
    [[algorithms]] with name = "bkb" and beta = 2.0.
    """
    from torch_kbandits import checks

    experiment = experiments.load_spec(spec)
    if seeds is not None:
        experiment = dataclasses.replace(experiment, seeds=_seeds(seeds))
    if rounds is not None:
        experiment = dataclasses.replace(experiment, rounds=checks.positive_integer("--rounds", rounds))
    directory = directory or Path("runs") / experiment.name
    _make(experiment, directory, workers)
    click.echo(f"Records: {directory}. Figures: kbandits plot {directory}")


@main.command()
@click.argument("directory", type=_PATH)
@_WORKERS
def resume(directory: Path, workers: int | None) -> None:
    """Go on with the experiment of a DIRECTORY, which knows its spec: kbandits resume runs/quick."""
    _make(experiments.spec_in(directory), directory, workers)


@main.command()
@click.option("--environment", "-e", "problems", multiple=True, required=True, metavar="NAME[:KEY=VALUE,…]")
@click.option("--algorithm", "-a", "players", multiple=True, required=True, metavar="NAME[:KEY=VALUE,…]")
@click.option("--rounds", default=200, show_default=True, help="Rounds of each run.")
@click.option("--seeds", default="5", show_default=True, metavar="N or N,N,…", help="How many seeds, or which.")
@click.option("--beta", metavar="NUMBER or WIDTH", help="The multiplier of the standard deviation for all algorithms.")
@click.option("--setting", "-s", multiple=True, metavar="KEY=VALUE", help="Another setting for all, as in a spec.")
@_BASELINE
@click.option("--directory", type=_PATH, help="Keep records and figures there.")
@_WORKERS
def compare(problems: Sequence[str], players: Sequence[str], seeds: str, rounds: int, **words: Any) -> None:
    """Let algorithms play environments and show a table, without a spec: kbandits compare -e bump -a k-ucb --beta 1.

    Options of an environment or an algorithm follow its name, with values as in TOML; label=… names it in the table:
    -a "bkb:oversampling=10,label=large".
    """
    from torch_kbandits import algorithms, environments
    from torch_kbandits.environments.options import pick
    from torch_kbandits.experiments.spec import parse_assignment, parse_entry

    settings = [*words["setting"], *([] if words["beta"] is None else [f"beta={words['beta']}"])]
    content = {
        "name": "comparison",
        "rounds": rounds,
        "seeds": _seeds(seeds),
        "settings": dict(parse_assignment(text, "--setting") for text in settings),
        "environments": [parse_entry(text, "--environment", environments.names()) for text in problems],
        "algorithms": [parse_entry(text, "--algorithm", algorithms.names()) for text in players],
    }
    experiment, baseline, directory = experiments.parse_spec(content), words["baseline"], words["directory"]
    if baseline is not None:
        pick("--baseline", "algorithm", baseline, [entry.label for entry in experiment.algorithms])
    with tempfile.TemporaryDirectory() as scratch:
        records = _make(experiment, directory or Path(scratch), words["workers"], baseline)
    if directory is not None:
        experiments.plot(records, directory)
        click.echo(f"Records and figures: {directory}")


@main.command()
@_RECORDS
@_BASELINE
def summarize(records: Path, baseline: str | None) -> None:
    """Show finished runs in Markdown, with differences from a baseline: kbandits summarize runs/quick --baseline bkb.

    RECORDS is the directory of a run, or its file records.jsonl.
    """
    click.echo(experiments.render(experiments.summarize(_load(records), baseline)), nl=False)


@main.command()
@_RECORDS
@_OUTPUT
@click.option("--scale", type=click.Choice(SCALES), default=SCALES[0], show_default=True, help="Of regret.")
@_FORMAT
def plot(records: Path, output: Path | None, **words: Any) -> None:
    """Draw regret, dictionary and time of runs: kbandits plot runs/quick -o figures.

    RECORDS is the directory of a run, or its file records.jsonl.
    """
    output = output or (records if records.is_dir() else records.parent)
    for file in experiments.plot(_load(records), output, **words):
        click.echo(str(file))


@main.command()
@click.argument("bandit", type=_PATH)
@_OUTPUT
@click.option("--coordinate", "-c", multiple=True, help="By name, or its number from 0: a line along it; two, a plane.")
@click.option("--at", metavar="X,X,…", help="The point with the other coordinates; by default the recommended one.")
@click.option("--center", type=float, default=0.0, help="What was subtracted from rewards before they were told.")
@_FORMAT
def look(
    bandit: Path, output: Path | None, coordinate: Sequence[str], at: str | None, center: float, format: str
) -> None:
    """Draw the posterior of a saved BANDIT and its dictionary: kbandits look prices.kb -c price.

    Each coordinate gets a line, the first two a plane. With contexts the others are those of the latest point played.
    """
    import torch

    from torch_kbandits import checks
    from torch_kbandits.bandit import Bandit
    from torch_kbandits.plotting.style import write_figures

    saved, words = Bandit.load(bandit), dict[str, Any](center=checks.finite_number("--center", center))
    if at is not None:
        words["at"] = torch.tensor(_numbers("--at", at, float), dtype=torch.float64)
    elif saved.candidates.context_dim > int(saved.candidates.is_timed) and saved.num_observations:
        words["at"] = saved.history.X[-1]
    coordinates = [int(each) if each.isdecimal() and len(each) < 10 else each for each in coordinate]
    lines = {f"line-{str(each).replace(' ', '-').replace('/', '-')}": each for each in coordinates} or {"line": None}
    drawn = {name: plotting.plot_line(saved, each, **words) for name, each in lines.items()}
    if len(coordinates) != 1:
        with suppress(*(() if coordinates else (InputError,))):  # there may be no second coordinate to draw over
            drawn["plane"] = plotting.plot_plane(saved, coordinates[:2] or None, **words)
    with suppress(EmptyHistoryError):
        drawn["dictionary"] = plotting.plot_dictionary(saved)
    output = output or bandit.with_name(f"{bandit.stem}-figures")
    for file in write_figures(drawn, output, format, bbox_inches="tight"):
        click.echo(str(file))


@main.command()
@click.argument("bandit", type=_PATH)
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen; beyond this machine, a token.")
@click.option("--port", default=8000, show_default=True, help="0 for any that is free.")
@click.option("--token-file", type=_PATH, help="With the token; else KBANDITS_TOKEN, if it is set.")
@click.option("--max-request", default=2**20, show_default=True, help="Bytes of the body of a request.")
@click.option("--compact-after", default=1000, show_default=True, help="Changes until the bandit is saved whole.")
@click.option("--log", type=_PATH, help="Append a line of JSON for each ask and tell, as Bandit.log_to does.")
def serve(bandit: Path, token_file: Path | None, compact_after: int, **words: Any) -> None:
    """Answer ask and tell over HTTP, in JSON, for a saved BANDIT: kbandits serve prices.kb --port 8000.

    What was answered is on the disk, in BANDIT.journal beside it, and survives any crash. Ask with
    curl -H 'Content-Type: application/json' -d '{"q": 1}' http://127.0.0.1:8000/ask
    """
    from torch_kbandits.serving import server

    token = os.environ.get("KBANDITS_TOKEN") or None
    if token_file is not None:
        token = read_whole(token_file).decode(errors="replace").strip()
    service = server.Service.open(bandit, compact_after=compact_after)
    server.serve(service, token=token, listening=lambda address: click.echo(f"Serving {bandit} at {address}"), **words)


def _make(
    experiment: "experiments.ExperimentSpec", directory: Path, workers: int | None, baseline: str | None = None
) -> "list[experiments.Record]":
    """Make the runs of an experiment that are not made yet, and show what came of all; exit code 1 if a run failed."""
    try:
        outcome = experiments.run_experiment(experiment, directory, workers=workers)
    except KeyboardInterrupt:
        click.echo(f"Stopped. Finished runs are kept: kbandits resume {directory} goes on from there.", err=True)
        sys.exit(130)
    if outcome.records:
        known = baseline if baseline in {record.algorithm["label"] for record in outcome.records} else None
        click.echo(experiments.render(experiments.summarize(outcome.records, known)), nl=False)
    if outcome.skipped:
        click.echo(f"{outcome.skipped} run(s) were finished before.")
    if outcome.failures:
        raise click.ClickException(f"{len(outcome.failures)} run(s) failed; failures.log has the tracebacks.")
    return outcome.records


def _load(path: Path) -> "list[experiments.Record]":
    """Return the finished runs, and say what was lost."""
    records, losses = experiments.read_records(path)
    for loss in losses:
        click.echo(loss, err=True)
    return records


def _seeds(text: str) -> tuple[int, ...]:
    from torch_kbandits.experiments.spec import parse_seeds

    numbers = _numbers("--seeds", text, int)
    return parse_seeds(numbers if "," in text else numbers[0])


def _numbers(name: str, text: str, kind: Callable[[str], Any]) -> list[Any]:
    try:
        return [kind(part) for part in text.removesuffix(",").split(",")]
    except ValueError:
        raise InputError(f"{name} must be a number or numbers with commas between them, got {text[:200]!r}.") from None


if __name__ == "__main__":
    main(prog_name="kbandits")

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from benchmarks import (
    authors_bkb,
    authors_contexts,
    authors_moving,
    bkb_regret,
    box_search,
    capped_dictionaries,
    device_rounds,
    discrete_acquisition,
    failures,
    families,
    first_use,
    health,
    late_rewards,
    learned_memories,
    learned_rates,
    limits,
    long_run,
    many_arms,
    model_window,
    nystrom_fit,
    objectives,
    online_tells,
    optuna_suggestions,
    replays,
    resampling_regret,
    rounds,
    serving,
    sharded_arms,
    thompson_draws,
    tuning,
    variance_ratio,
)
from benchmarks.parts import Parts
from benchmarks.report import Report, describe_machine, machine, save_summary

BENCHMARKS: dict[str, Callable[..., Report]] = {
    "rounds": rounds.run,
    "first_use": first_use.run,
    "many_arms": many_arms.run,
    "sharded_arms": sharded_arms.run,
    "device_rounds": device_rounds.run,
    "long_run": long_run.run,
    "resampling_regret": resampling_regret.run,
    "bkb_regret": bkb_regret.run,
    "variance_ratio": variance_ratio.run,
    "authors_contexts": authors_contexts.run,
    "authors_bkb": authors_bkb.run,
    "authors_moving": authors_moving.run,
    "capped_dictionaries": capped_dictionaries.run,
    "discrete_acquisition": discrete_acquisition.run,
    "families": families.run,
    "health": health.run,
    "box_search": box_search.run,
    "nystrom_fit": nystrom_fit.run,
    "thompson_draws": thompson_draws.run,
    "online_tells": online_tells.run,
    "model_window": model_window.run,
    "limits": limits.run,
    "learned_rates": learned_rates.run,
    "learned_memories": learned_memories.run,
    "failures": failures.run,
    "late_rewards": late_rewards.run,
    "replays": replays.run,
    "tuning": tuning.run,
    "optuna_suggestions": optuna_suggestions.run,
    "serving": serving.run,
    "objectives": objectives.run,
}

#: Those that keep what they measured piece by piece.
IN_PARTS = {"tuning"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the chosen benchmarks, print their tables and save them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure torch_kbandits.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}; all unless given")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that everything runs, measures nothing")
    parser.add_argument("--output", type=Path, default=Path("runs/benchmarks"), help="folder for NAME.json and NAME.md")
    parser.add_argument("--markdown", action="store_true", help="print the blocks of docs/benchmarks.md")
    parser.add_argument(
        "--parts",
        type=Path,
        help=f"folder of NAME.jsonl, from which one that was stopped goes on: {', '.join(IN_PARTS)}",
    )
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"there is no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    here = machine()
    console = Console(markup=False, highlight=False)
    if not options.markdown:
        console.print(describe_machine(here))
    for name in options.names or BENCHMARKS:
        kept = options.parts / f"{name}.jsonl" if options.parts else None
        words = {"parts": Parts(kept)} if name in IN_PARTS else {}
        report = BENCHMARKS[name](options.quick, **words)
        path = report.save(options.output, here)
        summary = save_summary(options.output, list(BENCHMARKS))
        if options.markdown:
            print(f"## {name}\n\n{report.markdown(here)}")
            continue
        for table in report.tables:
            console.print(table.rich())
        console.print(f"saved {path} and {summary}")


if __name__ == "__main__":
    main()

"""Experiments: algorithms × environments × seeds, run in parallel, recorded, summarised and drawn."""

from torch_kbandits.experiments.directory import spec_in
from torch_kbandits.experiments.loop import Progress, Trace, play
from torch_kbandits.experiments.plots import plot
from torch_kbandits.experiments.records import Record, read_records
from torch_kbandits.experiments.replay import Replay, replay_log
from torch_kbandits.experiments.report import write_report
from torch_kbandits.experiments.run import Failure, Outcome, load_experiment, run_experiment
from torch_kbandits.experiments.spec import ExperimentSpec, load_spec, parse_rounds, parse_seeds, parse_spec
from torch_kbandits.experiments.summary import Difference, Estimate, Row, render, summarize
from torch_kbandits.experiments.trial import AlgorithmEntry, EnvironmentEntry, Trial, run_one

__all__ = [
    "AlgorithmEntry",
    "Difference",
    "EnvironmentEntry",
    "Estimate",
    "ExperimentSpec",
    "Failure",
    "Outcome",
    "Progress",
    "Record",
    "Replay",
    "Row",
    "Trace",
    "Trial",
    "load_experiment",
    "load_spec",
    "parse_rounds",
    "parse_seeds",
    "parse_spec",
    "play",
    "plot",
    "read_records",
    "render",
    "replay_log",
    "run_experiment",
    "run_one",
    "spec_in",
    "summarize",
    "write_report",
]

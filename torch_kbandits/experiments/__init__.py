"""Experiments: algorithms × environments × seeds, run in parallel, recorded, summarised and drawn."""

from typing import TYPE_CHECKING

from torch_kbandits.extras import exports

if TYPE_CHECKING:
    from torch_kbandits.experiments.plots import plot as plot
    from torch_kbandits.experiments.run import Failure as Failure
    from torch_kbandits.experiments.run import Outcome as Outcome
    from torch_kbandits.experiments.run import read_records as read_records
    from torch_kbandits.experiments.run import run_experiment as run_experiment
    from torch_kbandits.experiments.run import spec_in as spec_in
    from torch_kbandits.experiments.spec import Entry as Entry
    from torch_kbandits.experiments.spec import ExperimentSpec as ExperimentSpec
    from torch_kbandits.experiments.spec import Trial as Trial
    from torch_kbandits.experiments.spec import load_spec as load_spec
    from torch_kbandits.experiments.spec import parse_spec as parse_spec
    from torch_kbandits.experiments.summary import Difference as Difference
    from torch_kbandits.experiments.summary import Record as Record
    from torch_kbandits.experiments.summary import Row as Row
    from torch_kbandits.experiments.summary import Summary as Summary
    from torch_kbandits.experiments.summary import render as render
    from torch_kbandits.experiments.summary import summarize as summarize
    from torch_kbandits.experiments.trial import Trace as Trace
    from torch_kbandits.experiments.trial import play as play
    from torch_kbandits.experiments.trial import run_one as run_one
else:
    __getattr__, __dir__, __all__ = exports(__name__)

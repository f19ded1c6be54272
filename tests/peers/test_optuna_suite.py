"""Optuna's own tests of samplers, run on ours, those of several objectives included; all must pass."""

import pytest
from optuna.testing import pytest_samplers as theirs

from torch_kbandits.integrations.optuna import KernelBanditSampler


@pytest.mark.usefixtures("short_searches")
@pytest.mark.filterwarnings("default")  # of Optuna's own tests, which meet warnings that are errors in ours
class TestKernelBanditSampler(
    theirs.BasicSamplerTestCase, theirs.RelativeSamplerTestCase, theirs.MultiObjectiveSamplerTestCase
):
    @pytest.fixture(params=[10, pytest.param(2, marks=pytest.mark.slow)], ids="{} first trials".format)
    def sampler(self, request):
        return lambda: KernelBanditSampler(n_startup_trials=request.param, seed=0)

    # Of pairs of kinds of parameters; each kind stays quick on either side.
    test_sample_relative_numerical = pytest.mark.one_in(5)(
        theirs.RelativeSamplerTestCase.test_sample_relative_numerical
    )
    test_combination_of_different_distributions_objective = pytest.mark.one_in(5)(
        theirs.BasicSamplerTestCase.test_combination_of_different_distributions_objective
    )
    test_single_parameter_objective = pytest.mark.one_in(3)(theirs.BasicSamplerTestCase.test_single_parameter_objective)
    test_dynamic_range_objective = pytest.mark.one_in(3)(theirs.BasicSamplerTestCase.test_dynamic_range_objective)

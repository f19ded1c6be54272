"""GPyTorch's own base test cases over our kernels, our likelihood and our models.

A case that cannot hold is overridden, and says why.
"""

import unittest

import pytest
import torch
from gpytorch.kernels import RBFKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.test.base_kernel_test_case import BaseKernelTestCase
from gpytorch.test.model_test_case import BaseModelTestCase

from torch_kbandits import ForgettingKernel, NystromGP, OnlineGP, WienerKernel
from torch_kbandits.kernels import PerActionLinearKernel, PrecomputedKernel, SpaceTimeKernel


class OneColumnCase(BaseKernelTestCase):
    def create_data_no_batch(self):
        return torch.rand(50, 10)

    def create_data_single_batch(self):
        return torch.rand(2, 3, 1)

    def create_data_double_batch(self):
        return torch.rand(3, 2, 50, 1)

    def test_active_dims_list(self):
        """GPyTorch's case names four columns; such a kernel names one."""
        x = self.create_data_no_batch()
        values = self.create_kernel_no_ard(active_dims=[4])(x).to_dense()
        self.assertAllClose(values, self.create_kernel_no_ard()(x[:, [4]]).to_dense())

    def test_active_dims_range(self):
        """GPyTorch's case names six columns, which are refused."""
        with pytest.raises(ValueError, match="one column"):
            self.create_kernel_no_ard(active_dims=list(range(3, 9)))(self.create_data_no_batch()).to_dense()


class DoublePrecisionCase(BaseKernelTestCase):
    """A kernel that keeps its number in double precision until it is cast."""

    def test_kernel_dtype_device(self):
        """GPyTorch's case expects the default dtype of a kernel that was just made."""
        kernel = self.create_kernel_no_ard()
        assert (kernel.dtype, kernel.device) == (torch.float64, torch.device("cpu"))
        assert kernel.float().dtype == torch.float32


class TestForgettingKernel(OneColumnCase, DoublePrecisionCase, unittest.TestCase):
    def create_kernel_no_ard(self, **kwargs):
        return ForgettingKernel(0.3, **kwargs)


class TestWienerKernel(OneColumnCase, DoublePrecisionCase, unittest.TestCase):
    def create_kernel_no_ard(self, **kwargs):
        return WienerKernel(0.3, **kwargs)


class TestPrecomputedKernel(OneColumnCase, unittest.TestCase):
    def create_kernel_no_ard(self, **kwargs):
        root = torch.linspace(-1.0, 1.0, 20).sin().reshape(5, 4)
        return PrecomputedKernel(root @ root.mT, **kwargs)

    def create_data_no_batch(self):
        return torch.randint(5, (50, 10)).float()

    def create_data_single_batch(self):
        return torch.randint(5, (2, 3, 1)).float()

    def create_data_double_batch(self):
        return torch.randint(5, (3, 2, 50, 1)).float()

    def test_kernel_dtype_device(self):
        """GPyTorch's case adds a parameter of another dtype; this kernel's is that of its covariance."""
        kernel = self.create_kernel_no_ard()
        assert (kernel.dtype, kernel.device) == (torch.float32, torch.device("cpu"))
        assert kernel.double().dtype == torch.float64


class TestPerActionLinearKernel(BaseKernelTestCase, unittest.TestCase):
    def create_kernel_no_ard(self, **kwargs):
        return PerActionLinearKernel(1, **kwargs)

    def create_data_no_batch(self):
        return torch.randn(50, 10).round()  # actions that occur more than once

    def create_data_single_batch(self):
        return torch.randn(2, 3, 2).round()

    def create_data_double_batch(self):
        return torch.randn(3, 2, 50, 2).round()

    def test_kernel_dtype_device(self):
        """GPyTorch's case expects a device, which a kernel without any number has not; no more have GPyTorch's own."""
        kernel = self.create_kernel_no_ard()
        assert (kernel.dtype, kernel.device) == (torch.get_default_dtype(), None)


class TestSpaceTimeKernel(BaseKernelTestCase, unittest.TestCase):
    def create_kernel_no_ard(self, **kwargs):
        return SpaceTimeKernel(RBFKernel(), ForgettingKernel(0.3).float(), **kwargs)


class TestSpaceTimeKernelOfBatches(BaseKernelTestCase, unittest.TestCase):
    def create_kernel_no_ard(self, batch_shape=None, **kwargs):
        parts = RBFKernel(batch_shape=batch_shape), ForgettingKernel(0.3, batch_shape=batch_shape).float()
        return SpaceTimeKernel(*parts, **kwargs)

    def create_kernel_ard(self, num_dims, batch_shape=None, **kwargs):
        space = RBFKernel(ard_num_dims=num_dims - 1, batch_shape=batch_shape)
        return SpaceTimeKernel(space, ForgettingKernel(0.3).float(), **kwargs)


class ModelCase(BaseModelTestCase):
    """Rewards are (..., n) in GPyTorch's cases and (..., n, 1) in BoTorch's contract, which is ours."""

    kind: type

    def create_model(self, train_x, train_y, likelihood):
        return self.kind(train_x, train_y.unsqueeze(-1), likelihood=likelihood, covar_module=RBFKernel())

    def create_test_data(self):
        return torch.randn(50, 1)

    def create_likelihood_and_labels(self):
        return GaussianLikelihood(), torch.randn(50) + 2

    def create_batch_test_data(self, batch_shape=torch.Size([3])):  # noqa: B008  (the base class's)
        return torch.randn(*batch_shape, 50, 1)

    def create_batch_likelihood_and_labels(self, batch_shape=torch.Size([3])):  # noqa: B008
        return GaussianLikelihood(batch_shape=batch_shape), torch.randn(*batch_shape, 50) + 2


class TestOnlineGP(ModelCase, unittest.TestCase):
    kind = OnlineGP


class TestNystromGP(ModelCase, unittest.TestCase):
    kind = NystromGP

"""A device that is none: tensors that say that they lie on an accelerator, and count what would be done there."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.utils import backend_registration
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

_NAME = "pretend"

#: Operations whose result the host needs before it can go on.
_SYNCHRONISING = {
    "_linalg_check_errors", "_linalg_eigh", "_local_scalar_dense", "_unique2", "bincount", "equal", "linalg_eig",
    "linalg_eigvals", "masked_select", "nonzero", "unique_consecutive", "unique_dim",
}  # fmt: skip

#: Operations that only name memory.
_FREE = {"_unsafe_view", "empty", "empty_like", "empty_strided", "lift_fresh", "new_empty", "new_empty_strided"}


class PretendTensor(torch.Tensor):
    """A tensor that says it lies on the device; the numbers are those of ``inner``, on the CPU."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # pyright: ignore[reportAssignmentType]
    inner: Tensor

    @staticmethod
    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=torch.device(_NAME, 0),
        )
        made.inner = inner
        return made

    def __repr__(self, **words):
        return f"PretendTensor({self.inner!r})"

    def __deepcopy__(self, memo):
        """Return a tensor, or parameter, of the same numbers."""
        if id(self) not in memo:
            copied = self.detach().clone()
            is_parameter = getattr(self, "_is_param", False)
            copied = torch.nn.Parameter(copied, False) if is_parameter else copied
            memo[id(self)] = copied.requires_grad_(self.requires_grad)
        return memo[id(self)]

    def tolist(self):
        """Return the numbers, as any tensor on a device does."""
        return self.cpu().tolist()

    def numpy(self, *, force=False):
        """Refuse, as any tensor on a device does."""
        if force:
            return self.cpu().numpy()
        raise TypeError(f"can't convert {self.device} device type tensor to numpy.")

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise RuntimeError(f"{func} on a pretend tensor outside of its device.")


@dataclass
class Counts:
    """What was done on the device.

    Attributes:
        launches: operations that start a kernel at least.
        syncs: times that the host waits, copies to the host among them, by operation.
        sent: copies from the host.
    """

    launches: int = 0
    syncs: Counter = field(default_factory=Counter)
    sent: int = 0


class PretendDevice(TorchDispatchMode):
    """The device, which is there within a ``with`` statement and refuses what a GPU would refuse.

    Tensors on the CPU take part in its operations if they are numbers, as indices, and to be copied.
    """

    def __init__(self) -> None:
        super().__init__()
        _register()
        self._counts = Counts()

    def __enter__(self):
        torch._C._set_only_lift_cpu_tensors(True)  # else torch.tensor copies to the device without anybody's knowledge
        return super().__enter__()

    def __exit__(self, *problem):
        torch._C._set_only_lift_cpu_tensors(False)
        return super().__exit__(*problem)

    @property
    def device(self) -> torch.device:
        return torch.device(_NAME, 0)

    @contextmanager
    def counted(self) -> Iterator[Counts]:
        """Count what is done within the statement."""
        before, self._counts = self._counts, Counts()
        try:
            yield self._counts
        finally:
            self._counts = before

    def __torch_dispatch__(self, function, types, arguments, words=None):
        """Do on the CPU what is done on the device, and count it."""
        words = dict(words or {})
        leaves = [each for each in tree_leaves((arguments, words)) if isinstance(each, Tensor)]
        there = [each for each in leaves if isinstance(each, PretendTensor)]
        named = words.get("device")
        if not there and getattr(named, "type", named) != _NAME:
            return function(*arguments, **words)
        name = function._schema.name.removeprefix("aten::")
        comes_here = named is None or torch.device(named).type == _NAME
        if "device" in words:
            words["device"] = torch.device("cpu")
        if name == "copy_":
            comes_here = isinstance(arguments[0], PretendTensor)
        elif name not in {"_to_copy", "index", "index_put_", "_index_put_impl_"}:
            _refuse_mixed(name, leaves)
        known = {id(each.inner): each for each in there}
        result = function(*tree_map(_inner, arguments), **tree_map(_inner, words))

        def outer(value):
            if not isinstance(value, Tensor) or not comes_here:
                return value
            return known[id(value)] if id(value) in known else PretendTensor(value)

        outcome = tree_map(outer, result)
        if torch.Tag.inplace_view in function.tags:
            _reshape(function, arguments, words)
        self._count(name, function, leaves, there, outcome, comes_here)
        if name == "_to_copy" and not comes_here and any(outcome is each.inner for each in there):
            outcome = outcome.clone()
        return outcome

    def _count(self, name, function, leaves, there, outcome, comes_here):
        counts = self._counts
        differ = name == "equal" and leaves[0].shape != leaves[1].shape  # which the host knows
        if not comes_here or (name in _SYNCHRONISING and not differ) or _counts_trues(name, there):
            counts.syncs[name] += 1
        if name in {"_to_copy", "copy_"} and len(there) < len(leaves):
            counts.sent += comes_here
            return
        returned = [each for each in tree_leaves(outcome) if isinstance(each, PretendTensor)]
        if name in {"index", "index_put_", "_index_put_impl_"}:
            counts.sent += sum(not isinstance(each, PretendTensor) and each.dim() > 0 for each in leaves)
        is_view = any(each.alias_info and not each.alias_info.is_write for each in function._schema.returns)
        if not comes_here or name in _FREE or is_view or (returned and not any(each.numel() for each in returned)):
            return
        counts.launches += 1


def _register():
    """Let PyTorch know of the device, once in a process."""
    if torch._C._get_privateuse1_backend_name() != _NAME:
        backend_registration._setup_privateuseone_for_python_backend(_NAME)
        # It draws nothing, and those who put all generators back ask it for the state of its own.
        backend = getattr(torch, _NAME)
        backend.get_rng_state = lambda device=0: torch.empty(0, dtype=torch.uint8)
        backend.set_rng_state = lambda state, device=0: None


def is_possible():
    """Say whether this PyTorch lets Python make devices."""
    return hasattr(backend_registration, "_setup_privateuseone_for_python_backend")


def _reshape(function, arguments, words):
    """Give tensors the shape that their numbers got in place, as wrappers of PyTorch's own do."""
    before = torch._C._meta_in_tls_dispatch_include()
    with no_dispatch():
        torch._C._set_meta_in_tls_dispatch_include(True)
        try:
            function(*arguments, **words)
        finally:
            torch._C._set_meta_in_tls_dispatch_include(before)


def _refuse_mixed(name, leaves):
    for each in leaves:
        if not isinstance(each, PretendTensor) and each.dim():
            raise RuntimeError(
                f"{name}: expected all tensors to be on the same device, but found {_NAME}:0 and {each.device}!"
            )


def _counts_trues(name, there):
    """Say whether an operation must know how many of some values are true."""
    return name in {"index", "index_put_", "_index_put_impl_"} and any(each.dtype == torch.bool for each in there[1:])


def _inner(value):
    return value.inner if isinstance(value, PretendTensor) else value

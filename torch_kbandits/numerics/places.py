"""What the host knows of tensors on a device, so that it need not wait for them, and what it sends there."""

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

#: By tensors off the CPU, how often these had been written to, None where nobody writes to them, and their values.
_KNOWN = WeakIdKeyDictionary()


def known(values: Tensor, host: Tensor, *, stays: bool = False) -> Tensor:
    """Return a tensor, and remember that these are its values on the host, which hold until somebody writes to it.

    Args:
        values: on any device.
        host: its values.
        stays: whether nobody does, but maybe beside it in the same memory.
    """
    if not (values.is_cpu or values.is_inference()):
        _KNOWN[values] = None if stays else values._version, host
    return values


def recalled(values: Tensor) -> Tensor | None:
    """Return the values of a tensor on the host, None if that would have to wait for them. Nobody writes to them."""
    if values.is_cpu:
        return values
    found = None if values.is_inference() else _KNOWN.get(values)
    return found[1] if found is not None and found[0] in (None, values._version) else None


def on_host(values: Tensor) -> Tensor:
    """Return the values of a tensor on the host, not to be written to, and remember them."""
    if values.is_cpu:
        return values
    found = recalled(values)
    if found is None:
        found = values.detach().cpu()
        known(values, found)
    return found


def listed(numbers: Tensor) -> list[int]:
    """Return the values of whole numbers (k,)."""
    return on_host(numbers).tolist()


def copied(values: Tensor) -> Tensor:
    """Return a copy without gradients, of which the host knows as much."""
    host, copy = recalled(values), values.detach().clone()
    return copy if host is None else known(copy, host)


def are_equal(values: Tensor, others: Tensor) -> bool:
    """Say whether two tensors of one device are equal, without waiting for them if the host knows both."""
    if not values.is_cpu and values.shape == others.shape:
        host, other = recalled(values), recalled(others)
        if host is not None and other is not None:
            return torch.equal(host, other)
    return torch.equal(values, others)


def beside(values: Tensor, like: Tensor) -> Tensor:
    """Return values on the device of another tensor; nobody waits for those that the host sends."""
    if values.is_cpu == like.is_cpu:
        return values
    return on_host(values) if like.is_cpu else known(values.to(like.device, non_blocking=True), values)


def sent(like: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
    """Return tensors in the dtype and on the device of another one; from the host in one copy, which nobody waits for.

    The host knows them there.
    """
    if like.is_cpu or not values[0].is_cpu:
        return tuple(each.to(like) for each in values)
    values = tuple(each.to(like.dtype) for each in values)
    flat = [each.reshape(-1) for each in values]
    there = (flat[0] if len(flat) == 1 else torch.cat(flat)).to(like.device, non_blocking=True)
    parts = there.split([each.shape[0] for each in flat])
    return tuple(known(part.view(each.shape), each) for part, each in zip(parts, values, strict=True))

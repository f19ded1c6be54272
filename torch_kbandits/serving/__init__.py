"""A bandit behind a few JSON requests: every change is saved before it is answered, and none is made twice."""

from torch_kbandits.serving.service import Service

__all__ = ["Service"]

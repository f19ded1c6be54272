"""Workers that are Ray actors."""

import math
import os
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pickle import PicklingError
from types import ModuleType
from typing import Any, NamedTuple

from torch_kbandits.candidates.sources import ArmSource
from torch_kbandits.errors import InputError, KernelBanditWarning
from torch_kbandits.extras import require
from torch_kbandits.integrations.ray.course import Message
from torch_kbandits.integrations.ray.nodes import Line, Node, WorkerLost
from torch_kbandits.integrations.ray.questions import Question
from torch_kbandits.integrations.ray.workers import ShardLostError, Workers

#: Bytes of the object store of a Ray that is started here, beside what the arms need on their way.
_OBJECT_STORE = 80 * 2**20


class Resources(NamedTuple):
    """What each worker takes.

    Attributes:
        num_cpus: CPUs.
        num_gpus: GPUs; above 0 arms and embedding live on one.
        patience: seconds that a new worker may take to come up and read its arms.
    """

    num_cpus: float
    num_gpus: float
    patience: float


class ActorCalls(Line):
    """Bytes go as arguments and results of calls."""

    def ask(self, worker: Any, data: Any, hands_on: bool) -> Any:
        """Call an actor with bytes, or with what the object store has."""
        return worker.reply.remote(data, hands_on)

    def hear(self, ticket: Any) -> bytes:
        """Return a reply, or raise what the shard raised."""
        ray = _ray()
        try:
            return ray.get(ticket)
        except ray.exceptions.RayActorError as error:
            raise WorkerLost from error
        except ray.exceptions.RayTaskError as error:
            raise error.cause from error


class Actors(Workers):
    """Workers that are Ray actors, one torch thread each. They end when nobody has this object any more.

    Args:
        source: the arms.
        shards: the rows of each shard, in order.
        resources: what each actor takes.

    Raises:
        MissingExtraError: if Ray is not installed.
        InputError: if the arms cannot be sent to another process.
    """

    def __init__(self, source: ArmSource, shards: Sequence[range], resources: Resources) -> None:
        super().__init__(shards, ActorCalls())
        _ray()  # says at once if it is not installed
        self._source = source
        self._resources = resources
        self._actors: dict[int, Any] = {}
        self._cluster: tuple[str, str] | None = None
        if source.tensor is None:
            self._check_shippable(source)

    def close(self) -> None:
        """End the actors and free what they hold; the next call starts others."""
        for number in list(self._actors):
            self._end(number)

    def absent(self) -> list[int]:
        """Start a local Ray if there is none; return the shards of which there is no actor in the one that is there."""
        if not _ray().is_initialized():
            self._start_ray(_ray())
        cluster = _cluster()
        if cluster != self._cluster:
            self._cluster, self._actors = cluster, {}
        return [number for number in range(len(self.shards)) if number not in self._actors]

    def start(self, numbers: list[int]) -> None:
        """Give these shards new actors that have read their arms, all at a time."""
        ray = _ray()
        num_cpus, num_gpus, patience = self._resources
        actor = ray.remote(Node).options(num_cpus=num_cpus, num_gpus=num_gpus, max_restarts=0)
        for number in numbers:
            self._end(number)
        loading = {}
        for number in numbers:
            self._actors[number] = actor.remote("cuda" if num_gpus > 0 else "cpu", 1)
            rows = self.shards[number]
            arms = self._source.tensor
            sent = self._source if arms is None else arms[rows.start : rows.stop].cpu().numpy()
            loading[number] = self._actors[number].load.remote(sent, rows)
        try:
            ray.wait(list(loading.values()), num_returns=len(loading), timeout=patience)
            for number, ticket in loading.items():
                self._check_loaded(number, ticket)
        except BaseException:
            for number in numbers:
                self._end(number)
            raise

    def worker(self, number: int) -> Any:
        """Return the actor of a shard."""
        return self._actors[number]

    def introduce(self, group: Sequence[int]) -> None:
        """Give the first of a group the handles of the others, and wait until it has them."""
        first, *others = (self._actors[number] for number in group)
        with suppress(WorkerLost):
            self.line.hear(first.lead.remote(self.line, others))

    def packed(self, message: Message, question: Question) -> bytes:
        """Return both in bytes, so that they are put together once and not for each actor."""
        try:
            return _ray().cloudpickle.dumps((message, question))
        except (TypeError, PicklingError) as error:
            raise InputError(
                f"The kernel or the acquisition rule cannot be sent to another process: {error}. Define its class in "
                "a module, and keep files, locks and generators out of it."
            ) from error

    def stored(self, data: bytes) -> Any:
        """Put bytes into the object store, once for all actors."""
        return _ray().put(data)

    def cpu_seconds(self) -> list[float]:
        """Return the processor time that each worker has used so far, for measurements."""
        ray = _ray()
        return ray.get([self._actors[number].cpu_seconds.remote() for number in range(len(self.shards))])

    def _check_loaded(self, number: int, ticket: Any) -> None:
        """Raise if an actor has not read its arms."""
        ray = _ray()
        try:
            ray.get(ticket, timeout=0)
        except ray.exceptions.GetTimeoutError:
            wanted = f"{self._resources.num_cpus:g} CPU(s) and {self._resources.num_gpus:g} GPU(s)"
            there, free = ray.cluster_resources(), ray.available_resources()
            raise ShardLostError(
                f"No worker came up for {self.named(number)} within {self._resources.patience:g} s. Each of the "
                f"{len(self.shards)} shards takes {wanted}; the cluster has {there.get('CPU', 0):g} CPU(s) and "
                f"{there.get('GPU', 0):g} GPU(s), of which {free.get('CPU', 0):g} and {free.get('GPU', 0):g} are free. "
                "Free some, take fewer shards, or give start_timeout= more seconds; then call again."
            ) from None
        except ray.exceptions.RayTaskError as error:
            raise ShardLostError(
                f"The worker of {self.named(number)} could not read its arms: {error.cause} Arms must be readable on "
                "every machine that has a worker; put that right and call again."
            ) from error
        except ray.exceptions.RayActorError as error:
            raise ShardLostError(f"The worker of {self.named(number)} ended while it started: {error}") from error

    def _end(self, number: int) -> None:
        actor = self._actors.pop(number, None)
        if actor is not None and _cluster() == self._cluster:
            _ray().kill(actor)

    def _check_shippable(self, source: ArmSource) -> None:
        try:
            _ray().cloudpickle.dumps(source)
        except Exception as error:
            raise InputError(
                f"{source!r} cannot be sent to another process: {type(error).__name__}: {error}. The function of "
                "ArmBlocks must not hold files, locks, generators or the like: let it open or make them when called."
            ) from error

    def _start_ray(self, ray: ModuleType) -> None:
        """Start Ray on this machine."""
        num_cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        needed = math.ceil(self._resources.num_cpus * len(self.shards))
        if needed > num_cpus:
            raise InputError(
                f"{len(self.shards)} shards of {self._resources.num_cpus:g} CPU(s) need {needed} and this machine has "
                f"{num_cpus}: take fewer shards, num_cpus_per_shard={num_cpus / len(self.shards):.2g}, or connect to a "
                "cluster first, ray.init(address=...)."
            )
        arms = self._source.tensor
        store = _OBJECT_STORE if arms is None else max(_OBJECT_STORE, 2 * arms.numel() * arms.element_size())
        warnings.warn(
            f"No Ray was there, so one with {num_cpus} CPU(s) was started on this machine. Call ray.init(...) before "
            "to use a cluster or settings of your own.",
            KernelBanditWarning,
            stacklevel=2,
        )
        ray.init(address="local", num_cpus=num_cpus, include_dashboard=False, object_store_memory=store)


def _cluster() -> tuple[str, str] | None:
    """Return what tells the Ray that is there from others, None without one."""
    if not _ray().is_initialized():
        return None
    context = _ray().get_runtime_context()
    return context.get_node_id(), context.get_job_id()


def _ray() -> ModuleType:
    return require("ray", "ray")

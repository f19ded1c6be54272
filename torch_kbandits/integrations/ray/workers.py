"""Ray actors with one shard each: what is asked of them, by way of which others, and what becomes of those lost."""

import math
import os
import pickle
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from pickle import PicklingError
from types import ModuleType
from typing import Any, NamedTuple, Self

from torch_kbandits.candidates.sources import ArmSource
from torch_kbandits.errors import InputError, KernelBanditError, KernelBanditWarning
from torch_kbandits.extras import require
from torch_kbandits.integrations.ray.shard import Held, Message, Reply, Shard, WorkerLost

#: So often a worker is tried in one call: once, once more where it held something else, and so on where it was lost.
_ATTEMPTS = 5

#: From so many shards on, some lead others. A second hop takes as long as three calls, which 9 shards save, and only
#: where each shard has a processor of its own.
_LEAST_LED = 16

#: Bytes up to which a message goes with each call, and from hand to hand; larger ones go into a store once.
_SMALL = 2**16

#: Bytes of the object store of a Ray that is started here, beside what the arms need on their way.
_OBJECT_STORE = 80 * 2**20


class ShardLostError(KernelBanditError, RuntimeError):
    """A worker is gone and no other could take its place; the message says which arms it had, and why.

    The bandit is as it was before the call, and the next call tries again.
    """


class Resources(NamedTuple):
    """What each worker takes.

    Attributes:
        num_cpus: CPUs.
        num_gpus: GPUs; above 0 arms and embedding live on one.
        patience: seconds that a new worker may take to come up and read its arms.
    """

    num_cpus: float = 1.0
    num_gpus: float = 0.0
    patience: float = 120.0


class Line:
    """How bytes get to an actor and back. Actors that lead others are sent it."""

    def ask(self, worker: Any, data: Any, hands_on: bool) -> Any:
        """Have an actor reply to bytes, or to what the store has of them, without waiting; see ``Shard.reply``."""
        return worker.reply.remote(data, hands_on)

    def hear(self, ticket: Any) -> bytes:
        """Return a reply, or raise what the shard raised.

        Raises:
            WorkerLost: if the worker ended before.
        """
        ray = _ray()
        try:
            return ray.get(ticket)
        except ray.exceptions.RayActorError as error:
            raise WorkerLost from error
        except ray.exceptions.RayTaskError as error:
            raise error.cause from error


class Workers:
    """One actor for each shard, of one torch thread, and which posterior each holds, as far as is known.

    What an actor says that it holds counts: what is remembered here only saves asking. So calls may be interrupted, and
    bandits may share the workers; they then start each other's posteriors anew whenever they take turns. Actors end
    when nobody has this object any more.

    Many shards are asked in groups: the first of each hands the question on to the others, and returns the answer of
    all. So √N calls are made here and √N by each of the first, one after another, in place of N here. There are two
    levels: at 64 shards a third would save nothing.

    Args:
        source: the arms.
        shards: the rows of each shard, in order.
        resources: what each actor takes.
        group_size: shards in a group; None for as many as there are groups, and for one if there are few shards.

    Raises:
        MissingExtraError: if Ray is not installed.
        InputError: if the arms cannot be sent to another process.
    """

    line = Line()

    def __init__(
        self, source: ArmSource, shards: Sequence[range], resources: Resources, group_size: int | None = None
    ) -> None:
        ray = _ray()  # says at once if it is not installed
        self.shards, self.source, self._resources = tuple(shards), source, resources
        number = len(self.shards)
        size = group_size or (math.isqrt(number - 1) + 1 if number >= _LEAST_LED else 1)
        self.groups = [range(first, min(first + size, number)) for first in range(0, number, size)]
        self.actors: dict[int, Any] = {}
        self._held: dict[int, Held | None] = {}
        self._cluster: tuple[str, str] | None = None
        try:
            ray.cloudpickle.dumps(source if source.tensor is None else None)
        except Exception as error:
            raise InputError(
                f"{source!r} cannot be sent to another process: {type(error).__name__}: {error}. The function of "
                "ArmBlocks must not hold files, locks, generators or the like: let it open or make them when called."
            ) from error

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return the same workers: copies of a bandit share them."""
        return self

    # ---------------------------------------------------------------- asking

    def gather(self, message: Callable[[Held | None], Message], question: Any) -> Any:
        """Lead all shards to a posterior, and return their answer to a question.

        Workers that were lost are replaced, and their posteriors built from what is known here.

        Args:
            message: returns what takes a shard there from what it holds.
            question: see ``questions``.

        Raises:
            ShardLostError: if that fails.
            KernelBanditError: what a shard raised, which then is started anew by the next call.

        Cost: one message to each shard, and two where one was lost or held something unexpected.
        """
        for number in self.absent():
            self._held.pop(number, None)
        missing = list(range(len(self.shards)))
        answers: dict[int, Any] = {}
        errors: list[BaseException] = []
        for _ in range(_ATTEMPTS):
            self._start([number for number in missing if number not in self._held])
            holders: dict[Held | None, list[int]] = {}
            for number in missing:
                holders.setdefault(self._held[number], []).append(number)
            sent = [each for held, numbers in holders.items() for each in self.send(message(held), numbers, question)]
            missing = []
            for numbers, ticket in sent:
                try:
                    replies = self.receive(ticket)
                except WorkerLost:
                    self._held.pop(numbers[0], None)
                    missing += numbers
                except Exception as error:
                    errors.append(error)
                else:
                    missing += self._heard(numbers, replies, answers)
            if errors:
                raise errors[0]
            if not missing:
                return question.merged([answers[number] for number in sorted(answers)])
        lost = [self.named(number) for number in sorted(missing)]
        raise ShardLostError(
            f"No answer from {', '.join(lost)} in {_ATTEMPTS} attempts: the worker ended each time. Ray's logs say "
            "why; too little memory is the most common reason, and more shards need less each."
        )

    def _heard(self, numbers: Sequence[int], replies: list[Reply | None], answers: dict[int, Any]) -> list[int]:
        """Put down what some shards replied, under the first for whom it stands; return those yet to answer."""
        missing = []
        if len(replies) == 1 and replies[0] is not None:
            self._held.update(dict.fromkeys(numbers, replies[0].held))
        for number, reply in zip(numbers, replies, strict=False):
            self._held.pop(number, None)
            if reply is not None:
                self._held[number] = reply.held
            if reply is not None and reply.is_answered:
                answers[number] = reply.answer
            else:
                missing.append(number)
        return missing

    def send(self, message: Message, numbers: Sequence[int], question: Any) -> list[tuple[Sequence[int], Any]]:
        """Send some shards a message with a question; return what stands for the replies of which of them.

        If these are all shards, what is small goes by way of the first of each group.
        """
        data: Any = self.packed(message, question)
        if len(data) > _SMALL:
            data = self.stored(data)
        elif len(numbers) == len(self.shards) and question.is_small:
            return [(group, self.line.ask(self.worker(group[0]), data, True)) for group in self.groups]
        return [((number,), self.line.ask(self.worker(number), data, False)) for number in numbers]

    def receive(self, ticket: Any) -> list[Reply | None]:
        """Return replies, or raise what a shard raised; see ``Shard.reply``."""
        return pickle.loads(self.line.hear(ticket))

    def named(self, number: int) -> str:
        """Return what messages call a shard."""
        rows = self.shards[number]
        return f"shard {number} of {len(self.shards)} (arms {rows.start} to {rows.stop - 1})"

    def _start(self, numbers: list[int]) -> None:
        if numbers:
            self.start(numbers)
            for group in self.groups:
                if len(group) > 1 and not set(group).isdisjoint(numbers):
                    self.introduce(group)
            self._held.update(dict.fromkeys(numbers))

    def packed(self, message: Message, question: Any) -> bytes:
        """Return both in bytes, so that they are put together once and not for each actor."""
        try:
            return _ray().cloudpickle.dumps((message, question))
        except (TypeError, PicklingError) as error:
            raise InputError(
                f"The kernel or the acquisition rule cannot be sent to another process: {error}. Define its class in "
                "a module, and keep files, locks and generators out of it."
            ) from error

    # ---------------------------------------------------------------- actors

    def worker(self, number: int) -> Any:
        """Return the worker of a shard, as ``line`` knows it."""
        return self.actors[number]

    def stored(self, data: bytes) -> Any:
        """Put bytes into the object store, once for all actors."""
        return _ray().put(data)

    def introduce(self, group: Sequence[int]) -> None:
        """Have the first of a group lead the others from now on, unless it was lost."""
        first, *others = (self.actors[number] for number in group)
        with suppress(WorkerLost):
            self.line.hear(first.lead.remote(self.line, others))

    def cpu_seconds(self) -> list[float]:
        """Return the processor time that each worker has used so far, for measurements."""
        return _ray().get([self.actors[number].cpu_seconds.remote() for number in range(len(self.shards))])

    def close(self) -> None:
        """End the actors and free what they hold; the next call starts others."""
        for number in list(self.actors):
            self._end(number)

    def absent(self) -> list[int]:
        """Start a local Ray if there is none; return the shards of which there is no actor in the one that is there."""
        if not _ray().is_initialized():
            self._start_ray(_ray())
        if _cluster() != self._cluster:
            self._cluster, self.actors = _cluster(), {}
        return [number for number in range(len(self.shards)) if number not in self.actors]

    def start(self, numbers: list[int]) -> None:
        """Give these shards new actors that have read their arms, all at a time.

        Raises:
            ShardLostError: if one cannot be had.
        """
        ray, (num_cpus, num_gpus, patience) = _ray(), self._resources
        actor = ray.remote(Shard).options(num_cpus=num_cpus, num_gpus=num_gpus, max_restarts=0)
        for number in numbers:
            self._end(number)
        loading = {}
        try:
            for number in numbers:
                self.actors[number] = actor.remote("cuda" if num_gpus > 0 else "cpu", 1)
                rows, arms = self.shards[number], self.source.tensor
                sent = self.source if arms is None else arms[rows.start : rows.stop].cpu().numpy()
                loading[number] = self.actors[number].load.remote(sent, rows)
            ray.wait(list(loading.values()), num_returns=len(loading), timeout=patience)
            for number, ticket in loading.items():
                self._check_loaded(number, ticket)
        except BaseException:
            for number in numbers:
                self._end(number)
            raise

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
        actor = self.actors.pop(number, None)
        if actor is not None and _cluster() == self._cluster:
            _ray().kill(actor)

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
        arms = self.source.tensor
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

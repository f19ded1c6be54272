"""Ray actors with one shard each: what is asked of them, and what becomes of those that are lost."""

from collections.abc import Callable, Sequence
from typing import Any, Self

from torch_kbandits.candidates import ArmSource
from torch_kbandits.errors import InputError, KernelBanditError
from torch_kbandits.extras import require
from torch_kbandits.integrations.ray.shard import Message, Shard, Versions

#: So often a worker is tried in one call: once, once more where it held something else, and so on where it was lost.
_ATTEMPTS = 5
#: Bytes up to which a message goes with each call; larger ones go into a store once.
_SMALL = 2**16


class ShardLostError(KernelBanditError, RuntimeError):
    """A worker is gone and no other could take its place; the message says which arms it had, and why.

    The bandit is as it was before the call, and the next call tries again.
    """


class Workers:
    """One actor for each shard, and which posterior all of them hold, as far as is known.

    What an actor says that it holds counts: what is remembered here only saves asking. So calls may be interrupted, and
    bandits may share the workers. Actors end when nobody has this object any more.
    """

    def __init__(
        self, source: ArmSource, shards: Sequence[range], num_cpus: float, num_gpus: float, patience: float
    ) -> None:
        self.shards, self.source = tuple(shards), source
        self._num_cpus, self._num_gpus, self._patience = num_cpus, num_gpus, patience
        self.actors: dict[int, Any] = {}
        self._held: Versions = ()
        self._cluster: Any = None
        _ray()  # says at once if it is not installed

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return the same workers: copies of a bandit share them."""
        return self

    def gather(self, message: Callable[[Versions], Message], question: Callable[[Shard], Any]) -> list[Any]:
        """Lead all shards, by the message for what each holds, to a posterior; return their answers in order.

        Workers that were lost are replaced. What a shard raises is raised, and the next call starts it anew.
        """
        missing, answers, errors = list(range(len(self.shards))), dict[int, Any](), list[Exception]()
        held = dict.fromkeys(missing, self._held)
        for _ in range(_ATTEMPTS):
            held |= dict.fromkeys(self.started(), ())
            messages = {each: message(each) for each in {held[number] for number in missing}}
            data = {each: self.packed(one, question) for each, one in messages.items()}
            tickets = {number: self.actors[number].reply.remote(data[held[number]]) for number in missing}
            for number, ticket in tickets.items():
                try:
                    answers[number] = self.receive(ticket)
                except _ray().exceptions.RayActorError:
                    del self.actors[number]
                except Exception as error:
                    errors.append(error)
            if errors:
                raise errors[0]
            missing = [number for number in missing if answers.get(number) is None]
            if not missing:
                self._held = next(iter(messages.values())).wanted
                return [answers[number] for number in sorted(answers)]
            held |= dict.fromkeys(missing, ())
        raise ShardLostError(
            f"No answer from {', '.join(map(self.named, missing))} in {_ATTEMPTS} attempts: the worker ended each "
            "time. Ray's logs say why; too little memory is the most common reason, and more shards need less each."
        )

    def packed(self, message: Message, question: Any) -> Any:
        """Return both in bytes, or what the object store has of them: put together once and not for each actor."""
        try:
            data = _ray().cloudpickle.dumps((message, question))
        except Exception as error:
            raise InputError(
                f"The kernel or the acquisition rule cannot be sent to another process: {type(error).__name__}: "
                f"{error}. Define its class in a module, and keep files, locks and generators out of it."
            ) from error
        return data if len(data) <= _SMALL else _ray().put(data)

    def receive(self, ticket: Any) -> Any:
        """Return a reply, or raise what the shard raised."""
        try:
            return _ray().get(ticket)
        except _ray().exceptions.RayTaskError as error:
            raise error.cause from error

    def started(self) -> list[int]:
        """Give shards without an actor in the Ray that is there one that has read its arms, and return which."""
        ray, loading = _ray(), dict[int, Any]()
        if not ray.is_initialized():
            ray.init(include_dashboard=False)
        if self._cluster != (cluster := _cluster()):
            self._cluster, self.actors = cluster, {}
        actor = ray.remote(Shard).options(num_cpus=self._num_cpus, num_gpus=self._num_gpus, max_restarts=0)
        new = [number for number in range(len(self.shards)) if number not in self.actors]
        try:
            for number in new:
                self.actors[number] = actor.remote("cuda" if self._num_gpus > 0 else "cpu", 1)
                loading[number] = self.actors[number].load.remote(*self.block(number))
            ray.wait(list(loading.values()), num_returns=len(loading), timeout=self._patience)
            for number, ticket in loading.items():
                self._check_loaded(self.named(number), ticket)
        except BaseException:
            self.close(new)
            raise
        return new

    def block(self, number: int) -> tuple[Any, range]:
        """Return what a shard reads its arms from, and their rows."""
        rows, arms = self.shards[number], self.source.tensor
        return self.source if arms is None else arms[rows.start : rows.stop].cpu().numpy(), rows

    def _check_loaded(self, name: str, ticket: Any) -> None:
        """Raise if an actor has not read its arms."""
        try:
            _ray().get(ticket, timeout=0)
        except _ray().exceptions.GetTimeoutError:
            free = _ray().available_resources()
            raise ShardLostError(
                f"No worker came up for {name} within {self._patience:g} s. Each takes {self._num_cpus:g} CPU(s) and "
                f"{self._num_gpus:g} GPU(s), of which {free.get('CPU', 0):g} and {free.get('GPU', 0):g} are free. Take "
                "fewer shards, or give start_timeout= more seconds; then call again."
            ) from None
        except _ray().exceptions.RayError as error:
            raise ShardLostError(
                f"The worker of {name} could not read its arms: {getattr(error, 'cause', error)} Arms must be readable "
                "on every machine that has a worker; put that right and call again."
            ) from error

    def close(self, numbers: Sequence[int] | None = None) -> None:
        """End the actors of some shards, or all, and free what they hold; the next call starts others."""
        for number in list(self.actors) if numbers is None else numbers:
            if (actor := self.actors.pop(number, None)) is not None and _cluster() == self._cluster:
                _ray().kill(actor)

    def named(self, number: int) -> str:
        """Return what messages call a shard."""
        rows = self.shards[number]
        return f"shard {number} of {len(self.shards)} (arms {rows.start} to {rows.stop - 1})"


def _cluster() -> Any:
    """Return what tells the Ray that is there from others, None without one."""
    context = _ray().get_runtime_context() if _ray().is_initialized() else None
    return None if context is None else (context.get_node_id(), context.get_job_id())


def _ray() -> Any:
    return require("ray", "ray")

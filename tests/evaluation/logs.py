"""A player of logs that learns nothing; logs with a known answer are those of ``benchmarks.off_policy``."""

from benchmarks.off_policy import World, logged, world
from torch_kbandits.evaluation import Log

__all__ = ["Policy", "World", "logged", "with_sets", "world"]


def with_sets(log):
    """The log with a set of actions for each row, though all are the same."""
    return Log(log.rows, log.rewards, log.propensities, log.contexts, actions=[log.actions] * len(log))


class Policy:
    """Plays action ``choice[x]`` in context x, a whole number; learns nothing."""

    def __init__(self, actions, choice):
        self.actions, self.choice = actions, choice

    def ask(self, *, context):
        number = self.choice[int(context)]
        return self.actions[number : number + 1]

    def tell(self, x, y, *, context): ...

    def forget(self, x, *, context): ...

"""Many arms in the coordinates of a dictionary in the course of plain rounds, while the dictionary stays."""

from collections.abc import Callable
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torch_kbandits.acquisition import AcquisitionRule, Domain, UpperConfidenceRule
from torch_kbandits.beliefs.course import Choice, Course, Record
from torch_kbandits.beliefs.features import FeatureTable
from torch_kbandits.dictionaries import CappedDictionary, DictionaryRule, RidgeLeverageSampling
from torch_kbandits.numerics.shallow import changed

Array = NDArray[np.float64]


class ArmsCourse(Course):
    """The posterior of arms at a dictionary that its rule draws again as it is, and which rewards made it so.

    Cost of a round: that of the table, O(A + m² + u m) where bounds help, else one pass of 2 rows.

    Args:
        table: before, of arms.
        rule: by which points of the dictionary keep their draws.
        held: which of the played points are in the dictionary, (u,) bool.
        uniforms: which these and some more keep, (n,).
    """

    def __init__(self, table: FeatureTable, rule: RidgeLeverageSampling, held: NDArray[np.bool_], uniforms: Array):
        # A table that learned so many of the rewards, and one whose posterior learned all of them, but not its log.
        self._known, self._table, self._rule, self.record = (table, 0), table, rule, Record()
        self._held, self._uniforms, self._counts = held, uniforms, table.counts
        self._places = {row: place for place, row in enumerate(table.rows_of_played)}  # of what was played

    @classmethod
    def of(
        cls, table: FeatureTable, rule: DictionaryRule, generator: Callable[[int], torch.Generator | None]
    ) -> Self | None:
        """Return the course that begins with a table; None if there is none."""
        most = None
        if type(rule) is CappedDictionary:
            rule, most = rule.rule, rule.max_size
        if type(rule) is not RidgeLeverageSampling or not rule.is_coupled or (held := table.held_alone) is None:
            return None
        if most is not None and held.sum() >= most:  # it may be full, and then points are exchanged
            return None
        uniforms = rule.uniforms(len(held) + 1, generator(table.num_observations))
        return cls(table, rule, held, uniforms)

    @property
    def belief(self) -> FeatureTable:
        """The table that learned all rewards told."""
        table, first = self._known
        if first < self.record.number:
            table = self._table.logged(table, *self.record.columns(first))
            self._known, self._table = (table, self.record.number), table
        return table

    @property
    def begun_anew(self) -> Self:
        """The course that begins with the table that learned all rewards told."""
        return changed(self, _known=(self.belief, 0), record=Record())

    @property
    def num_observations(self) -> int:
        """Number t of observations, those before the course included."""
        table, first = self._known
        return table.num_observations + self.record.number - first

    @property
    def regularization(self) -> Tensor:
        """λ, 0-dim, in reward units squared."""
        return self._table.regularization

    def information_gain(self) -> Tensor:
        """Return ½ log det V, 0-dim, in nats."""
        return self._table.information_gain()

    def choose(
        self, rule: AcquisitionRule, beta: Tensor, seed: Callable[[], int], domain: Domain | None = None
    ) -> Choice:
        """Return the arm of the highest score."""
        is_plain = type(rule) is UpperConfidenceRule  # else it may ask for what was told
        table = self._table if is_plain else self.belief
        rows, scores = table.contenders(rule, beta, 0 if is_plain else seed())
        point = table.arm(table.highest(scores, beta, rows))
        (row,) = table.row_list(point)
        return Choice(point, row, *table.moments_of(row), share=table.visited_share)

    def told(self, choice: Choice, y: float) -> Self | None:
        """Return the course after a reward; None where the dictionary changes, or drift is to be looked for."""
        table, held, counts, places = self._table, self._held, self._counts, self._places
        row, variance = choice.place, table.variance_of_played
        place = places.get(row, len(counts))
        if place < len(counts):
            counts = counts.copy()
            counts[place] += 1.0
        else:
            variance, counts, held = np.append(variance, choice.variance), np.append(counts, 1.0), np.append(held, False)
            places = {**places, row: place}
        noise = table.regularization.item()
        if len(counts) > len(self._uniforms) or not self._rule.keeps(held, variance, counts, noise, self._uniforms):
            return None
        after = table.told_alone(row, place, y)
        if after is None:
            return None
        record = self.record.followed(choice, y)
        return changed(self, _table=after, _held=held, _counts=counts, _places=places, record=record)

    def remember(self, choice: Choice) -> None:
        """Do nothing: the table knows its arms."""

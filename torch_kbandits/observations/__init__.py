"""What was asked and told: rewards, their times, the columns of points, and who answers questions."""

from torch_kbandits.observations.columns import Category, ColumnSpec, Number
from torch_kbandits.observations.experts import Answers, Expert, GuardedExpert
from torch_kbandits.observations.history import History
from torch_kbandits.observations.ledger import Expiry

__all__ = ["Answers", "Category", "ColumnSpec", "Expert", "Expiry", "GuardedExpert", "History", "Number"]

"""What was asked and told: rewards, their times, the columns of points, and who answers questions."""

from torch_kbandits.observations.column_spec import ColumnSpec
from torch_kbandits.observations.columns import Category, Number
from torch_kbandits.observations.experts import Answers, Expert, GuardedExpert
from torch_kbandits.observations.expiry import Expiry
from torch_kbandits.observations.ledger import History

__all__ = ["Answers", "Category", "ColumnSpec", "Expert", "Expiry", "GuardedExpert", "History", "Number"]

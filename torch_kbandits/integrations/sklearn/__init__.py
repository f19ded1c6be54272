"""Tuning of scikit-learn estimators: ``KernelBanditSearchCV`` in place of ``RandomizedSearchCV``."""

from torch_kbandits.extras import require

require("sklearn", "sklearn")

from torch_kbandits.integrations.sklearn.search import KernelBanditSearchCV  # noqa: E402

__all__ = ["KernelBanditSearchCV"]

"""Numbers and how they are kept exact: factors, low-rank changes, equal rows, the prior as tensors, seeded draws."""

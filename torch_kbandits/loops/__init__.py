"""Compiled loops: what is done to each number of an array, where many small calls of NumPy would cost more."""

__all__: list[str] = []

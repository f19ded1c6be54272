"""Counter-based randomness: every draw has an address, so one more or one fewer draw elsewhere shifts nothing."""

import hashlib

import torch


def seed_for(seed: int, round: int, purpose: str) -> int:
    """Return the 63-bit seed of the draw made by ``seed`` in ``round`` for ``purpose``."""
    address = f"{seed}/{round}/{purpose}".encode()
    return int.from_bytes(hashlib.blake2b(address, digest_size=8).digest(), "big") >> 1


def generator_for(seed: int, round: int, purpose: str) -> torch.Generator:
    """Return a fresh CPU generator for the draw made by ``seed`` in ``round`` for ``purpose``.

    Two calls with equal arguments return generators in the same state; calls that differ in any argument return
    unrelated ones. So the randomness of a round depends on nothing that happened in other rounds.
    """
    return torch.Generator().manual_seed(seed_for(seed, round, purpose))

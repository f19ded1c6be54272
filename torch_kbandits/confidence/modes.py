"""Which edge of a confidence band says whether a limit is kept, and how wide the band is unless somebody says."""

from typing import Literal

#: What is played: what is surely within a limit, by the worse edge, or what may be, by the better.
Mode = Literal["safe", "optimistic"]

#: β where nobody says it: a safe play is to be wrong about once in a thousand, a hopeful one may be.
DEFAULT_BETA: dict[str, float] = {"safe": 3.0, "optimistic": 2.0}

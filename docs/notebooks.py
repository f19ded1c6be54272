"""Write each page of docs/tutorials as a notebook beside it, with its outputs: python docs/notebooks.py."""

import json
import re
from pathlib import Path
from typing import Any

PAGES = sorted((Path(__file__).parent / "tutorials").glob("*.md"))
FENCE = re.compile(r"^```(python|output)\n(.*?)\n```$", re.MULTILINE | re.DOTALL)


def notebook(page: str) -> dict[str, Any]:
    """Return a page of Markdown as a notebook of format 4.5: text, code, and what the code printed."""
    cells: list[dict[str, Any]] = []
    # The text before a fence, the kind of the fence, what is in it, the text before the next one, and so on.
    parts = [*FENCE.split(page), None, None]
    for text, kind, code in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        if text.strip():
            cells.append({"cell_type": "markdown", "source": text.strip()})
        if kind == "python":
            cells.append({"cell_type": "code", "source": code, "execution_count": None, "outputs": []})
        elif kind == "output":
            cells[-1]["outputs"].append({"output_type": "stream", "name": "stdout", "text": f"{code}\n"})
    cells = [{"id": f"cell-{number}", "metadata": {}} | cell for number, cell in enumerate(cells)]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": kernel}, "cells": cells}


if __name__ == "__main__":
    for path in PAGES:
        written = json.dumps(notebook(path.read_text(encoding="utf-8")), ensure_ascii=False, indent=1)
        path.with_suffix(".ipynb").write_text(f"{written}\n", encoding="utf-8")

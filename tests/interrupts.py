"""Interrupts at a chosen line of the package."""

import ast
import sys
from functools import cache, partial
from pathlib import Path

import torch

import torch_kbandits

PACKAGE = str(Path(torch_kbandits.__file__).parent)
#: What runs a public method of a bandit in torch's usual modes.
WRAPPER = torch_kbandits.Bandit.ask.__code__


class Interrupt:
    """Raises KeyboardInterrupt at the n-th line of the package that is run within the block.

    Where that line leaves a block of ``torch.no_grad()``, Python does not leave it; so gradients are put back here. On
    the way from a method through its wrapper to the caller everything is done: the next line after it is interrupted.
    ``at`` is the file and line, None if the block ended before; ``passed`` how many lines were run.
    """

    def __init__(self, line):
        self._line, self.at, self.passed = line, None, 0

    def __enter__(self):
        self._before, self._grad = sys.gettrace(), torch.is_grad_enabled()
        sys.settrace(self._trace)
        return self

    def __exit__(self, kind, value, trace):
        sys.settrace(self._before)
        torch.set_grad_enabled(self._grad)
        return kind is KeyboardInterrupt

    def _trace(self, frame, event, argument, seen=None):
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if frame.f_code is WRAPPER and seen is None:
            return partial(self._trace, seen=set())
        if event == "line":
            self.passed += 1
            if self.passed >= self._line and (seen is None or frame.f_lineno not in seen):
                self.at = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} in {frame.f_code.co_name}"
                sys.settrace(None)
                raise KeyboardInterrupt
            if seen is not None:
                seen.add(frame.f_lineno)
        return partial(self._trace, seen=seen)


def swaps(call):
    """Return the numbers of the lines that come first after a statement that changes something, once for each two.

    An interrupt at any other line finds what an interrupt at one of these finds; ``call`` runs it on a copy.
    """
    call()
    found, number, previous, last = {}, 0, {}, None

    def trace(frame, event, argument):
        nonlocal number, last
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            number += 1
            here = frame.f_code.co_filename, frame.f_lineno
            for changed in (last, previous.get(frame)):
                if changed is not None and changed != _change(*here):
                    found.setdefault((changed, here), number)
            last = previous[frame] = _change(*here)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return sorted(set(found.values()))


def _change(filename, line):
    """The statement of a line, by file and first line, if it changes anything; else None."""
    first = _changes(filename).get(line)
    return None if first is None else (filename, first)


@cache
def _changes(filename):
    """The first line of the statement for each line of one that may change what outlives a call."""
    lines = {}
    for node in ast.walk(ast.parse(Path(filename).read_text(encoding="utf-8"))):
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete, ast.Expr, ast.Return)) and (
            isinstance(node, ast.Delete)
            or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call))
            or any(_writes(part) for part in ast.walk(node))
        ):
            lines |= dict.fromkeys(range(node.lineno, node.end_lineno + 1), node.lineno)
    return lines


def _writes(node):
    """Whether an attribute or an item is assigned, a method takes something away, or anything is done in place."""
    if isinstance(node, (ast.Attribute, ast.Subscript)):
        return isinstance(node.ctx, ast.Store)
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    in_place = name in ("pop", "popitem", "setdefault") or (name.endswith("_") and not name.endswith("__"))
    return in_place or any(word.arg in ("generator", "out") for word in node.keywords)

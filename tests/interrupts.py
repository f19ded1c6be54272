"""Interrupts at a chosen line of the package."""

import sys
from pathlib import Path

import torch

import torch_kbandits

PACKAGE = str(Path(torch_kbandits.__file__).parent)


class Interrupt:
    """Raises KeyboardInterrupt at the n-th line of the package that is run within the block.

    Where that line leaves a block of ``torch.no_grad()``, Python does not leave it; so gradients are put back here.

    Attributes:
        at: the file and line, None if the block ended before.
    """

    def __init__(self, line):
        self._left, self.at = line, None

    def __enter__(self):
        self._before, self._grad = sys.gettrace(), torch.is_grad_enabled()
        sys.settrace(self._trace)
        return self

    def __exit__(self, kind, value, trace):
        sys.settrace(self._before)
        torch.set_grad_enabled(self._grad)
        return kind is KeyboardInterrupt

    def _trace(self, frame, event, argument):
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            self._left -= 1
            if self._left == 0:
                self.at = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} in {frame.f_code.co_name}"
                sys.settrace(None)
                raise KeyboardInterrupt
        return self._trace

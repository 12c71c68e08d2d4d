"""Errors for operators and arguments that the stand-in does not support."""
from __future__ import annotations

import difflib
from typing import Iterable


class Missing(AttributeError, NotImplementedError):
    """The stand-in has no such operator. Also an AttributeError: programs ask by hasattr which operators exist."""


def missing(whole: str, name: str, known: Iterable[str]) -> Missing:
    known = sorted(known)
    near = difflib.get_close_matches(name, known, 4, 0.5)
    return Missing(f"{whole} is not in moecl's stand-in for torch_npu" +
                   (f"; near it: {', '.join(near)}" if near else f"; there are {', '.join(known)}"))


def refused(operator: str, what: str, why: str) -> NotImplementedError:
    return NotImplementedError(f"{operator}: {what}: {why}")

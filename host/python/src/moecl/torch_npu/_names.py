"""What is asked for and is not there."""
from __future__ import annotations

import difflib
from typing import Iterable


class Missing(AttributeError, NotImplementedError):
    """No such operator here. An AttributeError too: programs ask by hasattr which operators there are."""


def missing(whole: str, name: str, known: Iterable[str]) -> Missing:
    known = sorted(known)
    near = difflib.get_close_matches(name, known, 4, 0.5)
    return Missing(f"{whole} is not in moecl's stand-in for torch_npu" +
                   (f"; near it: {', '.join(near)}" if near else f"; there are {', '.join(known)}"))


def refused(operator: str, what: str, why: str) -> NotImplementedError:
    return NotImplementedError(f"{operator}: {what}: {why}")

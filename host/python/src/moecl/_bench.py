"""How long a call takes."""
from __future__ import annotations

import statistics
import time
from typing import Any, Callable


def bench(function: Callable[..., Any], *args: Any, seconds: float = 0.2, **kwargs: Any) -> dict[str, float]:
    """Medians of a function that returns when its results are there, as all of moecl do.

    Args:
        function: called with the arguments; twice before anything is measured
        seconds: how long it is measured

    Returns:
        median_us, best_us, runs
    """
    for _ in range(2):
        function(*args, **kwargs)
    times: list[float] = []
    end = time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        function(*args, **kwargs)
        times.append(time.perf_counter() - start)
    return {"median_us": statistics.median(times) * 1e6, "best_us": min(times) * 1e6, "runs": len(times)}

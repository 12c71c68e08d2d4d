"""Measures how long a call takes."""
from __future__ import annotations

import statistics
import time
from typing import Any, Callable


def bench(function: Callable[..., Any], *args: Any, seconds: float = 0.2, **kwargs: Any) -> dict[str, float]:
    """Times a function that returns when its results are ready, as all functions of moecl do.

    Args:
        function: called with the arguments; the first two calls are not measured
        seconds: how long the function is called and measured

    Returns:
        median_us and best_us in microseconds; runs, the number of measured calls
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

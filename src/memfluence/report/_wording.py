"""Numbers as a reader of the page sees them; what is not known is a dash."""

import math

__all__ = ["UNKNOWN", "approximate", "class_name", "count", "error", "percent", "value"]

UNKNOWN = "–"


def value(number: float, decimals: int = 2) -> str:
    """0.98, −0.03."""
    if math.isnan(number):
        return UNKNOWN
    text = f"{number:.{decimals}f}"
    return text.lstrip("-") if float(text) == 0 else text.replace("-", "−")


def error(stderr: float) -> str:
    """0.02, and 0.004 rather than 0.00."""
    return value(stderr, 3 if stderr < 0.0095 else 2)


def percent(share: float, decimals: int = 0) -> str:
    """98%; never 100% for less than all, nor 0% for more than none."""
    if math.isnan(share):
        return UNKNOWN
    step = 10.0 ** -(decimals + 2)
    if 0 < share < 1:
        share = min(max(round(share, decimals + 2), step), 1 - step)
    return f"{share:.{decimals}%}"


def count(number: float) -> str:
    """1,197."""
    return UNKNOWN if math.isnan(number) else f"{number:,.0f}"


def approximate(number: float) -> str:
    """A mean of counts: 1.2, 22,845."""
    return UNKNOWN if math.isnan(number) else f"{number:,.1f}" if 0 < number < 10 else f"{number:,.0f}"


def class_name(name: str) -> str:
    """A class's name; a bare number among numbers would say nothing."""
    return f"class {name}" if name.removeprefix("-").isdigit() else name

"""Numbers and names as a reader sees them; a number that is not known is a dash."""

import math

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
    """98%."""
    return UNKNOWN if math.isnan(share) else f"{round(share, decimals + 2) + 0.0:.{decimals}%}"  # + 0.0: never -0%


def count(number: float) -> str:
    """1,197."""
    return UNKNOWN if math.isnan(number) else f"{number:,.0f}"


def approximate(number: float) -> str:
    """A mean of counts: 1.2, 22,845."""
    return UNKNOWN if math.isnan(number) else f"{number:,.1f}" if 0 < number < 10 else f"{number:,.0f}"


NETWORKS = {"mlp": "MLP", "inception": "Inception", "resnet": "ResNet-", "densenet": "DenseNet-", "linear": "linear"}


def learner_name(name: str) -> str:
    """ResNet-9 for resnet9@fast; of what a user wrote, what stands behind the colon."""
    short = name.partition("@")[0].rpartition(":")[2]
    kind = short.rstrip("0123456789")
    return NETWORKS.get(kind, kind) + short[len(kind) :]


def class_name(name: str) -> str:
    """A class's name; a bare number among numbers would say nothing."""
    return f"class {name}" if name.removeprefix("-").isdigit() else name


def shortened(text: str, letters: int) -> str:
    """The text on one line, cut with an ellipsis where it is longer."""
    words = " ".join(text[: 4 * letters].split())  # a text may be a whole book
    whole = len(words) <= letters and len(text) <= 4 * letters
    return words if whole else f"{words[: letters - 1].rstrip()}…"

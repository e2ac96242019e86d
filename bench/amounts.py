"""Numbers on the command lines of benchmarks."""

import argparse
import math


def count(text):
    """A whole number of at least one: of rounds, or of seconds where a load knows no parts of them."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: it must be a whole number, at least 1")
    return number


def duration(text):
    """Seconds, more than none."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: it must be a number of seconds, more than 0")
    return seconds

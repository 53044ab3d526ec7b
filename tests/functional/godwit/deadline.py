# SPDX-License-Identifier: BSD-2-Clause
"""Deadlines: every wait of the harness has one, and none is a check of speed."""
import time

# Sanitizers and emulators make everything slower; conftest sets this from --timeout-scale.
scale = 1.0


class Timeout(Exception):
    """Something that had to happen did not happen in time."""


class Deadline:
    """A point in time that the steps of one wait share."""

    def __init__(self, seconds):
        self.seconds = seconds * scale
        self.end = time.monotonic() + self.seconds

    def left(self):
        """Seconds left, never negative."""
        return max(0.0, self.end - time.monotonic())

    def expired(self):
        return time.monotonic() >= self.end


def poll(condition, seconds, what, interval=0.005):
    """
    The first true value of condition(), asked for again and again; Timeout with @what if it never comes.
    """
    deadline = Deadline(seconds)
    while True:
        value = condition()
        if value:
            return value
        if deadline.expired():
            raise Timeout(f'{what}: not within {deadline.seconds:g} s')
        time.sleep(interval)

# SPDX-License-Identifier: BSD-2-Clause
"""The verifier's classes, loaded from the script."""
import pytest
from godwit import verifier


@pytest.fixture(scope='session')
def verify_stream():
    return verifier.verify_stream()


@pytest.fixture(scope='session')
def verify(verify_stream):
    """verify(data, ...) -> None if the stream is good, else the Bad."""
    def run(data, **options):
        try:
            verify_stream.Verifier(data, **options).run()
        except verify_stream.Bad as bad:
            return bad
        return None
    return run

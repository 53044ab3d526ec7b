# SPDX-License-Identifier: BSD-2-Clause
"""The verifier's classes, loaded from the script."""
import importlib.machinery
import importlib.util
import os

import pytest

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def load_script(name):
    """A script without .py as a module, leaving no compiled file beside it."""
    loader = importlib.machinery.SourceFileLoader(name.replace('-', '_').removesuffix('.py'),
                                                  os.path.join(TOP, 'scripts', name))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    module = importlib.util.module_from_spec(spec)
    exec(compile(loader.get_data(loader.path), loader.path, 'exec'), module.__dict__)
    return module


@pytest.fixture(scope='session')
def verify_stream():
    return load_script('verify-stream')


@pytest.fixture(scope='session')
def verify(verify_stream):
    """verify(data, ...) -> None if the stream is good, else the Bad."""
    def run(data, **options):
        verifier = verify_stream.Verifier(data, **options)
        try:
            verifier.run()
        except verify_stream.Bad as bad:
            return bad
        return None
    return run

# SPDX-License-Identifier: BSD-2-Clause
"""The stream verifier of scripts/, for streams that tests capture; and how to load a script as a module."""
import functools
import importlib.machinery
import importlib.util
import os

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


def load_script(name):
    """A program in scripts/ as a module, leaving no compiled file beside it."""
    path = os.path.join(TOP, 'scripts', name)
    loader = importlib.machinery.SourceFileLoader(name.replace('-', '_').removesuffix('.py'), path)
    spec = importlib.util.spec_from_loader(loader.name, loader)
    module = importlib.util.module_from_spec(spec)
    exec(compile(loader.get_data(path), path, 'exec'), module.__dict__)
    return module


@functools.cache
def verify_stream():
    return load_script('verify-stream')


def assert_good(data, **options):
    """
    @data is a good stream; options as of Verifier(): capabilities, peer, machine, memory, ....  Its report.
    """
    verifier = verify_stream().Verifier(data, **options)
    try:
        verifier.run()
    except verify_stream().Bad as bad:
        raise AssertionError(f'stream is bad at offset {bad.offset:#x}: {bad.reason}') from None
    return verifier.report()


def assert_good_return_path(data):
    """@data is what a destination sent back in a migration that succeeded; the names of the messages."""
    path = verify_stream().ReturnPath(data)
    try:
        path.run()
    except verify_stream().Bad as bad:
        raise AssertionError(f'return path is bad at offset {bad.offset:#x}: {bad.reason}') from None
    assert path.shut == 0, f'SHUT {path.shut}'
    return path.messages

# SPDX-License-Identifier: BSD-2-Clause
"""
The programs under test and their peers, what each can do, and what each needs towards another: the one
matrix.
"""
import functools
import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field

HERE = os.path.dirname(os.path.abspath(__file__))
PREPARE = os.path.normpath(os.path.join(HERE, '..', '..', 'peers', 'prepare'))

# Peers by the name that tests use; the first is the distribution's own.
INSTALLED = '7.2'
PEERS = ('7.2', '10.0', '11.1')


class Missing(Exception):
    """A program is not to be had here; the text is the reason for a skip."""


@dataclass(frozen=True)
class Program:
    """An executable that takes QEMU's command line."""
    name: str                   # "godwit", or the QEMU version as in PEERS
    path: str
    version: tuple = field(default=())

    @property
    def is_godwit(self):
        return self.name == 'godwit'

    def can(self, feature):
        """Does this program have "file" (the file: transport), "exit-on-error", "channels", ...?"""
        since = {'file': (8, 2), 'channels': (8, 2), 'exit-on-error': (9, 1)}[feature]
        return self.is_godwit or self.version >= since


# What a source must be told for a destination of an older version; machine "none" adjusts nothing by itself.
# (QEMU property, value, first version that has the property, destination versions below this need it)
COMPAT_PROPERTIES = (
    ('send-switchover-start', 'off', (10, 0), (10, 0)),
)


# Towards a peer, godwit is told the age of the nearest change that concerns it: migration.x-compat.
COMPAT = {'7.2': '7.2', '10.0': '11.0', '11.1': '11.1'}


def compat_options(source, destination):
    """Command-line words for @source so that @destination understands its stream."""
    if destination.is_godwit:
        return []
    if source.is_godwit:
        return ['-global', f'migration.x-compat={COMPAT[destination.name]}']
    words = []
    for name, value, since, below in COMPAT_PROPERTIES:
        if source.version >= since and destination.version < below:
            words += ['-global', f'migration.{name}={value}']
    return words


@functools.cache
def qemu_version(path):
    """(major, minor) of the QEMU at @path."""
    text = subprocess.run([path, '--version'], capture_output=True, text=True, timeout=60, check=True).stdout
    found = re.search(r'version (\d+)\.(\d+)', text)
    if not found:
        raise Missing(f'{path} tells no version')
    return int(found[1]), int(found[2])


@functools.cache
def prepared_peers(may_fetch):
    """{name: path or Missing} from tests/peers/prepare."""
    command = [PREPARE] if may_fetch else [PREPARE, '--check']
    result = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    peers = {}
    for line in result.stdout.splitlines():
        name, _, rest = line.partition('\t')
        peers[name] = Missing(f'QEMU {name}: {rest[2:]}') if rest.startswith('- ') else rest
    return peers


def find_peer(name, may_fetch=False):
    """The Program of peer @name; raises Missing with the reason."""
    if name == INSTALLED:
        path = os.environ.get('GODWIT_QEMU') or shutil.which('qemu-system-x86_64')
        if not path:
            raise Missing('qemu-system-x86_64 is not installed')
        return Program(name, path, qemu_version(path))
    found = prepared_peers(may_fetch).get(name, Missing(f'no peer named {name}'))
    if isinstance(found, Missing):
        raise found
    return Program(name, found, qemu_version(found))


@functools.cache
def find_godwit(build_dir):
    """The godwit of a build directory; raises Missing if it was not built."""
    path = os.path.join(build_dir, 'vmm', 'godwit')
    if not os.access(path, os.X_OK):
        path = os.path.join(build_dir, 'godwit')
    if not os.access(path, os.X_OK):
        raise Missing(f'no godwit in {build_dir}: build it, or give --build-dir')
    return Program('godwit', path, (11, 1))

# SPDX-License-Identifier: BSD-2-Clause
"""The way by RDMA: over a real device, in the box or on this machine, or over the fake verbs."""
import errno
import glob
import json
import os
import random
import socket

from .deadline import poll
from .ram import PAGE
from .routes import Route

HERE = os.path.dirname(os.path.abspath(__file__))
CHUNK_PARAMETER = 'x-rdma-chunk-size'


def has_device():
    return bool(glob.glob('/sys/class/infiniband/*'))


def free_port(address):
    """
    A port that nobody uses for TCP; ports of RDMA are their own, those of the fake verbs are TCP's.  It is
    outside of the range from which the kernel gives ports, so that nobody gets it before it is used.
    """
    family = socket.AF_INET6 if ':' in address else socket.AF_INET
    while True:
        port = random.randrange(12000, 32000)
        with socket.socket(family, socket.SOCK_STREAM) as s:
            try:
                s.bind((address, port))
                return port
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise


class Rdma(Route):
    """One migration by RDMA to @address."""
    name = 'rdma'

    def __init__(self, address='127.0.0.1', port=None, listen_at=None):
        super().__init__(folder=None)
        self.address = address
        self.listen_at = listen_at or address
        self.port = port or free_port(address)

    @staticmethod
    def _uri(address, port):
        return f'rdma:[{address}]:{port}' if ':' in address else f'rdma:{address}:{port}'

    @property
    def uri(self):
        return self._uri(self.address, self.port)

    def listen(self, dst):
        dst.call('migrate-incoming', uri=self._uri(self.listen_at, self.port))

    def connect(self, src):
        src.call('migrate', uri=self.uri)


def set_chunk(vm, size):
    """Where the program has such a parameter; the others know 1 MiB only."""
    if size and (vm.program.is_godwit or vm.program.version >= (11, 0)):
        vm.set_parameters(**{CHUNK_PARAMETER: size})


def wait_rounds(vm, rounds, seconds=120):
    """Until guest memory has been gone through @rounds times."""
    def reached():
        info = vm.migration()
        assert info['status'] in ('setup', 'active'), f'{vm}: over before {rounds} rounds: {info}'
        return info.get('ram', {}).get('dirty-sync-count', 0) >= rounds
    poll(reached, seconds, f'{vm}: {rounds} rounds')


def fill_half_zero(ram, chunk, seed=1):
    """
    Half zero, half random pages, in runs of all lengths; a run of zero pages lies across each border of a
    chunk, and one of data across the middle of each chunk.
    """
    rng = random.Random(seed)
    pages = ram.size // PAGE
    per_chunk = chunk // PAGE
    template = rng.randbytes(64 * PAGE)
    with ram.open() as f:
        page = 0
        zero = False
        while page < pages:
            run = rng.choice((1, 2, 3, 5, 17, 64, 100))
            if not zero:
                for p in range(page, min(page + run, pages)):
                    if min(p % per_chunk, -p % per_chunk) <= 4:
                        continue            # across the border of a chunk
                    f.seek(p * PAGE)
                    f.write(p.to_bytes(8, 'little') + template[p % 64 * PAGE:][:PAGE - 8])
            page += run
            zero = not zero
    return ram


def data_bytes(ram):
    """Bytes of @ram in pages that are not zero: at least so many must go over the wire."""
    zero = bytes(PAGE)
    with open(ram.path, 'rb') as f:
        return sum(PAGE for page in iter(lambda: f.read(PAGE), b'') if page != zero)


class DeviceCounters:
    """What went over the real devices since this was made."""

    def __init__(self):
        self.before = self.read()

    @staticmethod
    def read():
        counters = {}
        for path in glob.glob('/sys/class/infiniband/*/ports/1/hw_counters/*'):
            with open(path) as f:
                try:
                    value = int(f.read())
                except ValueError:
                    continue
            name = os.path.basename(path)
            counters[name] = counters.get(name, 0) + value
        return counters

    def __getitem__(self, name):
        return self.read()[name] - self.before[name]

    def assert_carried(self, size, mtu=4096):
        """At least @size bytes went through the device."""
        packets = self['sent_pkts']
        assert packets * mtu >= size, f'{packets} packets cannot have carried {size} bytes'


class FakeVerbs:
    """The fake verbs for one process: its environment, and what it reports when the process has ended."""

    def __init__(self, build_dir, folder, name, specification=''):
        self.library = os.path.join(build_dir, 'tests', 'fake-verbs', 'fake-verbs.so')
        self.report_path = os.path.join(folder, f'{name}.verbs')
        self.environment = {'LD_PRELOAD': self.library, 'FAKE_VERBS': specification,
                            'FAKE_VERBS_REPORT': self.report_path}

    def report(self):
        with open(self.report_path) as f:
            return json.load(f)

    def assert_clean(self):
        """Nothing is left, nothing was done that a device would not have stood."""
        report = self.report()
        left = {kind: n for kind, n in report['live'].items() if n}
        assert not left, f'left behind: {left}'
        assert report['numbers']['violations'] == 0, 'fake-verbs: violations, see the error output'
        return report

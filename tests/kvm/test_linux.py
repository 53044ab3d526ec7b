# SPDX-License-Identifier: BSD-2-Clause
"""
A Linux on machine pico: the distribution's kernels, usual and for clouds, and a busybox initramfs, with a
disk, a console and random numbers, migrated over several transports in one go.  It runs where KVM runs a
Linux; scripts/rdma-box is such a place, and this test goes there.
"""
import hashlib
import os
import pathlib
import re
import subprocess
import threading
import time

import pytest
from godwit import kernels
from godwit.deadline import poll
from godwit.relay import connect_unix
from godwit.routes import Route, perform
from godwit.vm import VmDied

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parent.parent
IN_BOX = 'BOX_HOST' in os.environ
MEMORY = 256
DISK = 8 << 20
# Seconds between the moment that a line names and the one when this test has read it.
CONSOLE_DELAY = 1

LINE = re.compile(r'@(ready|md5|rng|wrote|disk|heard|count|tick) (.*)')


def test_in_box(pytestconfig):
    if IN_BOX:
        pytest.skip('this is the box')
    if not os.environ.get('GODWIT_LINUX'):
        pytest.skip('boots a Linux under nested KVM, which takes minutes: GODWIT_LINUX=1 asks for it')
    kernels.prepare('linux-image-cloud-amd64')
    words = [TOP / 'scripts' / 'rdma-box', '--timeout', '2400', '--', '/usr/bin/python3', '-m', 'pytest',
             '-q', '-s', '-p', 'no:cacheprovider', HERE, '--build-dir',
             os.path.abspath(pytestconfig.getoption('--build-dir')), '--timeout-scale', '10']
    result = subprocess.run(words, capture_output=True, text=True, timeout=2500)
    print(result.stdout[-20000:], result.stderr[-4000:])
    assert result.returncode == 0


class Console:
    """What a serial port prints, line by line, each with the time when it came."""

    def __init__(self, path):
        self.sock = poll(lambda: connect_unix(path), 30, 'the serial port')
        self.lines = []
        self.raw = b''
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        while True:
            data = self.sock.recv(65536)
            if not data:
                return
            now = time.monotonic()
            before = self.raw.rpartition(b'\n')[0].count(b'\n')
            self.raw += data
            lines = self.raw.split(b'\n')[:-1]
            for line in lines[len(self.lines):]:
                self.lines.append((now, line.decode(errors='replace').strip('\r')))

    def send(self, text):
        self.sock.sendall(text.encode())


def events(consoles):
    """(time, kind, text) of all consoles, one after the other: what one machine has printed."""
    raw = b''.join(console.raw for console in consoles).replace(b'\r', b'')
    times = [t for console in consoles for t, _ in console.lines]
    found = []
    lines = raw.split(b'\n')[:-1]
    for number, line in enumerate(lines):
        match = LINE.match(line.decode(errors='replace'))
        if match:
            found.append((times[min(number, len(times) - 1)], match[1], match[2]))
        else:
            # The kernel says what it likes, but never with our mark in it.
            assert b'@' not in line or b'[' in line, line
    return found


def numbers(found, kind):
    return [int(text.split()[0]) for _, k, text in found if k == kind]


@pytest.fixture
def make_linux(godwit, make_vm, folder):
    """make_linux(name, package, cpus, incoming=None); all of one test share a disk."""
    if not IN_BOX:
        pytest.skip('test_in_box runs this in the box')
    disk = os.path.join(folder, 'disk.img')
    with open(disk, 'wb') as f:
        f.truncate(DISK)

    def make(name, package, cpus, incoming=None):
        tty = os.path.join(folder, f'{name}.tty')
        try:
            image, version = kernels.find(package)
        except kernels.Missing as reason:
            pytest.skip(str(reason))
        initrd = os.path.join(folder, 'initrd.gz')
        if not os.path.exists(initrd):
            kernels.make_initrd(package, version, HERE / 'init', folder)
        # panic=-1: a guest that cannot go on resets, and the process ends with -no-reboot.
        options = ['-accel', 'kvm', '-m', str(MEMORY), '-smp', str(cpus), '-kernel', image,
                   '-initrd', initrd, '-append', 'console=ttyS0 panic=-1 loglevel=4', '-no-reboot',
                   '-serial', f'unix:{tty},server=on,wait=off',
                   '-drive', f'if=none,id=disk0,file={disk},format=raw',
                   '-device', 'virtio-blk-device,drive=disk0', '-device', 'virtio-rng-device',
                   '-chardev', f'socket,id=hvc,path={tty}.hvc,server=on,wait=off',
                   '-device', 'virtio-serial-device', '-device', 'virtconsole,chardev=hvc']
        vm = make_vm(godwit, name, incoming=incoming, machine='pico', options=options)
        vm.console, vm.hvc = Console(tty), Console(f'{tty}.hvc')
        vm.disk = disk
        return vm
    return make


# The hops of one guest, one after the other.
HOPS = (('tcp', ('return-path',)), ('tcp', ('return-path', 'multifd')), ('file', ('mapped-ram',)),
        ('unix', ('return-path',)), ('rdma', ('return-path',)))


class Rdma(Route):
    """The box's soft-RoCE device, to itself."""
    uri = f'rdma:{os.environ.get("BOX_ADDRESS")}:4455'

    def listen(self, dst):
        dst.call('migrate-incoming', uri=self.uri)

    def connect(self, src):
        src.call('migrate', uri=self.uri)


@pytest.mark.parametrize('package,cpus', (('linux-image-amd64', 1), ('linux-image-amd64', 2),
                                          *(('linux-image-cloud-amd64', cpus) for cpus in (1, 2, 4))))
def test_linux(package, cpus, make_linux, make_route):
    vms = [make_linux('vm0', package, cpus)]
    consoles = [vms[0].console]

    def wait_count(more, seconds=120):
        have = len(numbers(events(consoles), 'count'))
        poll(lambda: len(numbers(events(consoles), 'count')) >= have + more, seconds,
             f'{more} more lines of the counter', interval=0.2)
    wait_count(5, 60)
    downtimes = []
    for number, (kind, capabilities) in enumerate(HOPS, 1):
        src = vms[-1]
        dst = make_linux(f'vm{number}', package, cpus, incoming='defer')
        for vm in (src, dst):
            vm.set_capabilities('return-path', 'multifd', 'mapped-ram', state=False)
            vm.set_capabilities(*capabilities)
        src.set_parameters(max_bandwidth=0, downtime_limit=500)
        src.console.send(f'before hop {number}\n')
        src.hvc.send(f'before hop {number}\n')
        route = Rdma(None) if kind == 'rdma' else make_route(kind)
        try:
            at_source, _ = perform(src, dst, route, seconds=60)
        except VmDied:
            print(f'{src} said at last: {src.console.raw[-3000:].decode(errors="replace")}')
            raise
        # A guest that lies in a file does not count that: its clock stands still from the stop to the start.
        downtimes.append(at_source['downtime'] / 1000 if kind != 'file' else 0)
        print(f'{package}, {cpus} cpus, {kind} {capabilities}: {at_source["total-time"]} ms, downtime '
              f'{at_source["downtime"]} ms, {at_source.get("x-downtime")}, {at_source.get("x-dirty-log")}')
        vms.append(dst)
        consoles.append(dst.console)
        wait_count(20)
        dst.console.send(f'after hop {number}\n')
        dst.hvc.send(f'after hop {number}\n')
        poll(lambda: f'after hop {number}' in [text for _, kind, text in events(consoles) if kind == 'heard'],
             30, 'what was typed is heard', interval=0.2)
        src.quit()
    before = len(numbers(events(consoles), 'md5'))
    poll(lambda: len(numbers(events(consoles), 'md5')) >= before + 2, 60, 'the sums go on', interval=0.5)
    vms[-1].console.send('stop\n')
    poll(lambda: numbers(events(consoles), 'disk'), 60, 'the disk is read', interval=0.5)
    check(events(consoles), cpus, len(HOPS))
    firsts = [numbers(events([console]), 'count')[0] for console in consoles[1:]]
    check_gaps(events(consoles), firsts, downtimes)
    check_hvc(events([vm.hvc for vm in vms]), len(HOPS))
    check_disk(events(consoles), vms[-1].disk)


def check_hvc(found, hops):
    """The virtio console loses and repeats nothing either."""
    ticks = numbers(found, 'tick')
    assert ticks == list(range(len(ticks))) and len(ticks) > hops
    heard = [text for _, kind, text in found if kind == 'heard']
    assert heard == [f'{when} hop {n}' for n in range(1, hops + 1) for when in ('before', 'after')]


def check_disk(found, path):
    """What the guest believes to have written, what it reads and what is in the file are the same."""
    (written, shadow, disk), = [text.split() for _, kind, text in found if kind == 'disk']
    wrote = numbers(found, 'wrote')
    assert wrote == list(range(1, len(wrote) + 1)) and len(wrote) == int(written)
    assert len(wrote) > 10 * len(HOPS)
    with open(path, 'rb') as f:
        assert shadow == disk == hashlib.sha256(f.read()).hexdigest()
    rng = numbers(found, 'rng')
    assert rng == list(range(1, len(rng) + 1)) and len(rng) > len(HOPS)
    print(f'{len(wrote)} pieces written to the disk, {len(rng)} reads of random bytes')


def check(found, cpus, hops):
    ready, = [text for _, kind, text in found if kind == 'ready']
    assert ready.endswith(f' cpus {cpus}')
    counted = numbers(found, 'count')
    assert counted == list(range(len(counted))), 'lines of the counter are lost or come twice'
    sums = numbers(found, 'md5')
    assert sums == list(range(1, len(sums) + 1)) and not [t for _, k, t in found if 'BAD' in t]
    heard = [text for _, kind, text in found if kind == 'heard']
    assert heard == [f'{when} hop {n}' for n in range(1, hops + 1) for when in ('before', 'after')] + ['stop']
    ups = [float(text.split()[1]) for _, kind, text in found if kind == 'count']
    clocks = [int(text.split()[2]) for _, kind, text in found if kind == 'count']
    assert ups == sorted(ups) and clocks == sorted(clocks), 'a clock went back'
    assert abs((clocks[-1] - clocks[0]) - (ups[-1] - ups[0])) <= 2, 'the wall clock and uptime went apart'


def check_gaps(found, firsts, downtimes):
    """
    In the guest's own time no hop makes a jump in the counter that is longer than the hop's downtime.
    @firsts: the first number that each destination printed as a whole line; the line before it may be torn.

    A gap between two lines has more in it than the downtime: the guest's CPU is emulated, runs several things
    at once, and has to fault in all of its memory after it has arrived, which can be seconds.  In these the
    host's clock goes on as the guest's does.  So what the guest's clock gains on the host's is the jump, less
    the downtime.  A line may be printed long after its time was read; of several lines around the hop the
    pair that says least has been delayed least.
    """
    counts = [(when, float(text.split()[1])) for when, kind, text in found if kind == 'count']
    gained = []
    for first in firsts:
        gained.append(min((up - before) - (here - there)
                          for there, before in counts[max(first - 7, 0):first - 2]
                          for here, up in counts[first:first + 5]))
    gaps = sorted(up - before for (_, before), (_, up) in zip(counts, counts[1:]))
    print(f'gaps in the guest: median {gaps[len(gaps) // 2]:.2f} s, longest {gaps[-1]:.2f} s; gained at the '
          f'hops {[round(seconds, 2) for seconds in gained]}, downtimes {downtimes}')
    assert len(gained) == len(downtimes)
    for seconds, downtime in zip(gained, downtimes):
        jump = seconds + downtime
        assert jump <= downtime + CONSOLE_DELAY

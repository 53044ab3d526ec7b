# SPDX-License-Identifier: BSD-2-Clause
"""What all Python tests share: options, programs as fixtures, and VMs that never outlive their test."""
import os
import shutil
import subprocess
import sys
import tempfile

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(HERE)
sys.path.insert(0, os.path.join(HERE, 'functional'))

from godwit import deadline, guest, programs      # noqa: E402
from godwit.ram import HugeMemfd, HugePages, Ram      # noqa: E402
from godwit.routes import ROUTES          # noqa: E402
from godwit.vm import Vm, VmDied          # noqa: E402
from godwit.writer import make_writer     # noqa: E402


def pytest_addoption(parser):
    group = parser.getgroup('godwit')
    group.addoption('--build-dir', default=os.path.join(TOP, 'build'), help='where godwit was built')
    group.addoption('--prepare-peers',
                    action='store_true',
                    help='fetch QEMU 10.0 and 11.1 if they are not there')
    group.addoption('--rdma-all',
                    action='store_true',
                    help='all tests of tests/rdma, not only those of scripts/check')
    group.addoption('--rdma-address',
                    metavar='ADDRESS',
                    help="run tests/rdma here, over the RDMA device with this address, not in a box")
    group.addoption('--timeout-scale',
                    type=float,
                    default=1.0,
                    help='multiplies every time limit (sanitizers)')
    group.addoption('--seeds',
                    type=int,
                    default=3,
                    help='moments at which each kind of kill in test_multifd.py is tried (3)')


def pytest_configure(config):
    config.addinivalue_line('markers', 'quick: part of the subset that takes less than a minute')
    config.addinivalue_line('markers', 'thorough: of tests/rdma, with --rdma-all only')
    deadline.scale = config.getoption('--timeout-scale')


def pytest_generate_tests(metafunc):
    """A test with an argument called seed runs once for each of --seeds random moments."""
    if 'seed' in metafunc.fixturenames and not any(
            'seed' in marker.args[0] for marker in metafunc.definition.iter_markers('parametrize')):
        metafunc.parametrize('seed', range(metafunc.config.getoption('--seeds')))


def pytest_terminal_summary(terminalreporter):
    """Each reason for a skip once, with how many tests it cost."""
    reasons = {}
    for report in terminalreporter.stats.get('skipped', []):
        text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[text] = reasons.get(text, 0) + 1
    for text, count in reasons.items():
        terminalreporter.write_line(f'skipped {count}: {text.removeprefix("Skipped: ")}')


def program_or_skip(config, name):
    """The Program called @name, or a skip that says why."""
    try:
        if name == 'godwit':
            return programs.find_godwit(os.path.abspath(config.getoption('--build-dir')))
        return programs.find_peer(name, config.getoption('--prepare-peers'))
    except programs.Missing as reason:
        pytest.skip(str(reason))


@pytest.fixture
def find_program(pytestconfig):
    return lambda name: program_or_skip(pytestconfig, name)


@pytest.fixture
def godwit(pytestconfig):
    return program_or_skip(pytestconfig, 'godwit')


@pytest.fixture(scope='session')
def kernel(pytestconfig):
    """The test guest, for guest.options()."""
    try:
        return guest.image(os.path.abspath(pytestconfig.getoption('--build-dir')))
    except programs.Missing as reason:
        pytest.skip(str(reason))


@pytest.fixture
def fault_points(godwit):
    """The names of the fault points that godwit has; none in a build without fault injection."""
    text = subprocess.run([godwit.path, '-fault', 'help'], capture_output=True, text=True, timeout=30)
    return set(text.stdout.split())


@pytest.fixture
def faults(fault_points):
    if not fault_points:
        pytest.skip('built without fault injection')


@pytest.fixture
def folder():
    """A folder with a short path (socket names are limited), removed afterwards."""
    path = tempfile.mkdtemp(prefix='godwit-')
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def make_ram(folder):
    """make_ram(size, ...) -> Ram whose file is removed afterwards."""
    made = []

    def make(size, **kind):
        made.append(Ram(size, **kind))
        return made[-1]
    yield make
    for ram in made:
        ram.remove()


@pytest.fixture
def make_huge_ram():
    """
    make_huge_ram(size) -> HugeMemfd for which the kernel has the pages, else the test is skipped.  To be
    called for all VMs before the first one is made.
    """
    pages = HugePages()
    total = 0

    def make(size):
        nonlocal total
        total += size
        reason = pages.reserve(total)
        if reason:
            pytest.skip(reason)
        return HugeMemfd(size)
    yield make
    pages.give_back()


@pytest.fixture
def make_vm(folder):
    """make_vm(program, name, ...) -> Vm, killed and reaped afterwards; a VM that crashed fails the test."""
    made = []

    def make(program, name, connect=True, **arguments):
        vm = Vm(program, folder, name, **arguments)
        made.append(vm)
        return vm.connect() if connect else vm
    yield make
    crashed = []
    for vm in reversed(made):
        try:
            vm.reap()
        except VmDied as error:
            crashed.append(str(error))
    if crashed:
        pytest.fail('\n'.join(crashed))


@pytest.fixture
def make_route(folder):
    """make_route(kind, faults=None) -> Route, closed afterwards."""
    made = []

    def make(kind, faults=None):
        sub = os.path.join(folder, f'r{len(made)}')
        os.mkdir(sub)
        made.append(ROUTES[kind](sub, faults))
        return made[-1]
    yield make
    for route in made:
        route.close()


@pytest.fixture
def writer(find_program, make_vm, make_ram, folder):
    """writer(source, destination) -> (source VM, destination VM, function that makes the guest write)."""
    return make_writer(find_program, make_vm, make_ram, folder)

# SPDX-License-Identifier: BSD-2-Clause
"""
These tests run inside scripts/rdma-box, which has a soft-RoCE device.  Here, outside, one box is booted for
all of them that were asked for; it runs the same pytest, and its results are given out as if they had come
about here.

On a machine with a device of its own: --rdma-address ADDRESS, and no box.
"""
import glob
import json
import os
import subprocess
import sys
import threading

import pytest
from godwit import deadline
from godwit.rdma import DeviceCounters, Rdma, data_bytes

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
BOX = os.path.join(TOP, 'scripts', 'rdma-box')
MARK = '@@report '
# The box is emulated where there is no KVM.
SLOWNESS = 5


def is_here(config):
    return bool(config.getoption('--rdma-address'))


def is_mine(item):
    return str(item.path).startswith(HERE + os.sep)


def pytest_collection_modifyitems(config, items):
    """Without --rdma-all only what belongs to scripts/check."""
    if config.getoption('--rdma-all'):
        return
    thorough = [i for i in items if is_mine(i) and i.get_closest_marker('thorough')]
    if thorough:
        config.hook.pytest_deselected(items=thorough)
        items[:] = [i for i in items if i not in thorough]


# ---- outside ----

class Box:
    """A run of pytest in the box."""

    def __init__(self, session):
        self.config = session.config
        self.reports = {}           # node id -> its reports so far
        self.log = []
        self.changed = threading.Condition()
        self.ended = False
        self.process = subprocess.Popen(self.command(session), cwd=TOP, stdin=subprocess.DEVNULL, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, errors='replace')
        self.threads = [threading.Thread(target=work, daemon=True)
                        for work in (self.read_output, self.read_errors)]
        for thread in self.threads:
            thread.start()

    def command(self, session):
        everything = self.config.getoption('--rdma-all')
        build = os.path.abspath(self.config.getoption('--build-dir'))
        items = [item.nodeid for item in session.items if is_mine(item)]
        return [BOX, '--timeout', '5400' if everything else '1500', '--env', 'PYTHONDONTWRITEBYTECODE=1',
                '--env', 'PYTEST_DISABLE_PLUGIN_AUTOLOAD=1', '--', 'bash', '-c',
                'exec /usr/bin/python3 -m pytest -q --capture=sys -p no:cacheprovider '
                '--rdma-address "$BOX_ADDRESS" "$@"', 'pytest', '--build-dir', build, '--timeout-scale',
                str(SLOWNESS * self.config.getoption('--timeout-scale')),
                *(['--rdma-all'] if everything else []), *items]

    def read_output(self):
        for line in self.process.stdout:
            if line.startswith(MARK):
                report = self.config.hook.pytest_report_from_serializable(
                    config=self.config, data=json.loads(line[len(MARK):]))
                if report.skipped and isinstance(report.longrepr, list):
                    report.longrepr = tuple(report.longrepr)
                with self.changed:
                    self.reports.setdefault(report.nodeid, []).append(report)
                    self.changed.notify_all()
            else:
                self.log.append(line)
        self.process.wait()
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def read_errors(self):
        for line in self.process.stderr:
            self.log.append(line)

    def results(self, item):
        """The reports of @item: of its set-up, of the test, of its end."""
        def complete():
            return any(r.when == 'teardown' for r in self.reports.get(item.nodeid, []))
        with self.changed:
            self.changed.wait_for(lambda: complete() or self.ended)
            if complete():
                return self.reports[item.nodeid]
        for thread in self.threads:
            thread.join(10)
        return [self.verdict(item)]

    def verdict(self, item):
        """The box ended without a result for @item."""
        text = ''.join(self.log).strip()
        keywords = {name: 1 for name in item.keywords}
        if self.process.returncode == 125 and not self.reports:
            reason = next((line for line in self.log if line.startswith('rdma-box: ')), 'rdma-box: ?').strip()
            where = (str(item.path), 0, f'Skipped: no box to run in: {reason.removeprefix("rdma-box: ")}')
            return pytest.TestReport(item.nodeid, item.location, keywords, 'skipped', where, 'setup')
        return pytest.TestReport(item.nodeid, item.location, keywords, 'failed',
                                 f'the box ended with status {self.process.returncode}:\n{text[-6000:]}',
                                 'call')

    def close(self):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait()


def pytest_runtest_protocol(item, nextitem):
    if not is_mine(item) or is_here(item.config):
        return None
    session = item.session
    if not hasattr(session, 'rdma_box'):
        session.rdma_box = Box(session)
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in session.rdma_box.results(item):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_sessionfinish(session):
    if hasattr(session, 'rdma_box'):
        session.rdma_box.close()


# ---- inside ----

class Reporter:
    """Writes each report for the pytest outside."""

    def __init__(self, config):
        self.config = config

    def pytest_runtest_logreport(self, report):
        data = self.config.hook.pytest_report_to_serializable(config=self.config, report=report)
        if report.failed:
            data['longrepr'] = report.longreprtext
        sys.__stdout__.write('\n' + MARK + json.dumps(data) + '\n')
        sys.__stdout__.flush()


def pytest_configure(config):
    if os.environ.get('BOX_ADDRESS') and is_here(config):
        config.pluginmanager.register(Reporter(config))


@pytest.fixture
def address(pytestconfig):
    return pytestconfig.getoption('--rdma-address')


@pytest.fixture
def carried():
    """carried(ram): the device has carried the data of @ram, once at least, since the test began."""
    counters = DeviceCounters()

    def check(ram, least=None):
        counters.assert_carried(data_bytes(ram) if least is None else least)
        return counters
    return check


@pytest.fixture
def make_rdma(address):
    """make_rdma() -> Rdma, a route to this machine's device."""
    return lambda **options: Rdma(**{'address': address, **options})


IPV6 = 'fd00:9::1'


@pytest.fixture
def ipv6_address():
    """A global address of the box; the device has it as a GID when it is no longer tentative."""
    device = os.environ.get('BOX_DEVICE')
    if not device:
        pytest.skip('only in the box, whose network may be changed')
    shown = subprocess.run(['ip', '-6', 'addr', 'show', 'dev', device], capture_output=True, text=True,
                           check=True)
    if IPV6 not in shown.stdout:
        subprocess.run(['ip', '-6', 'addr', 'add', f'{IPV6}/64', 'dev', device, 'nodad'], check=True)
    wanted = 'fd00:0009'
    deadline.poll(lambda: any(wanted in gid for gid in gids()), 10, 'the IPv6 address as a GID')
    return IPV6


def gids():
    for path in glob.glob('/sys/class/infiniband/*/ports/1/gids/*'):
        try:
            with open(path) as f:
                yield f.read()
        except OSError:
            pass

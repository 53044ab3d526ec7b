# SPDX-License-Identifier: BSD-2-Clause
"""
Every numbered fault point: whatever fails, wherever, one side has the guest, its memory is whole, and it can
be sent again.

A first, undisturbed run of each scenario tells which points each side passes, and how often.  Then each is
made to fail on its own, at its first, a middle and its last pass; with "kill" the process dies there.
"""
import os
import signal

import pytest
from godwit import workload
from godwit.deadline import Timeout
from godwit.qmp import QmpClosed, QmpError
from godwit.ram import MIB
from godwit.rdma import FakeVerbs, Rdma
from godwit.routes import ROUTES
from godwit.vm import VmDied

SIZE = 8 * MIB
MACHINE = workload.machine(rate='20M', working_set='4M', zero=20, compressible=20)

# Points that no scenario here passes, and where they are tested instead.
ELSEWHERE = {
    'memory-backend-prealloc': 'test_start_up_faults',
    'kvm-clear-dirty-log': 'test_kvm.py',
    'kvm-get-dirty-log': 'test_kvm.py',
    'kvm-get-msrs': 'test_kvm.py',
    'kvm-get-tsc': 'test_kvm.py',
    'kvm-harvest-rings': 'test_kvm.py',
    'kvm-ioctl': 'test_kvm.py',
    'kvm-log-start': 'test_kvm.py',
    'kvm-set-msrs': 'test_kvm.py',
    'virtio-blk-flush': 'test_virtio.py',
    'virtio-blk-lock': 'test_virtio.py',
}
SCENARIOS = {
    'tcp': {'kind': 'tcp', 'capabilities': ('return-path', 'xbzrle')},
    'multifd': {'kind': 'tcp', 'capabilities': ('return-path', 'multifd')},
    'fd': {'kind': 'fd', 'capabilities': ('return-path',)},
    'exec': {'kind': 'exec', 'capabilities': ()},
    'file': {'kind': 'file', 'capabilities': ()},
    'mapped-ram': {'kind': 'file', 'capabilities': ('mapped-ram',)},
    'mapped-ram-multifd': {'kind': 'file', 'capabilities': ('mapped-ram', 'multifd'),
                           'parameters': {'direct_io': True, 'x_file_fsync': True}},
    'mapped-ram-lazy': {'kind': 'file', 'capabilities': ('mapped-ram',),
                        'parameters': {'x_mapped_ram_lazy': True}},
    'rdma': {'kind': 'rdma', 'capabilities': ('return-path',)},
    'rdma-pin-all': {'kind': 'rdma', 'capabilities': ('rdma-pin-all',)},
}


class Lab:
    """Runs scenarios, with or without a fault."""

    def __init__(self, godwit, make_vm, make_ram, folder, build_dir):
        self.godwit, self.make_vm, self.make_ram, self.folder = godwit, make_vm, make_ram, folder
        self.build_dir = build_dir
        self.verbs = {}             # the last ones, by name of the VM
        self.count = 0

    def vm(self, kind, name, fault=None, incoming=None, trace=None):
        environment = {'GODWIT_FAULT': fault} if fault else {}
        if kind == 'rdma':          # over the fake verbs: no device is needed
            verbs = FakeVerbs(self.build_dir, self.folder, f'{name}{self.count}')
            environment.update(verbs.environment)
            self.verbs[name] = verbs
        options = ['-smp', '2']
        if trace:
            options += ['-trace', 'fault_pass', '-D', trace]
        vm = self.make_vm(self.godwit, f'{name}{self.count}', ram=self.make_ram(SIZE), incoming=incoming,
                          machine=MACHINE, environment=environment, options=options, connect=False)
        if fault and fault.endswith(':kill'):
            vm.expect_signal = signal.SIGKILL
        return vm

    def route(self, kind):
        if kind == 'rdma':
            return Rdma()
        sub = os.path.join(self.folder, f'route{self.count}')
        os.mkdir(sub)
        return ROUTES[kind](sub)

    def passes(self, scenario):
        """{side: {point: number of passes}} of an undisturbed run."""
        attempt = Attempt(self, scenario, trace=True)
        try:
            attempt.run()
            assert attempt.state == 'completed', attempt.story()
            attempt.judge()
            return {'src': counted(attempt.trace['src']), 'dst': counted(attempt.trace['dst'])}
        finally:
            attempt.close()


def counted(path):
    counts = {}
    with open(path) as f:
        for line in f:
            words = line.split()
            if 'fault_pass' in words:
                point = words[words.index('fault_pass') + 1]
                counts[point] = counts.get(point, 0) + 1
    return counts


class Attempt:
    """One migration, perhaps with a fault on one side, and the judgement of how it ended."""

    def __init__(self, lab, scenario, faults=None, trace=False):
        lab.count += 1
        self.lab = lab
        self.kind = SCENARIOS[scenario]['kind']
        self.capabilities = SCENARIOS[scenario]['capabilities']
        self.parameters = SCENARIOS[scenario].get('parameters', {})
        self.faults = faults or {}
        self.trace = {side: os.path.join(lab.folder, f'{side}{lab.count}.trace') if trace else None
                      for side in ('src', 'dst')}
        self.route = lab.route(self.kind)
        self.src = lab.vm(self.kind, 'src', self.faults.get('src'), trace=self.trace['src'])
        self.dst = lab.vm(self.kind, 'dst', self.faults.get('dst'), incoming='defer', trace=self.trace['dst'])
        self.state = None           # of the source's migration; None: it never began
        self.started = {'src': False, 'dst': False}

    def close(self):
        self.route.close()
        for side, vm in (('src', self.src), ('dst', self.dst)):
            if self.kind == 'rdma' and self.started[side] and not self.faults.get(side, '').endswith(':kill'):
                self.end(vm)
                self.lab.verbs[side].assert_clean()
            vm.reap()
            vm.ram.remove()

    @staticmethod
    def end(vm):
        """In order: a destination whose migration failed may be about to end by itself, with status 1."""
        try:
            vm.qmp.execute('quit')
        except QmpClosed:
            pass
        assert vm.wait_exit() in (0, 1)

    def story(self):
        return (f'{self.kind} {self.faults}: source {self.state}; '
                f'source says {self.src.stderr.strip()!r}, destination {self.dst.stderr.strip()!r}')

    # ---- what happens ----

    def run(self):
        for side, vm in (('src', self.src), ('dst', self.dst)):
            if not self.start(side, vm):
                return
        try:
            if not self.route.stored:
                self.route.listen(self.dst)
            self.route.connect(self.src)
        except (QmpError, QmpClosed, VmDied):
            pass                    # refused at once, or died in the command: judge() looks at what is left
        self.state = self.outcome()
        if self.route.stored and self.state == 'completed':
            try:
                self.route.load(self.dst)
            except (QmpError, QmpClosed):
                pass

    def start(self, side, vm):
        """A fault can keep a process from starting: it then ends with a status of its own."""
        try:
            vm.connect()
            if side == 'src':
                vm.set_parameters(max_bandwidth=0)
            self.configure(vm)
        except (VmDied, QmpClosed):
            status = vm.wait_exit()
            assert side in self.faults and (status == 1 or self.killed(side, status)), self.story()
            assert status < 0 or len(vm.stderr) > 10, f'{vm} ended without a word'
            return False
        self.started[side] = True
        return True

    def configure(self, vm):
        vm.set_capabilities(*self.capabilities)
        if self.parameters:
            vm.set_parameters(**self.parameters)

    def killed(self, side, status):
        return status == -signal.SIGKILL and self.faults.get(side, '').endswith(':kill')

    def outcome(self):
        try:
            state = self.src.migration_state()
            if state == 'none':
                return None
            return self.src.wait_migration()['status']
        except (QmpClosed, VmDied):
            status = self.src.wait_exit()
            assert self.killed('src', status), self.story()
            return 'killed'

    # ---- how it must have ended ----

    def judge(self):
        if not all(self.started.values()):
            return
        if self.state == 'completed':
            self.judge_completed()
        elif self.state == 'killed':
            self.arrived()          # in order, whichever way
        else:
            assert self.state in ('failed', None), self.story()
            # The destination first: it stays alone until the source has the guest again.
            assert not self.destination_runs() or self.last_word_lost(), f'both run: {self.story()}'
            self.source_has_the_guest()

    def last_word_lost(self):
        """The destination has said that it has the guest, and the source could not read it."""
        return self.faults.get('src', '').startswith(('channel-read:', 'return-path-read:')) and \
            'return-path' in self.capabilities

    def judge_completed(self):
        assert self.src.run_state == 'postmigrate', self.story()
        if self.arrived():
            self.dst.wait_run_state('running')
            workload.wait_written(self.dst, 10)
            workload.assert_verified(self.dst)
            return
        # Without a return path the source cannot know.
        assert 'return-path' not in self.capabilities, f'guest lost: {self.story()}'
        assert 'dst' in self.faults, self.story()
        if self.route.stored:
            self.load_again()
        else:
            self.src.call('cont')
            workload.wait_written(self.src, 10)
            workload.assert_verified(self.src)

    def arrived(self):
        """Did the destination complete?  Where not, it must have ended in order."""
        try:
            state = self.dst.migration_state()
            if state == 'none' or (state == 'setup' and self.state == 'killed'):
                return False
            return self.dst.wait_migration('completed', 'failed')['status'] == 'completed'
        except (QmpClosed, VmDied):
            status = self.dst.wait_exit()
            assert status == 1 or self.killed('dst', status), self.story()
            return False

    def destination_runs(self):
        try:
            return self.dst.run_state == 'running'
        except (QmpClosed, VmDied):
            return False

    def source_has_the_guest(self):
        if self.state == 'failed':
            assert len(self.src.migration().get('error-desc', '')) > 10, self.story()
        self.src.wait_run_state('running')
        workload.wait_written(self.src, 10)
        workload.assert_verified(self.src)
        self.send_again()

    def send_again(self):
        """A second attempt, to a good destination."""
        self.lab.count += 1
        route = self.lab.route(self.kind)
        good = self.lab.vm(self.kind, 'good', incoming='defer').connect()
        try:
            self.configure(good)
            if route.stored:
                route.connect(self.src)
                self.src.wait_migration('completed')
                route.load(good)
            else:
                route.listen(good)
                route.connect(self.src)
                self.src.wait_migration('completed')
            self.guest_is_at(good)
        finally:
            route.close()
            good.reap()
            good.ram.remove()

    def load_again(self):
        """What was saved can be loaded by another."""
        good = self.lab.vm(self.kind, 'good', incoming='defer').connect()
        try:
            self.configure(good)
            self.route.load(good)
            self.guest_is_at(good)
        finally:
            good.reap()
            good.ram.remove()

    @staticmethod
    def guest_is_at(vm):
        vm.wait_migration('completed')
        vm.wait_run_state('running')
        workload.wait_written(vm, 10)
        workload.assert_verified(vm)


@pytest.fixture
def lab(pytestconfig, godwit, make_vm, make_ram, folder):
    return Lab(godwit, make_vm, make_ram, folder, os.path.abspath(pytestconfig.getoption('--build-dir')))


def chosen_passes(count):
    return sorted({1, (count + 1) // 2, count})


# Points that some scenario has passed in this session; test_every_point_is_reached looks at it last.
reached = {}


def run_faults(lab, scenario, side, action):
    passes = lab.passes(scenario)
    reached.setdefault(scenario, set()).update(passes['src'], passes['dst'])
    complaints = []
    for point, count in sorted(passes[side].items()):
        for number in chosen_passes(count) if action == 'error' else sorted({1, count}):
            attempt = Attempt(lab, scenario, {side: f'{point}:{number}:{action}'})
            try:
                attempt.run()
                attempt.judge()
            except (AssertionError, Timeout, QmpError, QmpClosed, VmDied) as error:
                complaints.append(f'{side} {point}:{number}:{action}: {error}')
            finally:
                try:
                    attempt.close()
                except (AssertionError, VmDied) as error:
                    complaints.append(f'{side} {point}:{number}:{action}: {error}')
    assert not complaints, '\n'.join(complaints)


@pytest.mark.parametrize('scenario', SCENARIOS)
@pytest.mark.parametrize('side', ('src', 'dst'))
def test_error(side, scenario, lab):
    run_faults(lab, scenario, side, 'error')


@pytest.mark.parametrize('scenario', ('tcp', 'rdma'))
@pytest.mark.parametrize('side', ('src', 'dst'))
def test_kill(side, scenario, lab):
    run_faults(lab, scenario, side, 'kill')


def test_every_point_is_reached(fault_points):
    if set(reached) != set(SCENARIOS):
        pytest.skip('the other tests of this file were not all run')
    passed = set().union(*reached.values())
    assert fault_points
    assert fault_points - passed - set(ELSEWHERE) == set(), 'no scenario passes these points'
    assert set(ELSEWHERE) <= fault_points and not passed & set(ELSEWHERE), 'ELSEWHERE is out of date'


@pytest.mark.parametrize('point', ('memory-backend-map', 'memory-backend-prealloc'))
def test_start_up_faults(point, godwit, make_vm, make_ram):
    ram = make_ram(SIZE, properties='prealloc=on')
    vm = make_vm(godwit, 'vm', ram=ram, environment={'GODWIT_FAULT': f'{point}:1'}, connect=False)
    assert vm.wait_exit() == 1
    assert len(vm.stderr) > 10


@pytest.mark.quick
def test_guest_that_cannot_be_started_again(lab):
    """The migration fails, and so does letting the guest run: it is paused then, and `cont` mends that."""
    attempt = Attempt(lab, 'tcp', {'src': 'ram-complete:1,machine-start:2'})
    try:
        attempt.run()
        assert attempt.state == 'failed'
        assert attempt.src.run_state not in ('running', 'postmigrate')
        attempt.src.call('cont')
        workload.wait_written(attempt.src, 10)
        workload.assert_verified(attempt.src)
    finally:
        attempt.close()


@pytest.mark.quick
def test_unknown_fault_is_refused(godwit, make_vm):
    vm = make_vm(godwit, 'vm', environment={'GODWIT_FAULT': 'ram-send:0'}, connect=False)
    assert vm.wait_exit() == 1
    assert 'GODWIT_FAULT' in vm.stderr

# SPDX-License-Identifier: BSD-2-Clause
"""
Real guests on KVM, machine pico: the test guest migrates over each transport, with each way of logging dirty
pages, and finds every page, register and byte in order.
"""
import os
import re
import subprocess
import time

import pytest
from godwit import guest, verifier
from godwit.deadline import poll
from godwit.ram import MIB
from godwit.rdma import FakeVerbs, Rdma
from godwit.relay import Faults, connect_unix
from godwit.routes import perform

LIGHT = {'set': 200, 'nap': 20000}


@pytest.fixture
def make_guest(godwit, make_vm, kernel):
    """make_guest(name, mode, incoming=None, cpus=1, machine='pico', more=(), **options) -> Vm."""
    def make(name, mode, incoming=None, machine='pico', more=(), environment=None, **options):
        return make_vm(godwit, name, incoming=incoming, machine=machine, environment=environment,
                       options=guest.options(kernel, mode, **options) + list(more))
    return make


@pytest.fixture
def make_pair(make_guest):
    """A guest that runs, and a destination that waits for it; capabilities set on both."""
    def make(mode, capabilities=('return-path',), cpus=1, **options):
        src = make_guest('src', mode, cpus=cpus, **options)
        dst = make_guest('dst', mode, incoming='defer', cpus=cpus, **options)
        for vm in (src, dst):
            vm.set_capabilities(*capabilities)
        src.set_parameters(max_bandwidth=0, downtime_limit=1000)
        guest.wait_steps(src, 20, cpus)
        return src, dst
    return make


def assert_moved(src, dst, cpus=1, sweeps=1):
    """The guest is at @dst, goes on from where it was, and finds all in order."""
    there = guest.check(src, cpus)
    dst.wait_run_state('running')
    here = guest.wait_sweeps(dst, sweeps, cpus)
    assert here.ticks >= there.ticks
    for now, then in zip(here.cpus, there.cpus):
        assert now['steps'] > then['steps'] and now['pages'] == then['pages']
    # At the source it stands still.
    assert guest.check(src, cpus).cpus == there.cpus and src.run_state == 'postmigrate'
    return here


# ---- it runs ----

@pytest.mark.quick
def test_query(make_guest):
    vm = make_guest('vm', 'stamp', **LIGHT)
    assert vm.call('query-kvm') == {'enabled': True, 'present': True}
    assert vm.call('query-accelerators') == {'enabled': 'kvm', 'present': ['kvm']}


@pytest.mark.quick
@pytest.mark.parametrize('status', (0, 3, 100))
def test_debug_exit(status, godwit, kernel):
    words = guest.options(kernel, 'exit', status=status) + ['-nodefaults', '-display', 'none']
    result = subprocess.run([godwit.path, '-M', 'pico'] + words, capture_output=True, text=True, timeout=30)
    assert (result.returncode, result.stdout, result.stderr) == (2 * status + 1, '', '')


@pytest.mark.quick
@pytest.mark.parametrize('cpus', (1, 2, 4))
def test_stop_and_continue(cpus, make_guest):
    vm = make_guest('vm', 'stamp', cpus=cpus, pattern='random', **LIGHT)
    for _ in range(5):
        guest.wait_steps(vm, 10, cpus)
        vm.call('stop')
        before = guest.check(vm, cpus)
        time.sleep(0.05)
        after = guest.check(vm, cpus)
        assert after.cpus == before.cpus and after.ticks == before.ticks
        vm.call('cont')
    guest.wait_steps(vm, 10, cpus)


def test_reset(godwit, make_vm, make_ram, kernel):
    """A guest that begins anew counts its steps from 0; before, from where nobody gets by counting."""
    ram = make_ram(16 * MIB)
    vm = make_vm(godwit, 'vm', ram=ram, machine='pico',
                 options=guest.options(kernel, 'toggle', cpus=2, **LIGHT))
    far = 1 << 60

    def steps():
        return guest.report(vm, 2).cpus[0]['steps']
    for _ in range(3):
        guest.wait_steps(vm, 500, 2)
        vm.call('stop')
        ram.write(guest.REPORT + guest.HEAD_WORDS * 8, far.to_bytes(8, 'little'))
        vm.call('cont')
        poll(lambda: steps() > far, 60, 'the guest counts on')
        vm.call('system_reset')
        poll(lambda: 0 < steps() < far, 60, 'the guest begins anew')
        guest.wait_steps(vm, 10, 2)


def test_throttle(make_guest):
    """Half-speed is slower; the guest's own clock of steps says by how much."""
    vm = make_guest('vm', 'stamp', pattern='random')
    guest.wait_steps(vm, 50)

    def steps_per_second():
        before = guest.check(vm).cpus[0]['steps']
        start = time.monotonic()
        time.sleep(1)
        return (guest.check(vm).cpus[0]['steps'] - before) / (time.monotonic() - start)
    free = max(steps_per_second() for _ in range(3))    # others may use the machine
    vm.set_capabilities('auto-converge')
    vm.set_parameters(max_bandwidth=1 << 16, cpu_throttle_initial=90, cpu_throttle_increment=9,
                      throttle_trigger_threshold=1)
    vm.call('migrate', uri='exec:cat > /dev/null')
    poll(lambda: vm.migration().get('cpu-throttle-percentage', 0) >= 90, 60, 'the guest is throttled')
    poll(lambda: steps_per_second() < free / 2, 60, 'the guest is slower')
    vm.call('migrate_cancel')


# ---- it migrates ----

def several_rounds(src):
    """Or the end: zeros travel fast."""
    def attempt():
        info = src.migration()
        return info.get('ram', {}).get('dirty-sync-count', 0) >= 4 or info['status'] == 'completed'
    poll(attempt, 60, 'several rounds')


@pytest.mark.quick
@pytest.mark.parametrize('mode', ('stamp', 'toggle', 'regs'))
def test_tcp(mode, make_pair, make_route):
    src, dst = make_pair(mode, cpus=2, **LIGHT)
    at_source, at_destination = perform(src, dst, make_route('tcp'))
    assert_moved(src, dst, 2)
    # Where the downtime went, of both sides: all of it.
    there, here = at_source['x-downtime'], at_destination['x-downtime']
    assert set(there) == {'stop', 'sync', 'transfer', 'device-state', 'hand-over', 'total'}
    assert set(here) == {'receive', 'load', 'start', 'total'}
    for phases in (there, here):
        assert sum(phases.values()) == 2 * phases['total']
    assert there['total'] // 1000 == at_source['downtime']


@pytest.mark.parametrize('cpus', (1, 2, 4))
@pytest.mark.parametrize('pattern', ('sequential', 'random', 'hot', 'fill'))
def test_patterns(pattern, cpus, make_pair, make_route):
    src, dst = make_pair('stamp', cpus=cpus, pattern=pattern, **LIGHT)
    perform(src, dst, make_route('unix'))
    assert_moved(src, dst, cpus)


@pytest.mark.parametrize('kind', ('unix', 'fd', 'exec', 'file', 'exec-file'))
def test_routes(kind, make_pair, make_route):
    route = make_route(kind)
    capabilities = ('return-path',) if route.bidirectional else ()
    src, dst = make_pair('stamp', capabilities, cpus=2, pattern='random', **LIGHT)
    perform(src, dst, route)
    assert_moved(src, dst, 2)


@pytest.mark.parametrize('cpus', (1, 4))
@pytest.mark.parametrize('mode', ('stamp', 'toggle'))
def test_multifd(mode, cpus, make_pair, make_route):
    src, dst = make_pair(mode, ('return-path', 'multifd'), cpus=cpus, **LIGHT)
    for vm in (src, dst):
        vm.set_parameters(multifd_channels=3)
    perform(src, dst, make_route('tcp'))
    assert_moved(src, dst, cpus)


@pytest.mark.parametrize('cpus', (1, 2, 4))
def test_rdma(cpus, make_guest, folder, pytestconfig):
    """Over the fake verbs; tests/kvm has a device."""
    verbs = [FakeVerbs(os.path.abspath(pytestconfig.getoption('--build-dir')), folder, name)
             for name in ('src', 'dst')]
    if not os.path.exists(verbs[0].library):
        pytest.skip('the build has no RDMA')
    src, dst = [make_guest(name, 'stamp', incoming=incoming, cpus=cpus, pattern='random',
                           environment=each.environment, **LIGHT)
                for name, incoming, each in zip(('src', 'dst'), (None, 'defer'), verbs)]
    for vm in (src, dst):
        vm.set_capabilities('return-path')
    src.set_parameters(max_bandwidth=0, downtime_limit=1000)
    guest.wait_steps(src, 20, cpus)
    perform(src, dst, Rdma())
    assert_moved(src, dst, cpus)
    for vm, each in zip((src, dst), verbs):
        vm.quit()
        each.assert_clean()


@pytest.mark.parametrize('mode', ('stamp', 'toggle', 'regs'))
def test_mapped_ram(mode, make_pair, make_route):
    src, dst = make_pair(mode, ('mapped-ram',), cpus=2, **LIGHT)
    perform(src, dst, make_route('file'))
    assert_moved(src, dst, 2)


@pytest.mark.parametrize('mode', ('stamp', 'toggle'))
def test_under_load(mode, make_pair, make_route):
    """All pages, as fast as the guest can, through a narrow channel: several rounds before it is let go."""
    src, dst = make_pair(mode, cpus=2, pattern='random', memory=32)
    src.set_parameters(max_bandwidth=20 * MIB, downtime_limit=1)
    route = make_route('unix')
    route.listen(dst)
    route.connect(src)
    several_rounds(src)
    src.set_parameters(max_bandwidth=0, downtime_limit=20000)
    src.wait_migration('completed')
    dst.wait_migration('completed')
    assert_moved(src, dst, 2)


def test_stream(make_pair, make_route):
    """What is on the wire is in order, and its sections are those of docs/kvm.md."""
    route = make_route('unix', Faults(record=True))
    src, dst = make_pair('stamp', cpus=2, **LIGHT)
    perform(src, dst, route)
    assert_moved(src, dst, 2)
    verifier.assert_good(route.captured(), capabilities={'return-path'}, machine='pico')


@pytest.mark.parametrize('mode', ('stamp', 'regs'))
def test_chain(mode, make_guest, make_route):
    """A to B to C to D."""
    vm = make_guest('vm0', mode, cpus=2, **LIGHT)
    for number in range(1, 4):
        guest.wait_steps(vm, 10, 2)
        following = make_guest(f'vm{number}', mode, incoming='defer', cpus=2, **LIGHT)
        for each in (vm, following):
            each.set_capabilities('return-path')
        vm.set_parameters(max_bandwidth=0)
        perform(vm, following, make_route('unix'))
        assert_moved(vm, following, 2)
        vm = following


def test_many_in_a_row(make_guest, make_route):
    """GODWIT_KVM_MIGRATIONS says how many, 50 if nobody does."""
    cpus, count = 2, int(os.environ.get('GODWIT_KVM_MIGRATIONS', '50'))
    vm = make_guest('vm0', 'stamp', cpus=cpus, pattern='random', **LIGHT)
    guest.wait_steps(vm, 10, cpus)
    for number in range(1, count + 1):
        following = make_guest(f'vm{number}', 'stamp', incoming='defer', cpus=cpus, pattern='random', **LIGHT)
        for each in (vm, following):
            each.set_capabilities('return-path')
        vm.set_parameters(max_bandwidth=0, downtime_limit=2000)
        perform(vm, following, make_route('unix'))
        guest.wait_steps(following, 5, cpus)
        vm.quit()
        vm.reap()
        vm = following
    guest.wait_sweeps(vm, 2, cpus)


def test_cancel_and_again(make_pair, make_route, make_guest):
    src, dst = make_pair('stamp', cpus=2, pattern='random')
    src.set_parameters(max_bandwidth=MIB, downtime_limit=1)
    route = make_route('unix')
    route.listen(dst)
    route.connect(src)
    poll(lambda: src.migration().get('ram', {}).get('transferred', 0) > MIB, 60, 'it is under way')
    src.call('migrate_cancel')
    src.wait_migration('cancelled')
    guest.wait_sweeps(src, 1, 2)
    src.set_parameters(max_bandwidth=0, downtime_limit=20000)
    again = make_guest('again', 'stamp', incoming='defer', cpus=2, pattern='random')
    again.set_capabilities('return-path')
    perform(src, again, make_route('unix'))
    assert_moved(src, again, 2)


# ---- how dirty pages are logged ----

LOGS = {'manual': 'kvm', 'get': 'kvm,manual-dirty-log=off', 'ring': 'kvm,dirty-ring-size=4096'}


@pytest.mark.parametrize('log', LOGS)
@pytest.mark.parametrize('slot_pages', (None, 1001, 4096))
@pytest.mark.parametrize('mode', ('stamp', 'toggle'))
def test_dirty_log(mode, slot_pages, log, make_pair, make_route):
    """Slots of 1001 pages begin at every place in a word of bits."""
    machine = 'pico' if slot_pages is None else f'pico,x-slot-pages={slot_pages}'
    try:
        src, dst = make_pair(mode, cpus=2, pattern='random', machine=machine, accel=LOGS[log], memory=24)
    except Exception as error:      # the processes end at once
        if 'has no dirty rings' in str(error):
            pytest.skip('this host\'s KVM has no dirty rings')
        raise
    src.set_parameters(max_bandwidth=30 * MIB, downtime_limit=1)
    route = make_route('unix')
    route.listen(dst)
    route.connect(src)
    several_rounds(src)
    src.set_parameters(max_bandwidth=0, downtime_limit=20000)
    src.wait_migration('completed')
    dst.wait_migration('completed')
    assert_moved(src, dst, 2)


def test_requests_are_few(make_pair, make_route):
    """One clear for a chunk, not for a run of pages: 24 MiB are one chunk, two slots are two requests."""
    src, dst = make_pair('stamp', cpus=1, pattern='random', machine='pico,x-slot-pages=3001', memory=23,
                         set=300, nap=20000)
    perform(src, dst, make_route('unix'))
    info = src.migration()
    log = next(entry for entry in info['x-dirty-log'] if entry['name'] == 'kvm')
    syncs = info['ram']['dirty-sync-count'] + 1
    assert log['clear-calls'] <= syncs
    assert log['requests'] <= 2 * log['clear-calls'] + 2 * log['sync-calls']
    assert_moved(src, dst)


# ---- what does not fit is refused, and the guest runs on ----

def assert_refused(src, dst, route, text, cpus=1):
    route.listen(dst)
    route.connect(src)
    src.wait_migration('failed')
    assert dst.incoming_verdict() == 'failed'
    assert text in dst.stderr
    assert src.run_state == 'running'
    assert 'STOP' not in [event.name for event in src.qmp.pending_events()], 'the guest was stopped'
    guest.wait_sweeps(src, 1, cpus)


def test_feature_missing(make_guest, make_route, faults):
    # Almost nothing to send: the source could stop the guest long before the refusal comes.
    src = make_guest('src', 'regs')
    dst = make_guest('dst', 'regs', incoming='defer', more=['-cpu', 'host,-cx16'],
                     environment={'GODWIT_FAULT': 'loadvm-element:1:delay=300'})
    guest.wait_steps(src, 5)
    src.set_parameters(max_bandwidth=0, downtime_limit=2000)
    for vm in (src, dst):
        vm.set_capabilities('return-path')
    assert_refused(src, dst, make_route('unix'), 'the guest was shown the CPU feature cx16')
    # The other way round all is well.
    fewer = make_guest('fewer', 'stamp', pattern='random', more=['-cpu', 'host,-cx16'], **LIGHT)
    more = make_guest('more', 'stamp', incoming='defer', **LIGHT)
    guest.wait_steps(fewer, 5)
    for vm in (fewer, more):
        vm.set_capabilities('return-path')
    fewer.set_parameters(max_bandwidth=0)
    perform(fewer, more, make_route('unix'))
    assert_moved(fewer, more)


def test_other_number_of_cpus(make_guest, make_route):
    src = make_guest('src', 'stamp', cpus=2, pattern='random')
    dst = make_guest('dst', 'stamp', incoming='defer', cpus=1)
    guest.wait_steps(src, 5, 2)
    for vm in (src, dst):
        vm.set_capabilities('return-path')
    assert_refused(src, dst, make_route('unix'), 'the guest has 2 vCPUs, this machine has 1', 2)


# Fault points of accel/kvm that a migration passes, and at which side.
FAULTS = [('src', 'kvm-log-start', 'kvm'), ('src', 'kvm-get-dirty-log', 'kvm'),
          ('src', 'kvm-clear-dirty-log', 'kvm'), ('src', 'kvm-get-msrs', 'kvm'),
          ('src', 'kvm-harvest-rings', LOGS['ring']), ('dst', 'kvm-set-msrs', 'kvm'),
          ('src', 'kvm-get-tsc', 'kvm')]


@pytest.mark.parametrize('side,point,accel', FAULTS, ids=[fault[1] for fault in FAULTS])
def test_fault(side, point, accel, make_guest, make_route, faults):
    """A failing ioctl fails the migration, the guest runs on, and a second attempt succeeds."""
    # The MSRs are read once for each vCPU when the machine is made.
    number = {'kvm-get-msrs': 3, 'kvm-get-tsc': 2, 'kvm-get-dirty-log': 2,
              'kvm-harvest-rings': 2}.get(point, 1)
    vms = {}
    for name in ('src', 'dst'):
        environment = {'GODWIT_FAULT': f'{point}:{number}'} if name == side else None
        vms[name] = make_guest(name, 'stamp', incoming='defer' if name == 'dst' else None, cpus=2,
                               accel=accel, pattern='random', environment=environment, **LIGHT)
        vms[name].set_capabilities('return-path')
    src, dst = vms['src'], vms['dst']
    src.set_parameters(max_bandwidth=0, downtime_limit=2000)
    guest.wait_steps(src, 5, 2)
    route = make_route('unix')
    route.listen(dst)
    route.connect(src)
    assert src.wait_migration('failed')['error-desc']
    src.wait_run_state('running')
    guest.wait_sweeps(src, 1, 2)
    good = make_guest('good', 'stamp', incoming='defer', cpus=2, accel=accel, pattern='random', **LIGHT)
    good.set_capabilities('return-path')
    perform(src, good, make_route('unix'))
    assert_moved(src, good, 2)


def count_ioctls(trace):
    with open(trace) as f:
        return sum('kvm-ioctl' in line.split() for line in f)


@pytest.mark.parametrize('side', ('src', 'dst'))
def test_each_ioctl(side, make_guest, make_route, faults, folder):
    """Each request that saves or loads a vCPU or a chip fails once: the guest runs on and can be moved."""
    src = make_guest('src', 'stamp', pattern='random', **LIGHT)
    src.set_capabilities('return-path')
    src.set_parameters(max_bandwidth=0, downtime_limit=2000)
    guest.wait_steps(src, 5)

    def make(name, incoming=None, fault=None):
        vm = make_guest(name, 'stamp', incoming=incoming, pattern='random',
                        environment={'GODWIT_FAULT': fault} if fault else None,
                        more=['-trace', 'fault_pass', '-D', os.path.join(folder, f'{name}.trace')], **LIGHT)
        vm.set_capabilities('return-path')
        vm.set_parameters(max_bandwidth=0, downtime_limit=2000)
        return vm
    traced = {'src': make('a'), 'dst': make('b', 'defer')}
    guest.wait_steps(traced['src'], 5)
    trace = os.path.join(folder, 'a.trace' if side == 'src' else 'b.trace')
    first = count_ioctls(trace) + 1
    perform(traced['src'], traced['dst'], make_route('unix'))
    last = count_ioctls(trace)
    assert last - first + 1 >= 13   # 8 structures of a vCPU (MSRs and counter are apart), 4 chips, a clock
    for number in range(first, last + 1):
        if side == 'src':
            src.quit()
            src = make(f'src{number}', None, f'kvm-ioctl:{number}')
            guest.wait_steps(src, 5)
        dst = make(f'dst{number}', 'defer', f'kvm-ioctl:{number}' if side == 'dst' else None)
        route = make_route('unix')
        route.listen(dst)
        route.connect(src)
        poll(lambda: src.migration().get('status') in ('failed', 'completed'), 60, 'the end')
        if src.migration()['status'] == 'completed':
            # The clock is set once more when the guest goes on: that is no reason to stop it.
            assert side == 'dst' and number == last and 'kvm-ioctl' in dst.stderr
            guest.wait_sweeps(dst, 1)
            return
        src.wait_run_state('running')
        guest.wait_steps(src, 5)
        dst.wait_exit()
    good = make('good', 'defer')
    perform(src, good, make_route('unix'))
    guest.wait_sweeps(good, 1)


def test_start_up_fault(godwit, kernel, faults):
    """Whatever the kernel refuses when the machine is made ends the program with a message."""
    words = guest.options(kernel, 'exit', status=1, cpus=2) + ['-nodefaults', '-display', 'none', '-monitor',
                                                               'none']
    number = 0
    while True:
        number += 1
        result = subprocess.run([godwit.path, '-M', 'pico', '-fault', f'kvm-ioctl:{number}'] + words,
                                capture_output=True, text=True, timeout=30)
        if result.returncode == 3:
            break               # so many there were
        assert result.returncode == 1 and 'kvm-ioctl' in result.stderr
    assert number > 30


# ---- the serial port ----

def test_serial_output(make_guest, make_route, folder):
    """What the two processes print is one sequence: no number lost or repeated, no line torn."""
    files = [os.path.join(folder, name) for name in ('src.out', 'dst.out', 'end.out')]
    vms = [make_guest(f'vm{n}', 'serial', incoming='defer' if n else None, more=['-serial', f'file:{file}'])
           for n, file in enumerate(files)]
    for vm in vms:
        vm.set_capabilities('return-path')
        vm.set_parameters(max_bandwidth=0)
    for src, dst in zip(vms, vms[1:]):
        guest.wait_steps(src, 200)
        perform(src, dst, make_route('unix'))
    guest.wait_steps(vms[-1], 200)
    for vm in vms:
        vm.quit()
    text = b''
    for file in files:
        with open(file, 'rb') as f:
            part = f.read()
        assert part
        text += part
    numbers = [int(line) for line in text.splitlines()[:-1]]
    assert numbers == list(range(len(numbers))) and len(numbers) > 600


def test_serial_input(make_guest, make_route, folder):
    """Bytes that wait in the port travel with the guest, and none comes twice."""
    logs = [os.path.join(folder, f'{name}.log') for name in ('src', 'dst')]
    sockets = [os.path.join(folder, f'{name}.tty') for name in ('src', 'dst')]
    chardevs = [['-serial', f'unix:{sockets[0]},server=on,wait=off,logfile={logs[0]}'],
                ['-chardev', f'socket,id=tty,path={sockets[1]},server=on,wait=off,logfile={logs[1]}',
                 '-serial', 'chardev:tty']]
    src = make_guest('src', 'serial', more=chardevs[0], nap=5000)
    dst = make_guest('dst', 'serial', incoming='defer', more=chardevs[1], nap=5000)
    for vm in (src, dst):
        vm.set_capabilities('return-path')
    guest.wait_steps(src, 5)
    sent = b'0123456789abcdefghijklmnopqrstuvwxyz' * 20
    peer = connect_unix(sockets[0])
    src.call('stop')
    peer.sendall(sent)
    time.sleep(0.5)
    src.set_parameters(max_bandwidth=0)
    perform(src, dst, make_route('unix'))
    dst.call('cont')

    def echoed():
        text = b''
        for log in logs:
            with open(log, 'rb') as f:
                text += f.read()
        return b''.join(re.findall(rb'\[(.)\]', text))
    poll(lambda: len(echoed()) >= len(sent), 60, 'all bytes come back')
    peer.close()
    assert echoed() == sent

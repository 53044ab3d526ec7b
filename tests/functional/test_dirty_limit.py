# SPDX-License-Identifier: BSD-2-Clause
"""
Limits on how fast vCPUs dirty memory: set by hand and by capability dirty-limit, on KVM with dirty rings; and
what is said where they cannot be set.
"""
import time

import pytest
from godwit import guest
from godwit.deadline import poll
from godwit.ram import MIB

PAGES_PER_MB = 256
NEEDS_RING = "dirty page limit feature requires KVM with accelerator property 'dirty-ring-size' set'"
CAPABILITY_NEEDS_RING = "dirty-limit requires KVM with accelerator property 'dirty-ring-size' set"
CONFLICT = 'dirty-limit conflicts with auto-converge either of then available currently'
WHILE_MIGRATING = "can't {} dirty page rate limit while migration is running"
BAD_INDEX = 'incorrect cpu index specified'


@pytest.fixture
def make_guest(godwit, make_vm, kernel):
    """make_guest(name, mode, ring=1024, incoming=None, cpus=1, **options) -> Vm on KVM; ring 0: bitmaps."""
    def make(name, mode, ring=1024, incoming=None, **options):
        accel = f'kvm,dirty-ring-size={ring}'
        try:
            return make_vm(godwit, name, incoming=incoming, machine='pico',
                           options=guest.options(kernel, mode, accel=accel, **options))
        except Exception as error:      # the process ends at once
            if 'has no dirty rings' in str(error):
                pytest.skip('this host\'s KVM has no dirty rings')
            raise
    return make


def limits(vm):
    """{vCPU: (limit, current rate)}"""
    return {entry['cpu-index']: (entry['limit-rate'], entry['current-rate'])
            for entry in vm.call('query-vcpu-dirty-limit')}


def refused(vm, text, command, **arguments):
    assert vm.try_call(command, **arguments) == text


def guest_rates(vm, cpus, seconds=2):
    """MB/s that each processor has written, by the guest's own count."""
    before, start = guest.check(vm, cpus), time.monotonic()
    time.sleep(seconds)
    after, took = guest.check(vm, cpus), time.monotonic() - start
    return [(now['written'] - then['written']) / PAGES_PER_MB / took
            for now, then in zip(after.cpus, before.cpus)]


def wait_rate(vm, cpus, lowest, highest):
    """Until each of the vCPUs @cpus has dirtied between @lowest and @highest MB/s in two looks in a row."""
    seen = []

    def attempt():
        now = limits(vm)
        seen.append(all(lowest <= now[cpu][1] <= highest for cpu in cpus))
        return len(seen) >= 2 and seen[-1] and seen[-2]
    poll(attempt, 60, f'{vm}: between {lowest} and {highest} MB/s', interval=1.1)


# ---- set by hand ----

@pytest.mark.parametrize('ring,mode', ((256, 'stamp'), (4096, 'toggle'), (65536, 'stamp')))
def test_limit(ring, mode, make_guest):
    """Rings of 1, 16 and 256 MiB: the limit is kept, lowered, raised and taken away."""
    vm = make_guest('vm', mode, ring=ring, cpus=2, memory=64, pattern='random')
    guest.wait_steps(vm, 50, 2)
    vm.call('set-vcpu-dirty-limit', dirty_rate=4)
    assert sorted(limits(vm)) == [0, 1]
    wait_rate(vm, (0, 1), 3, 5)
    # vCPU 0 also serves the guest's timer; each interrupt writes to memory, which counts, but not as stamps.
    # Never faster; as fast when the machine lets it.
    def keeps_up():
        rates = guest_rates(vm, 2, 4)
        assert rates[0] < 6 and rates[1] < 6
        return rates[1] > 2
    poll(keeps_up, 60, 'the vCPU is as fast as its limit')
    vm.call('set-vcpu-dirty-limit', dirty_rate=2, cpu_index=1)
    wait_rate(vm, (1,), 1, 3)
    assert {cpu: limit for cpu, (limit, _) in limits(vm).items()} == {0: 4, 1: 2}
    assert guest_rates(vm, 2, 4)[1] < 3
    vm.call('set-vcpu-dirty-limit', dirty_rate=8, cpu_index=1)
    poll(lambda: limits(vm)[1][1] >= 6, 60, 'the vCPU is faster')
    vm.call('cancel-vcpu-dirty-limit', cpu_index=1)
    assert sorted(limits(vm)) == [0]
    poll(lambda: guest_rates(vm, 2, 1)[1] > 9, 60, 'the vCPU runs freely')
    vm.call('set-vcpu-dirty-limit', dirty_rate=0)
    assert limits(vm) == {}
    guest.check(vm, 2)


@pytest.mark.quick
def test_stop_does_not_wait(make_guest):
    """A vCPU that sleeps for its limit stops at once, stands still, and goes on."""
    vm = make_guest('vm', 'toggle', ring=65536, cpus=2, memory=64)
    guest.wait_steps(vm, 50, 2)
    vm.call('set-vcpu-dirty-limit', dirty_rate=1)
    wait_rate(vm, (0, 1), 0, 2)
    for _ in range(20):
        vm.call('stop')
        before = guest.check(vm, 2).cpus
        time.sleep(0.02)
        assert guest.check(vm, 2).cpus == before
        vm.call('cont')
    vm.call('system_reset')
    vm.call('cancel-vcpu-dirty-limit')
    guest.wait_steps(vm, 50, 2)


@pytest.mark.quick
def test_commands(make_guest):
    vm = make_guest('vm', 'regs', cpus=2)
    assert limits(vm) == {}
    for index in (2, 9, -1):
        refused(vm, BAD_INDEX, 'set-vcpu-dirty-limit', dirty_rate=5, cpu_index=index)
        refused(vm, BAD_INDEX, 'cancel-vcpu-dirty-limit', cpu_index=index)
    vm.call('cancel-vcpu-dirty-limit')
    vm.call('set-vcpu-dirty-limit', dirty_rate=2**64 - 1, cpu_index=1)
    assert limits(vm)[1][0] == 2**64 - 1
    vm.call('set-vcpu-dirty-limit', dirty_rate=0, cpu_index=1)
    assert limits(vm) == {}
    assert vm.hmp('info vcpu_dirty_limit') == 'Dirty page limit not enabled!\r\n'
    assert vm.hmp('set_vcpu_dirty_limit 500 1') == ''
    lines = vm.hmp('info vcpu_dirty_limit').splitlines()
    assert [line.rpartition('current')[0] for line in lines] == ['vcpu[1], limit rate 500 (MB/s), ']
    assert vm.hmp('set_vcpu_dirty_limit 0x10') == ''
    assert [limit for limit, _ in limits(vm).values()] == [16, 16]
    assert vm.hmp('set_vcpu_dirty_limit 5 2') == f'Error: {BAD_INDEX}\r\n'
    assert vm.hmp('set_vcpu_dirty_limit -5') == 'Error: invalid dirty page limit -5\r\n'
    done = "[Please use 'info vcpu_dirty_limit' to query dirty limit for virtual CPU]\r\n"
    assert vm.hmp('cancel_vcpu_dirty_limit 0') == done
    assert list(limits(vm)) == [1]
    assert vm.hmp('cancel_vcpu_dirty_limit 9') == f'Error: {BAD_INDEX}\r\n'
    assert vm.hmp('cancel_vcpu_dirty_limit') == done
    assert limits(vm) == {}


# ---- without dirty rings ----

def assert_without_ring(vm):
    assert limits(vm) == {}
    for arguments in ({}, {'cpu_index': 0}, {'cpu_index': 99}):
        refused(vm, NEEDS_RING, 'set-vcpu-dirty-limit', dirty_rate=5, **arguments)
        refused(vm, NEEDS_RING, 'set-vcpu-dirty-limit', dirty_rate=0, **arguments)
        vm.call('cancel-vcpu-dirty-limit', **arguments)
    assert vm.hmp('set_vcpu_dirty_limit 5') == f'Error: {NEEDS_RING}\r\n'
    assert vm.hmp('set_vcpu_dirty_limit -5') == 'Error: invalid dirty page limit -5\r\n'
    assert vm.hmp('info vcpu_dirty_limit') == 'Dirty page limit not enabled!\r\n'
    assert vm.hmp('migrate_set_capability dirty-limit on') == f'Error: {CAPABILITY_NEEDS_RING}\r\n'
    vm.set_parameters(vcpu_dirty_limit=7, x_vcpu_dirty_limit_period=100)    # of no effect, as at the peers
    vm.set_capabilities('auto-converge')
    assert vm.hmp('migrate_set_capability dirty-limit on') == f'Error: {CONFLICT}\r\n'


@pytest.mark.quick
def test_without_kvm(godwit, make_vm):
    assert_without_ring(make_vm(godwit, 'vm'))


@pytest.mark.quick
def test_with_bitmaps(make_guest):
    assert_without_ring(make_guest('vm', 'regs', ring=0))


@pytest.mark.quick
def test_global(make_guest, godwit, make_vm):
    with pytest.raises(Exception, match=CAPABILITY_NEEDS_RING):
        make_vm(godwit, 'none', options=['-global', 'migration.x-dirty-limit=on'])


# ---- capability dirty-limit ----

@pytest.mark.quick
def test_conflict(make_guest):
    """Whichever comes first."""
    vm = make_guest('vm', 'regs')

    def capabilities(**states):
        return {'capabilities': [{'capability': name.replace('_', '-'), 'state': state}
                                 for name, state in states.items()]}
    for first, second in (('auto_converge', 'dirty_limit'), ('dirty_limit', 'auto_converge')):
        vm.call('migrate-set-capabilities', **capabilities(**{first: True}))
        refused(vm, CONFLICT, 'migrate-set-capabilities', **capabilities(**{second: True}))
        vm.call('migrate-set-capabilities', **capabilities(**{first: False, second: True}))
        vm.call('migrate-set-capabilities', **capabilities(**{second: False}))
    refused(vm, CONFLICT, 'migrate-set-capabilities', **capabilities(dirty_limit=True, auto_converge=True))
    refused(vm, "Parameter 'vcpu-dirty-limit' must be greater than 1 MB/s", 'migrate-set-parameters',
            vcpu_dirty_limit=0)
    for period in (0, 1001):
        refused(vm, 'Option x-vcpu-dirty-limit-period expects a value between 1 and 1000',
                'migrate-set-parameters', x_vcpu_dirty_limit_period=period)


def racing(make_guest, make_route, limit, **parameters):
    """A migration that cannot converge by itself, when its limit has come into force: source, destination."""
    src, dst = [make_guest(name, 'stamp', incoming=incoming, cpus=2, memory=48, pattern='random')
                for name, incoming in (('src', None), ('dst', 'defer'))]
    for vm in (src, dst):
        vm.set_capabilities('return-path', 'dirty-limit')
    # No round ends before the first look.
    src.set_parameters(vcpu_dirty_limit=limit, **{**parameters, 'max_bandwidth': 1 << 16})
    guest.wait_steps(src, 50, 2)
    route = make_route('unix')
    route.listen(dst)
    route.connect(src)
    assert 'dirty-limit-ring-full-time' not in src.migration()
    src.set_parameters(max_bandwidth=parameters['max_bandwidth'])
    poll(lambda: limits(src), 120, 'the limit')
    return src, dst


def test_converges(make_guest, make_route):
    """
    10 MiB/s and 300 ms of downtime: the guest may dirty less than 3 MiB in a round.  Free, it writes 20 times
    as much; limited to 1 MB/s and vCPU, it cannot.
    """
    src, dst = racing(make_guest, make_route, 1, max_bandwidth=10 * MIB)
    assert {limit for limit, _ in limits(src).values()} == {1}
    seen = poll(lambda: src.migration().get('dirty-limit-throttle-time-per-round', 0) and src.migration(), 60,
                'somebody sleeps')
    if seen['status'] == 'active':
        assert seen['dirty-limit-throttle-time-per-round'] <= 1024 * 3906250 // 1000
        assert 'cpu-throttle-percentage' not in seen
    src.wait_migration('completed', seconds=120)
    dst.wait_migration('completed')
    assert limits(src) == {} and 'dirty-limit-ring-full-time' not in src.migration()
    dst.wait_run_state('running')
    guest.wait_sweeps(dst, 1, 2)
    assert limits(dst) == {}


def test_does_not_converge_without(make_guest, make_route):
    """The same without the capability is not at its end after several rounds."""
    src, dst = [make_guest(name, 'stamp', incoming=incoming, cpus=2, memory=48, pattern='random')
                for name, incoming in (('src', None), ('dst', 'defer'))]
    for vm in (src, dst):
        vm.set_capabilities('return-path')
    src.set_parameters(max_bandwidth=10 * MIB)
    guest.wait_steps(src, 50, 2)
    route = make_route('unix')
    route.listen(dst)
    route.connect(src)
    poll(lambda: src.migration().get('ram', {}).get('dirty-sync-count', 0) >= 5, 120, 'several rounds')
    assert src.migration()['status'] == 'active'
    src.call('migrate_cancel')
    src.wait_migration('cancelled')


def test_limit_of_a_migration(make_guest, make_route):
    """Nobody else sets limits meanwhile; they follow the parameter, and go with a cancelled migration."""
    src, _ = racing(make_guest, make_route, 3, max_bandwidth=MIB, downtime_limit=1,
                    x_vcpu_dirty_limit_period=200)
    wait_rate(src, (0, 1), 1, 5)
    info = src.migration()
    # A ring of 1024 pages at 256 to 1280 pages a second.
    assert 800000 <= info['dirty-limit-ring-full-time'] <= 4000000
    text = src.hmp('info migrate -a')
    assert 'Dirty-limit Throttle (us): ' in text and 'Dirty-limit Ring Full (us): ' in text
    assert 'Dirty-limit' not in src.hmp('info migrate')
    refused(src, WHILE_MIGRATING.format('set'), 'set-vcpu-dirty-limit', dirty_rate=5)
    refused(src, WHILE_MIGRATING.format('set'), 'set-vcpu-dirty-limit', dirty_rate=0)
    refused(src, WHILE_MIGRATING.format('cancel'), 'cancel-vcpu-dirty-limit')
    refused(src, BAD_INDEX, 'set-vcpu-dirty-limit', dirty_rate=5, cpu_index=2)
    refused(src, BAD_INDEX, 'cancel-vcpu-dirty-limit', cpu_index=2)
    src.set_parameters(vcpu_dirty_limit=6)
    poll(lambda: {limit for limit, _ in limits(src).values()} == {6}, 60, 'the new limit')
    src.call('migrate_cancel')
    src.wait_migration('cancelled')
    assert limits(src) == {}
    poll(lambda: guest_rates(src, 2, 1)[1] > 9, 60, 'the guest runs freely')
    guest.wait_sweeps(src, 1, 2)


def test_failed_migration(make_guest, make_route):
    """The destination goes away, the limit too."""
    src, dst = racing(make_guest, make_route, 3, max_bandwidth=MIB, downtime_limit=1)
    dst.expect_signal = 9
    dst.kill()
    src.wait_migration('failed')
    assert limits(src) == {}
    guest.wait_sweeps(src, 1, 2)


@pytest.mark.parametrize('mode', ('stamp', 'toggle'))
def test_no_write_is_lost(mode, make_guest, make_route):
    """Migrations of a guest that is limited before, meanwhile and after; somebody changes the limits."""
    src, dst = [make_guest(name, mode, incoming=incoming, ring=256, cpus=2, memory=24, pattern='random')
                for name, incoming in (('src', None), ('dst', 'defer'))]
    for vm in (src, dst):
        vm.set_capabilities('return-path')
    src.call('set-vcpu-dirty-limit', dirty_rate=10)
    guest.wait_steps(src, 50, 2)
    src.set_parameters(max_bandwidth=30 * MIB, downtime_limit=1)
    route = make_route('unix')
    route.listen(dst)
    route.connect(src)
    for rate in (3, 0, 20, 0, 5):
        src.call('set-vcpu-dirty-limit', dirty_rate=rate)
        time.sleep(0.3)
    src.set_parameters(max_bandwidth=0, downtime_limit=20000)
    src.wait_migration('completed')
    dst.wait_migration('completed')
    dst.wait_run_state('running')
    guest.wait_sweeps(dst, 1, 2)
    # What was set by hand stays, whoever runs the guest now.
    assert {limit for limit, _ in limits(src).values()} == {5} and limits(dst) == {}
    assert src.run_state == 'postmigrate'

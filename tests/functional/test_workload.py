# SPDX-License-Identifier: BSD-2-Clause
"""
A running guest, machine workload: nothing lost or torn on the way, convergence, throttling, cancel, and its
own view of the downtime.
"""
import time

import pytest
from godwit import verifier, workload
from godwit.deadline import Deadline, poll
from godwit.ram import MIB, PAGE
from godwit.relay import Faults
from godwit.routes import perform

SIZE = 64 * MIB


@pytest.fixture
def guest(godwit, make_vm, make_ram):
    """guest(name, incoming=None, size=..., cpus=..., **properties) -> Vm."""
    def make(name, incoming=None, size=SIZE, cpus=2, environment=None, **properties):
        return make_vm(godwit, name, ram=make_ram(size), incoming=incoming, environment=environment,
                       machine=workload.machine(**properties), options=['-smp', str(cpus)])
    return make


@pytest.mark.quick
@pytest.mark.parametrize('pattern', ('sequential', 'random', 'hot', 'fill'))
def test_pattern(pattern, guest, make_route):
    src = guest('src', pattern=pattern, rate='200M')
    dst = guest('dst', incoming='defer', pattern=pattern, rate='200M')
    # Pattern "fill" may have come to its end already.
    poll(lambda: workload.query(src)['pages-written'] >= 1000, 60, 'the guest writes')
    for vm in (src, dst):
        vm.set_capabilities('return-path')
    src.set_parameters(max_bandwidth=0)
    perform(src, dst, make_route('tcp'))
    dst.wait_run_state('running')
    if pattern != 'fill':
        workload.wait_written(dst, 1000)
    info = workload.assert_verified(dst)
    assert info['pages'] == SIZE // 4096 or info['pages'] > 0
    assert info['switchover-gap-ns'] > 0
    # The guest at the source stands still.
    written = workload.query(src)['pages-written']
    assert workload.query(src)['pages-written'] == written


@pytest.mark.parametrize('cpus', (1, 4))
@pytest.mark.parametrize('capabilities', ((), ('xbzrle',), ('return-path', 'xbzrle'), ('auto-converge',)),
                         ids=lambda c: '+'.join(c) or 'plain')
def test_under_load(cpus, capabilities, guest, make_route):
    """As fast as the guest can, mixed content, into a slow channel at first."""
    mix = {'zero': 20, 'compressible': 40, 'pattern': 'random'}
    src = guest('src', cpus=cpus, rate='100M', working_set='16M', **mix)
    dst = guest('dst', cpus=cpus, incoming='defer', rate='100M', working_set='16M', **mix)
    if capabilities:
        for vm in (src, dst):
            vm.set_capabilities(*capabilities)
    src.set_parameters(max_bandwidth=40 * MIB, downtime_limit=20)
    route = make_route('unix', Faults(record=True))
    route.listen(dst)
    route.connect(src)
    poll(lambda: src.migration().get('ram', {}).get('dirty-sync-count', 0) >= 4, 60, 'several rounds')
    src.set_parameters(max_bandwidth=0, downtime_limit=2000)
    src.wait_migration('completed')
    dst.wait_migration('completed')
    workload.wait_written(dst, 100)
    workload.assert_verified(dst)
    verifier.assert_good(route.captured(), capabilities=set(capabilities), machine='workload')


def test_chain_under_load(guest, make_route):
    vm = guest('vm0', rate='100M')
    for number in range(1, 4):
        following = guest(f'vm{number}', incoming='defer', rate='100M')
        vm.set_parameters(max_bandwidth=0)
        perform(vm, following, make_route('unix'))
        workload.wait_written(following, 100)
        workload.assert_verified(following)
        vm.quit()
        vm = following


# ---- convergence ----

@pytest.fixture
def racing(guest, make_route):
    """A migration that cannot converge: the guest dirties 200 MiB/s, 32 MiB/s may be sent."""
    def start(capabilities=(), downtime_limit=50, **parameters):
        src = guest('src', rate='200M', working_set='32M')
        dst = guest('dst', incoming='defer', rate='200M', working_set='32M')
        workload.wait_written(src, 100)
        if capabilities:
            src.set_capabilities(*capabilities)
        src.set_parameters(max_bandwidth=32 * MIB, downtime_limit=downtime_limit, **parameters)
        route = make_route('unix')
        route.listen(dst)
        route.connect(src)
        src.wait_migration('active')
        return src, dst
    return start


def still_active(src, seconds, rounds):
    """Stays active for @seconds and @rounds; the most answers of the monitor in one round."""
    deadline = Deadline(seconds)
    hang = Deadline(60)
    answers = {}
    while not deadline.expired() or len(answers) < rounds:
        info = src.migration()
        assert info['status'] == 'active'
        count = info['ram']['dirty-sync-count']
        answers[count] = answers.get(count, 0) + 1
        assert not hang.expired(), f'fewer than {rounds} rounds: {info}'
        time.sleep(0.01)
    return max(answers.values())


def finish(src, dst):
    src.wait_migration('completed')
    dst.wait_migration('completed')
    workload.wait_written(dst, 100)
    workload.assert_verified(dst)


@pytest.mark.parametrize('cure', ('downtime-limit', 'max-bandwidth'))
def test_does_not_converge_until_a_limit_goes(cure, racing):
    src, dst = racing()
    # A round takes a second: a monitor that waited for its end would answer once in it.
    assert still_active(src, 3, rounds=3) >= 5
    info = src.migration()
    assert info['ram']['dirty-sync-count'] >= 2 and info['ram']['remaining'] > 0
    assert info['ram']['dirty-pages-rate'] > 0
    src.set_parameters(**({'downtime_limit': 60000} if cure == 'downtime-limit' else {'max_bandwidth': 0}))
    finish(src, dst)


def test_auto_converge(racing):
    src, dst = racing(['auto-converge'], downtime_limit=300, cpu_throttle_increment=45)
    seen = poll(lambda: src.migration().get('cpu-throttle-percentage'), 60, 'throttling')
    assert seen in (20, 65, 99)     # cpu-throttle-initial, or, for who looks late, what follows
    src.wait_migration('completed', seconds=180)
    dst.wait_migration('completed')
    assert 'cpu-throttle-percentage' not in src.migration()
    workload.wait_written(dst, 100)
    workload.assert_verified(dst)


def test_bandwidth_is_kept(guest, make_route):
    """32 MiB/s on 64 MiB that hold random data: about two seconds, surely more than one."""
    src = guest('src', rate=1, zero=0, compressible=0)
    dst = guest('dst', incoming='defer', rate=1)
    src.set_parameters(max_bandwidth=32 * MIB, downtime_limit=1)
    perform(src, dst, make_route('unix'))
    info = src.migration()
    seconds = info['total-time'] / 1000
    assert info['ram']['transferred'] / seconds < 1.3 * 32 * MIB
    workload.assert_verified(dst)


# ---- cancel and failure: the guest goes on ----

def test_cancel_and_again(racing, guest, make_route):
    src, _ = racing()
    src.call('migrate_cancel')
    src.wait_migration('cancelled')
    assert src.run_state == 'running'
    workload.wait_written(src, 100)
    workload.assert_verified(src)
    other = guest('other', incoming='defer', rate='200M', working_set='32M')
    src.set_parameters(max_bandwidth=0, downtime_limit=2000)
    perform(src, other, make_route('tcp'))
    workload.wait_written(other, 100)
    workload.assert_verified(other)


def test_throttle_ends_with_the_migration(racing):
    src, _ = racing(['auto-converge'])
    poll(lambda: src.migration().get('cpu-throttle-percentage'), 60, 'throttling')
    src.call('migrate_cancel')
    src.wait_migration('cancelled')
    assert 'cpu-throttle-percentage' not in src.migration()
    workload.wait_written(src, 100)
    workload.assert_verified(src)


def test_destination_killed(racing, guest, make_route):
    src, dst = racing()
    dst.expect_signal = 9
    dst.kill()
    src.wait_migration('failed')
    assert len(src.migration().get('error-desc', '')) > 10
    assert src.run_state == 'running'
    workload.wait_written(src, 100)
    workload.assert_verified(src)
    other = guest('other', incoming='defer', rate='200M', working_set='32M')
    src.set_parameters(max_bandwidth=0, downtime_limit=2000)
    perform(src, other, make_route('tcp'))
    workload.wait_written(other, 100)
    workload.assert_verified(other)


def test_memory_damage_would_be_seen(guest, make_route):
    """The proof proves something: one byte changed behind the guest's back is found."""
    src = guest('src', pattern='fill', rate='200M')
    poll(lambda: workload.query(src)['pages-written'] >= SIZE // PAGE // 2, 60, 'the guest writes')
    src.call('stop')
    page = src.ram.read()
    where = next(i for i in range(SIZE // 2, SIZE) if page[i])
    src.ram.write(where, bytes([page[where] ^ 1]))
    src.call('x-workload-verify')
    poll(lambda: not workload.query(src)['verifying'], 60, 'checked')
    info = workload.query(src)
    assert info['errors'] > 0 and not info['verified'] and info['first-error']

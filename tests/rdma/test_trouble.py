# SPDX-License-Identifier: BSD-2-Clause
"""What goes wrong over real verbs: the guest runs on at one side, and can be migrated again."""
import random
import subprocess
import time

import pytest
from godwit import rdma
from godwit.deadline import poll
from godwit.qmp import QmpError
from godwit.ram import MIB
from godwit.routes import perform

SIZE = 24 * MIB         # of which half is not zero
# For a migration that somebody dies in: it takes 4 s, however late the kill comes on a busy machine.
SLOW = 3 * MIB


@pytest.fixture
def source(godwit, make_vm, make_ram):
    vm = make_vm(godwit, 'src', ram=rdma.fill_half_zero(make_ram(SIZE), MIB))
    vm.set_parameters(max_bandwidth=0)
    return vm


@pytest.fixture
def destination(godwit, make_vm, make_ram):
    def make(name='dst', **arguments):
        return make_vm(godwit, name, ram=make_ram(SIZE).fill(0xa5), incoming='defer', **arguments)
    return make


@pytest.fixture
def runs_on(source, destination, make_rdma, make_route):
    """The guest is at the source, its memory whole; a new attempt works."""
    content = source.ram.copy()

    def check(kind='rdma'):
        source.wait_run_state('running')
        source.ram.assert_same(content)
        source.set_parameters(max_bandwidth=0)
        source.set_capabilities('pause-before-switchover', 'rdma-pin-all', state=False)
        again = destination('again')
        perform(source, again, make_rdma() if kind == 'rdma' else make_route(kind))
        again.ram.assert_same(content)
    return check


# ---- a side dies ----

@pytest.mark.parametrize('pin_all', (False, pytest.param(True, marks=pytest.mark.thorough)),
                         ids=('dynamic', 'pin-all'))
@pytest.mark.parametrize('seed', (1, *(pytest.param(n, marks=pytest.mark.thorough) for n in range(2, 9))))
def test_destination_killed(seed, pin_all, source, destination, make_rdma, runs_on):
    source.set_parameters(max_bandwidth=SLOW)
    source.set_capabilities('rdma-pin-all', state=pin_all)
    dst = destination()
    dst.expect_signal = 9
    route = make_rdma()
    route.listen(dst)
    route.connect(source)
    time.sleep(random.Random(seed).random() * 0.6)
    dst.kill()
    source.wait_migration('failed')
    assert len(source.migration()['error-desc']) > 10
    runs_on()


@pytest.mark.parametrize('seed', (1, *(pytest.param(n, marks=pytest.mark.thorough) for n in range(2, 9))))
def test_source_killed(seed, source, destination, make_rdma):
    source.set_parameters(max_bandwidth=SLOW)
    source.expect_signal = 9
    dst = destination()
    route = make_rdma()
    route.listen(dst)
    route.connect(source)
    source.wait_migration('active')
    time.sleep(random.Random(seed).random() * 0.6)
    source.kill()
    assert dst.incoming_verdict() == 'failed'


@pytest.mark.parametrize('peer', ('7.2', pytest.param('11.1', marks=pytest.mark.thorough)))
def test_real_destination_killed(peer, source, find_program, make_vm, make_ram, make_rdma, runs_on):
    source.set_parameters(max_bandwidth=SLOW)
    dst = make_vm(find_program(peer), 'dst', ram=make_ram(SIZE), incoming='defer')
    dst.expect_signal = 9
    route = make_rdma()
    route.listen(dst)
    try:
        route.connect(source)
    except QmpError:
        pass
    time.sleep(0.4)
    dst.kill()
    source.wait_migration('failed')
    runs_on('unix')


# ---- cancel ----

def cancel(source):
    source.call('migrate_cancel')
    source.wait_migration('cancelled', seconds=10)


def test_cancel_active(source, destination, make_rdma, runs_on):
    source.set_parameters(max_bandwidth=4 * MIB)
    dst = destination()
    route = make_rdma()
    route.listen(dst)
    route.connect(source)
    source.wait_migration('active')
    cancel(source)
    assert dst.incoming_verdict() == 'failed'
    runs_on()


def test_cancel_in_the_pause(source, destination, make_rdma, runs_on):
    source.set_capabilities('pause-before-switchover')
    dst = destination()
    route = make_rdma()
    route.listen(dst)
    route.connect(source)
    source.wait_migration('pre-switchover')
    cancel(source)
    assert dst.incoming_verdict() == 'failed'
    runs_on()


def test_cancel_with_a_silent_peer(source, destination, make_rdma, runs_on):
    """The destination is stopped: no READY comes."""
    dst = destination()
    dst.expect_signal = 9
    route = make_rdma()
    route.listen(dst)
    source.set_parameters(max_bandwidth=10 * MIB)
    route.connect(source)
    source.wait_migration('active')
    dst.kill(19)
    time.sleep(0.5)
    assert source.migration_state() == 'active'
    cancel(source)
    dst.kill()
    runs_on()


@pytest.mark.thorough
def test_cancel_while_connecting(source, make_rdma, runs_on):
    """Nobody is there who could answer."""
    route = make_rdma(address='10.9.0.77', port=4400)
    route.connect(source)
    cancel(source)
    runs_on()


# ---- what is missing ----

def test_nobody_listens(source, make_rdma, runs_on):
    route = make_rdma()
    try:
        route.connect(source)
        source.wait_migration('failed')
    except QmpError:
        pass
    assert len(source.migration()['error-desc']) > 10
    runs_on()


@pytest.mark.parametrize('pin_all', (False, pytest.param(True, marks=pytest.mark.thorough)),
                         ids=('dynamic', 'pin-all'))
@pytest.mark.parametrize('side', ('src', 'dst'))
def test_memlock_limit(side, pin_all, godwit, make_vm, make_ram, make_rdma, make_route):
    """1 MiB is not enough for the control buffers alone: a message that says so, and the guest runs."""
    limits = {side: MIB}
    src = make_vm(godwit, 'src', ram=rdma.fill_half_zero(make_ram(SIZE), MIB), memlock=limits.get('src'))
    dst = make_vm(godwit, 'dst', ram=make_ram(SIZE).fill(0xa5), incoming='defer', memlock=limits.get('dst'))
    src.set_capabilities('rdma-pin-all', state=pin_all)
    route = make_rdma()
    route.listen(dst)
    try:
        route.connect(src)
        src.wait_migration('failed')
    except QmpError:
        pass
    if side == 'src':
        assert 'register' in src.migration()['error-desc']
    else:
        poll(lambda: 'register' in dst.stderr, 10, 'a word about registration')
    src.wait_run_state('running')
    good = make_vm(godwit, 'good', ram=make_ram(SIZE).fill(0x5a), incoming='defer')
    perform(src, good, make_route('tcp'))
    good.ram.assert_same(src.ram)


@pytest.mark.parametrize('limit', (8 * MIB, pytest.param(16 * MIB, marks=pytest.mark.thorough)))
def test_memlock_limit_in_memory(limit, godwit, make_vm, make_ram, make_rdma):
    """Enough for the control buffers, not for guest memory with pin-all."""
    src = make_vm(godwit, 'src', ram=make_ram(SIZE).fill(7))
    dst = make_vm(godwit, 'dst', ram=make_ram(SIZE).fill(0xa5), incoming='defer', memlock=limit)
    src.set_capabilities('rdma-pin-all')
    route = make_rdma()
    route.listen(dst)
    route.connect(src)
    src.wait_migration('failed')
    src.wait_run_state('running')
    assert dst.incoming_verdict() == 'failed'
    assert 'm0' in dst.stderr and 'register' in dst.stderr


def test_no_device(source, destination, make_rdma, runs_on, carried):
    """The device goes away; one clear error on each side, at once; and all is well by another way."""
    dst = destination('nobody')
    subprocess.run(['rdma', 'link', 'delete', 'rxe0'], check=True)
    try:
        for act, vm in ((make_rdma().connect, source), (make_rdma().listen, dst)):
            start = time.monotonic()
            text = ''
            try:
                act(vm)
                text = poll(lambda: vm.migration().get('error-desc'), 10, 'an error')
            except QmpError as error:
                text = str(error)
            assert 'RDMA' in text
            assert time.monotonic() - start < 10
        runs_on('tcp')
    finally:
        subprocess.run(['rdma', 'link', 'add', 'rxe0', 'type', 'rxe', 'netdev', 'veth0'], check=True)

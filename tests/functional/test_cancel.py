# SPDX-License-Identifier: BSD-2-Clause
"""migrate_cancel in every state: the guest runs on, and a new attempt works."""
import pytest
from godwit.ram import MIB
from godwit.relay import Faults, listen_tcp
from godwit.routes import perform

SIZE = 24 * MIB     # more than what sockets take while nobody reads

pytestmark = pytest.mark.quick


@pytest.fixture
def source(godwit, make_vm, make_ram):
    return make_vm(godwit, 'src', ram=make_ram(SIZE).fill_mixed())


@pytest.fixture
def again(source, godwit, make_vm, make_ram, make_route):
    """Cancels, and proves that nothing is lost."""
    content = source.ram.copy()

    def check(kind='unix'):
        source.call('migrate_cancel')
        source.wait_migration('cancelled')
        source.wait_run_state('running')
        source.ram.assert_same(content)
        source.set_parameters(max_bandwidth=0)
        source.set_capabilities('pause-before-switchover', state=False)
        dst = make_vm(godwit, 'again', ram=make_ram(SIZE).fill(3), incoming='defer')
        perform(source, dst, make_route(kind))
        dst.ram.assert_same(content)
    return check


def test_nothing_to_cancel(source):
    source.call('migrate_cancel')
    assert source.migration() == {}


def test_destination_is_not_touched(godwit, make_vm, make_ram, source, make_route):
    dst = make_vm(godwit, 'dst', ram=make_ram(SIZE), incoming='defer')
    dst.call('migrate_cancel')
    route = make_route('unix')
    route.listen(dst)
    dst.call('migrate_cancel')
    route.connect(source)
    source.wait_migration('completed')
    dst.wait_migration('completed')


def test_while_nobody_accepts(source, again):
    """A listener whose backlog takes the connection, and nobody reads."""
    with listen_tcp() as listener:
        source.call('migrate', uri=f'tcp:127.0.0.1:{listener.getsockname()[1]}')
        again()


@pytest.mark.parametrize('kind', ('tcp', 'unix', 'fd', 'exec'))
def test_active(kind, source, again, godwit, make_vm, make_ram, make_route):
    source.set_parameters(max_bandwidth=MIB)
    dst = make_vm(godwit, 'dst', ram=make_ram(SIZE), incoming='defer')
    route = make_route(kind)
    route.listen(dst)
    route.connect(source)
    source.wait_migration('active')
    again(kind)
    assert dst.incoming_verdict() == 'failed'


def test_active_file(source, again, folder):
    source.set_parameters(max_bandwidth=MIB)
    source.call('migrate', uri=f'file:{folder}/saved')
    source.wait_migration('active')
    again('file')


def test_blocked_in_a_write(source, again, godwit, make_vm, make_ram, make_route):
    source.set_parameters(max_bandwidth=0)
    dst = make_vm(godwit, 'dst', ram=make_ram(SIZE), incoming='defer')
    route = make_route('unix', Faults(cut_after=100_000, how='stall'))
    route.listen(dst)
    route.connect(source)
    route.relay.wait_passed(100_000)
    again('tcp')


def test_pre_switchover(source, again, godwit, make_vm, make_ram, make_route):
    source.set_capabilities('pause-before-switchover')
    dst = make_vm(godwit, 'dst', ram=make_ram(SIZE), incoming='defer')
    route = make_route('tcp')
    route.listen(dst)
    route.connect(source)
    source.wait_migration('pre-switchover')
    again()
    assert dst.incoming_verdict() == 'failed'


def test_paused_guest_stays_paused(source, folder):
    source.call('stop')
    source.set_parameters(max_bandwidth=MIB)
    source.call('migrate', uri=f'exec:cat > {folder}/saved')
    source.wait_migration('active')
    source.call('migrate_cancel')
    source.wait_migration('cancelled')
    assert source.run_state == 'paused'


def test_after_the_end(source, godwit, make_vm, make_ram, make_route):
    dst = make_vm(godwit, 'dst', ram=make_ram(SIZE), incoming='defer')
    perform(source, dst, make_route('unix'))
    source.call('migrate_cancel')
    assert source.migration_state() == 'completed'


def test_many_times(source, again, folder):
    """Begun and cancelled at once, over and over."""
    source.set_parameters(max_bandwidth=MIB)
    with listen_tcp() as listener:
        port = listener.getsockname()[1]
        for _ in range(30):
            source.call('migrate', uri=f'tcp:127.0.0.1:{port}')
            source.call('migrate_cancel')
            source.wait_migration('cancelled')
    again()


def test_quit_while_active(source, folder):
    source.set_parameters(max_bandwidth=MIB)
    source.call('migrate', uri=f'exec:cat > {folder}/saved')
    source.wait_migration('active')
    source.quit()

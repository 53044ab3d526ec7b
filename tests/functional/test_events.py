# SPDX-License-Identifier: BSD-2-Clause
"""Events of both sides, in order, and which members query-migrate has in which state."""
import pytest
from godwit.ram import MIB, PAGE
from godwit.relay import Faults, listen_unix
from godwit.routes import perform

SIZE = 8 * MIB
SLOW = MIB // 8         # 5 MiB of it are not zero: 40 s in the first round, whoever waits meanwhile

pytestmark = pytest.mark.quick


@pytest.fixture
def pair(godwit, make_vm, make_ram):
    def make(src_options=(), dst_options=()):
        src = make_vm(godwit, 'src', ram=make_ram(SIZE).fill_mixed(), options=src_options)
        dst = make_vm(godwit, 'dst', ram=make_ram(SIZE), incoming='defer', options=dst_options)
        for vm in (src, dst):
            vm.set_capabilities('events')
        return src, dst
    return make


def sequence(vm, count):
    """The first @count events, or more if there are, in short: state of MIGRATION, "pass N", or the name."""
    words = []
    for event in vm.qmp.wait_events(count):
        if event.name == 'MIGRATION':
            words.append(event.data['status'])
        elif event.name == 'MIGRATION_PASS':
            words.append(f'pass {event.data["pass"]}')
        else:
            words.append(event.name)
    return words


def test_precopy(pair, make_route):
    src, dst = pair()
    perform(src, dst, make_route('unix'))
    dst.wait_run_state('running')
    assert sequence(src, 6) == ['setup', 'active', 'pass 2', 'STOP', 'device', 'completed']
    assert sequence(dst, 4) == ['setup', 'active', 'RESUME', 'completed']


def test_source_paused_before(pair, make_route):
    src, dst = pair()
    src.call('stop')
    perform(src, dst, make_route('unix'))
    assert sequence(src, 6) == ['STOP', 'setup', 'active', 'pass 2', 'device', 'completed']
    assert sequence(dst, 3) == ['setup', 'active', 'completed']


def test_destination_not_started(pair, make_route):
    src, dst = pair(dst_options=['-S'])
    perform(src, dst, make_route('unix'))
    assert sequence(dst, 3) == ['setup', 'active', 'completed']


def test_pause_before_switchover(pair, make_route):
    src, dst = pair()
    src.set_capabilities('pause-before-switchover')
    route = make_route('unix')
    route.listen(dst)
    route.connect(src)
    src.wait_migration('pre-switchover')
    src.call('migrate-continue', state='pre-switchover')
    src.wait_migration('completed')
    dst.wait_migration('completed')
    assert sequence(src, 7) == ['setup', 'active', 'pass 2', 'STOP', 'pre-switchover', 'device', 'completed']


def test_cancel_while_active(pair, make_route):
    src, dst = pair()
    src.set_parameters(max_bandwidth=SLOW)
    route = make_route('unix')
    route.listen(dst)
    route.connect(src)
    src.wait_migration('active')
    src.call('migrate_cancel')
    src.wait_migration('cancelled')
    assert sequence(src, 4) == ['setup', 'active', 'cancelling', 'cancelled']
    assert dst.incoming_verdict() == 'failed'


def test_cancel_in_pre_switchover(pair, make_route):
    src, dst = pair()
    src.set_capabilities('pause-before-switchover')
    route = make_route('unix')
    route.listen(dst)
    route.connect(src)
    src.wait_migration('pre-switchover')
    src.call('migrate_cancel')
    src.wait_migration('cancelled')
    src.wait_run_state('running')
    states = sequence(src, 8)
    assert states[:6] == ['setup', 'active', 'pass 2', 'STOP', 'pre-switchover', 'cancelling']
    assert sorted(states[6:]) == ['RESUME', 'cancelled']


def test_connect_error(pair, folder):
    src, _ = pair()
    src.call('migrate', uri=f'unix:{folder}/nosuch')
    info = src.wait_migration('failed')
    assert info == {'status': 'failed',
                    'error-desc': f"Failed to connect to '{folder}/nosuch': No such file or directory"}
    assert sequence(src, 3) == ['setup', 'failing', 'failed']


def test_stream_error(pair, make_route):
    src, dst = pair()
    src.set_parameters(max_bandwidth=SLOW)
    route = make_route('tcp', Faults(cut_after=SLOW))
    route.listen(dst)
    route.connect(src)
    src.wait_migration('failed')
    assert sequence(src, 4) == ['setup', 'active', 'failing', 'failed']
    assert src.run_state == 'running'


def test_no_migration_events_without_the_capability(godwit, make_vm, make_ram, make_route):
    src = make_vm(godwit, 'src', ram=make_ram(SIZE))
    dst = make_vm(godwit, 'dst', ram=make_ram(SIZE), incoming='defer')
    perform(src, dst, make_route('unix'))
    dst.wait_run_state('running')
    assert sequence(src, 1) == ['STOP']
    assert sequence(dst, 1) == ['RESUME']


# ---- query-migrate ----

RAM_MEMBERS = set('''total transferred remaining duplicate normal normal-bytes dirty-pages-rate mbps
    dirty-sync-count postcopy-requests page-size multifd-bytes pages-per-second precopy-bytes downtime-bytes
    postcopy-bytes dirty-sync-missed-zero-copy'''.split())


def members(info):
    """Members as QEMU has them; those of our own begin with "x-"."""
    return {name for name in info if not name.startswith('x-')}


def test_members_by_state(pair, make_route):
    src, dst = pair()
    assert src.migration() == {}
    assert dst.migration() == {}
    src.set_capabilities('pause-before-switchover')
    src.set_parameters(max_bandwidth=SLOW)
    route = make_route('unix')
    route.listen(dst)
    listening = dst.migration()
    assert set(listening) == {'status', 'socket-address'} and listening['status'] == 'setup'
    assert listening['socket-address'] == [{'type': 'unix', 'path': route.path('.unix')}]
    route.connect(src)
    active = src.wait_migration('active')
    assert members(active) == {'status', 'setup-time', 'total-time', 'expected-downtime', 'remaining', 'ram'}
    assert set(active['ram']) == RAM_MEMBERS
    assert active['ram']['total'] == SIZE and active['ram']['page-size'] == PAGE
    dst.wait_migration('active')
    src.set_parameters(max_bandwidth=0)
    waiting = src.wait_migration('pre-switchover')
    assert members(waiting) == members(active)
    src.call('migrate-continue', state='pre-switchover')
    completed = src.wait_migration('completed')
    assert members(completed) == {'status', 'setup-time', 'total-time', 'downtime', 'ram'}
    assert set(completed['ram']) == RAM_MEMBERS
    arrived = dst.wait_migration('completed')
    assert members(arrived) == {'status'} and arrived['status'] == 'completed'


def test_figures_of_a_quiet_guest(pair, make_route):
    """Arithmetic: every page once, 9 bytes for a zero page, 4104 for another, plus headers."""
    src, dst = pair()
    route = make_route('unix', Faults(record=True))
    perform(src, dst, route)
    ram = src.migration()['ram']
    content = src.ram.read()
    zero = sum(not any(content[p:p + PAGE]) for p in range(0, SIZE, PAGE))
    normal = SIZE // PAGE - zero
    assert (ram['duplicate'], ram['normal']) == (zero, normal)
    assert ram['normal-bytes'] == normal * PAGE
    assert ram['remaining'] == 0 and ram['total'] == SIZE
    assert ram['transferred'] == len(route.captured())
    assert ram['dirty-sync-count'] == 2
    # The block's name goes along with the first record; each PART ends with a word of 8 bytes.
    records = 9 * zero + 4104 * normal + 3
    assert ram['precopy-bytes'] + ram['downtime-bytes'] >= records
    assert ram['precopy-bytes'] + ram['downtime-bytes'] <= len(route.captured())


def test_cancelled_and_failed_have_no_figures(pair, make_route):
    src, dst = pair()
    src.set_parameters(max_bandwidth=SLOW)
    route = make_route('unix')
    route.listen(dst)
    route.connect(src)
    src.wait_migration('active')
    src.call('migrate_cancel')
    assert set(src.wait_migration('cancelled')) <= {'status', 'error-desc'}


def test_setup_while_connecting(godwit, make_vm, make_ram, folder):
    """A destination that accepts and never reads: set-up passes, cancel works."""
    # More than any socket holds.
    src = make_vm(godwit, 'src', ram=make_ram(64 << 20).fill_bulk(zero_share=0))
    with listen_unix(f'{folder}/silent'):
        src.call('migrate', uri=f'unix:{folder}/silent')
        src.wait_migration('setup', 'active')
        src.call('migrate_cancel')
        src.wait_migration('cancelled')
    assert src.run_state == 'running'

# SPDX-License-Identifier: BSD-2-Clause
"""
multifd where it hurts: strange orders of connections, strangers among them, garbage in the memory, ends of
every kind in the middle, and what it is not to be combined with.
"""
import os
import random
import socket
import threading
import time

import pytest
from godwit import workload
from godwit.deadline import poll
from godwit.ram import MIB, PAGE
from godwit.relay import Faults, Relay, connect_unix, listen_unix
from godwit.routes import perform

SIZE = 8 * MIB + 3 * PAGE
GUEST = 32 * MIB
COMPRESSIONS = ('none', 'zlib', 'zstd')
NOT_SEVERAL = 'Migration requires multi-channel URIs (e.g. tcp)'
NOT_XBZRLE = 'Multifd is not compatible with xbzrle'
ZERO_COPY = 'Zero copy only available for non-compressed non-TLS multifd migration'
HELLO = bytes.fromhex('1122334400000001') + bytes(56)


def configure(vm, channels=2, compression='none', **parameters):
    vm.set_capabilities('multifd')
    vm.set_parameters(multifd_channels=channels, multifd_compression=compression, **parameters)


@pytest.fixture
def pair(godwit, make_vm, make_ram):
    """pair(channels, compression) -> a source with an image and a destination full of garbage."""
    def make(*arguments, garbage=0xa5, **parameters):
        src = make_vm(godwit, 'src', ram=make_ram(SIZE).fill_mixed(seed=5))
        dst = make_vm(godwit, 'dst', ram=make_ram(SIZE).fill(garbage), incoming='defer')
        for vm in (src, dst):
            configure(vm, *arguments, **parameters)
        return src, dst
    return make


@pytest.fixture
def guests(godwit, make_vm, make_ram):
    """guests(channels, compression) -> two VMs of machine workload, the guest of the first writing."""
    def make(*arguments, rate='60M', **parameters):
        properties = dict(pattern='random', rate=rate, working_set='16M', zero=20, compressible=40)
        vms = []
        for name, incoming in (('src', None), ('dst', 'defer')):
            vms.append(make_vm(godwit, name, ram=make_ram(GUEST).fill(0 if incoming is None else 0x5a),
                               incoming=incoming, machine=workload.machine(**properties)))
            configure(vms[-1], *arguments, **parameters)
            vms[-1].set_capabilities('return-path')
        workload.wait_written(vms[0], 1000)
        return vms
    return make


def assert_answers(vm):
    """The main loop is not held up by anything: asked several times, answered each time."""
    for _ in range(3):
        vm.call('query-status')


def assert_goes_on(src):
    """Failed with a reason, and the guest writes and finds its memory as it was."""
    info = src.wait_migration('failed')
    assert len(info.get('error-desc', '')) > 10, info
    src.wait_run_state('running')
    workload.wait_written(src, 500)
    workload.assert_verified(src)


# ---- connections ----

class ReverseRelay:
    """
    Takes @count connections from the source, then makes the ones to the destination the other way round: what
    the source opened first arrives last.
    """

    def __init__(self, path, target, count):
        self.relay = Relay()
        self.listener = listen_unix(path)
        self.target = target
        self.count = count
        self.far = []
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        near = [self.listener.accept()[0] for _ in range(self.count)]
        for sock in reversed(near):
            self.relay.add_link(sock, connect_unix(self.target))
            time.sleep(0.01)        # so that the order of arrival is this one

    def close(self):
        self.relay.close()
        self.listener.close()
        self.thread.join(10)


@pytest.mark.quick
@pytest.mark.parametrize('channels', (1, 5))
def test_reverse_order(channels, pair, make_route, folder):
    src, dst = pair(channels)
    route = make_route('unix')
    route.listen(dst)
    between = ReverseRelay(f'{folder}/reverse', route.path('.unix'), 1 + channels)
    try:
        src.call('migrate', uri=f'unix:{folder}/reverse')
        src.wait_migration('completed')
        dst.wait_migration('completed')
    finally:
        between.close()
    dst.ram.assert_same(src.ram)


@pytest.mark.quick
def test_strangers(pair, make_route):
    """Connections that leave, that say three bytes, and that say nothing at all, before the real ones."""
    src, dst = pair(4)
    route = make_route('unix')
    route.listen(dst)
    path = route.path('.unix')
    strangers = []
    for said in (None, b'', b'\x11\x22\x33', b'QEV', b'', b'\x11\x22\x33', None):
        sock = connect_unix(path)
        if said is None:
            sock.close()
            continue
        sock.sendall(said)
        strangers.append(sock)
    assert_answers(dst)
    assert dst.migration_state() == 'setup'
    perform_listening(src, dst, route)
    dst.ram.assert_same(src.ram)
    for sock in strangers:
        sock.close()


def perform_listening(src, dst, route):
    route.connect(src)
    src.wait_migration('completed')
    dst.wait_migration('completed')


@pytest.mark.parametrize('said', (HELLO[:4], HELLO[:63]), ids=('magic', 'hello-but-one'))
def test_half_a_hello_then_gone(said, pair, make_route):
    src, dst = pair(2)
    route = make_route('unix')
    route.listen(dst)
    sock = connect_unix(route.path('.unix'))
    sock.sendall(said)
    assert_answers(dst)
    sock.close()
    time.sleep(0.1)
    perform_listening(src, dst, route)
    dst.ram.assert_same(src.ram)


def test_strangers_leave_nothing(pair, make_route):
    """However many say half a hello and leave, one after the other: none of them is kept open."""
    src, dst = pair(2, 'zstd')
    route = make_route('unix')
    route.listen(dst)

    def descriptors():
        return len(os.listdir(f'/proc/{dst.pid}/fd'))

    before = descriptors()
    for _ in range(200):
        with connect_unix(route.path('.unix')) as sock:
            sock.sendall(HELLO[:4])
        assert_answers(dst)
    assert descriptors() < before + 100
    perform_listening(src, dst, route)
    dst.ram.assert_same(src.ram)


@pytest.mark.parametrize('said', (HELLO[:4], HELLO[:63]), ids=('magic', 'hello-but-one'))
def test_half_a_hello_takes_no_place(said, pair, make_route):
    """Held open: the channels that the source opens are all welcome nevertheless."""
    src, dst = pair(2)
    route = make_route('unix')
    route.listen(dst)
    socks = [connect_unix(route.path('.unix')) for _ in range(5)]
    for sock in socks:
        sock.sendall(said)
    assert_answers(dst)
    perform_listening(src, dst, route)
    dst.ram.assert_same(src.ram)
    for sock in socks:
        sock.close()


def test_silent_connection(pair, make_route):
    """A main stream that is awaited for ever, a channel that is: the destination answers all the same."""
    _, dst = pair(3)
    route = make_route('unix')
    route.listen(dst)
    socks = [connect_unix(route.path('.unix')) for _ in range(4)]
    socks[0].sendall(b'QEVM\0\0\0\3')
    socks[1].sendall(HELLO)
    socks[2].sendall(HELLO[:20])
    dst.wait_migration('active')
    assert_answers(dst)
    for sock in socks:
        sock.close()
    assert dst.incoming_verdict() == 'failed'


@pytest.mark.parametrize('kind', ('tcp', 'unix'))
@pytest.mark.parametrize('channels', (64, 255))
def test_many_channels(channels, kind, pair, make_route):
    src, dst = pair(channels)
    for vm in (src, dst):
        vm.set_capabilities('return-path')
    route = make_route(kind)
    route.listen(dst)
    route.connect(src)
    assert_answers(src)
    assert_answers(dst)
    src.wait_migration('completed')
    dst.wait_migration('completed')
    dst.ram.assert_same(src.ram)
    assert len(src.migration()['x-multifd-channels']) == channels


# ---- not alike ----

UNLIKE = {
    'fewer-here': (dict(channels=2), dict(channels=4)),
    'more-here': (dict(channels=4), dict(channels=2)),
    'zstd-to-none': (dict(compression='zstd'), dict()),
    'none-to-zlib': (dict(), dict(compression='zlib')),
    'zlib-to-zstd': (dict(compression='zlib'), dict(compression='zstd')),
    'off-here': (None, dict()),
    'off-there': (dict(), None),
}


@pytest.mark.quick
@pytest.mark.parametrize('return_path', (True, False), ids=('return-path', 'one-way'))
@pytest.mark.parametrize('case', UNLIKE)
def test_unlike(case, return_path, godwit, make_vm, make_ram, make_route):
    """Whatever differs, the destination never takes the guest; with a return path the source knows."""
    src = make_vm(godwit, 'src', ram=make_ram(SIZE).fill_mixed(seed=6))
    dst = make_vm(godwit, 'dst', ram=make_ram(SIZE).fill(0xa5), incoming='defer')
    for vm, options in zip((src, dst), UNLIKE[case]):
        if options is not None:
            configure(vm, **options)
        if return_path:
            vm.set_capabilities('return-path')
    route = make_route('tcp')
    route.listen(dst)
    route.connect(src)
    assert dst.incoming_verdict() == 'failed'
    if return_path:
        src.wait_migration('failed')
        src.wait_run_state('running')
    else:
        src.wait_migration('failed', 'completed')
    assert_answers(src)


# ---- garbage, rounds ----

@pytest.mark.parametrize('detection', ('none', 'legacy', 'multifd'))
@pytest.mark.parametrize('compression', COMPRESSIONS)
@pytest.mark.parametrize('garbage', (0x00, 0xff))
def test_garbage(garbage, compression, detection, pair, make_route):
    src, dst = pair(3, compression, garbage=garbage)
    src.set_parameters(zero_page_detection=detection)
    perform(src, dst, make_route('unix'))
    dst.ram.assert_same(src.ram)


@pytest.mark.parametrize('share', (True, False), ids=('shared', 'private'))
@pytest.mark.parametrize('compression', COMPRESSIONS)
def test_rounds(compression, share, godwit, make_vm, make_ram, make_route):
    """Many rounds, the rate limit ending sections in the middle of them; all pages are checked afterwards."""
    properties = dict(pattern='random', rate='60M', working_set='16M', zero=20, compressible=40)
    machine = workload.machine(**properties)
    src = make_vm(godwit, 'src', ram=make_ram(GUEST, share=share), machine=machine)
    dst = make_vm(godwit, 'dst', ram=make_ram(GUEST, share=share), machine=machine, incoming='defer')
    workload.wait_written(src, 1000)
    for vm in (src, dst):
        configure(vm, 4, compression)
        vm.set_capabilities('return-path')
    src.set_parameters(max_bandwidth=30 * MIB, downtime_limit=1)
    route = make_route('unix')
    route.listen(dst)
    route.connect(src)
    poll(lambda: src.migration().get('ram', {}).get('dirty-sync-count', 0) >= 5, 60, 'five rounds')
    src.set_parameters(max_bandwidth=0, downtime_limit=2000)
    src.wait_migration('completed')
    dst.wait_migration('completed')
    dst.wait_run_state('running')
    workload.wait_written(dst, 500)
    workload.assert_verified(dst)


@pytest.mark.parametrize('compression', ('none', 'zstd'))
@pytest.mark.parametrize('channels', (1, 8))
def test_rate_limit(channels, compression, godwit, make_vm, make_ram, make_route):
    """What channels have been given counts, not only what they have sent: 12 MiB at 4 MiB/s take 3 s."""
    src = make_vm(godwit, 'src', ram=make_ram(12 * MIB).fill_bulk(zero_share=0))
    dst = make_vm(godwit, 'dst', ram=make_ram(12 * MIB), incoming='defer')
    for vm in (src, dst):
        configure(vm, channels, compression)
    src.set_parameters(max_bandwidth=4 * MIB, downtime_limit=1)
    perform(src, dst, make_route('unix'))
    dst.ram.assert_same(src.ram)
    assert src.migration()['total-time'] >= 2500


def test_pages_become_zero(godwit, make_vm, make_ram, make_route):
    """A page with data in one round, zero in a later one, and the other way round, also of a hole."""
    for compression in COMPRESSIONS:
        ram = make_ram(SIZE)
        src = make_vm(godwit, f'src-{compression}', ram=ram, qtest=True)
        dst = make_vm(godwit, f'dst-{compression}', ram=make_ram(SIZE).fill(0xee), incoming='defer')
        for vm in (src, dst):
            configure(vm, 2, compression)
        src.set_capabilities('pause-before-switchover')
        src.qtest.write(0, b'\x55' * PAGE * 64)
        route = make_route('unix')
        route.listen(dst)
        route.connect(src)
        src.wait_migration('pre-switchover')
        src.qtest.write(0, bytes(PAGE * 32))
        src.qtest.write(SIZE - PAGE * 5, b'\x77' * PAGE * 2)
        src.call('migrate-continue', state='pre-switchover')
        src.wait_migration('completed')
        dst.wait_migration('completed')
        dst.ram.assert_same(src.ram)
        for vm in (src, dst):
            vm.quit()


# ---- ends in the middle ----

def cut_one(relay, number, how):
    """Ends one connection, and leaves the others."""
    link = relay.links[number]
    if how == 'reset':
        linger = (1).to_bytes(4, 'little') + bytes(4)
        for sock in (link.near, link.far):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    for sock in (link.near, link.far):
        try:
            sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass        # it has ended by itself


def start_slowly(src, dst, route, bandwidth=8 * MIB):
    src.set_parameters(max_bandwidth=bandwidth, downtime_limit=1)
    route.listen(dst)
    route.connect(src)


def wait_channels(src, channels, nbytes):
    poll(lambda: src.migration().get('ram', {}).get('multifd-bytes', 0) >= nbytes, 60,
         f'{channels} channels carry {nbytes} bytes')


@pytest.mark.parametrize('compression', ('none', 'zstd'))
def test_channel_is_cut(compression, seed, guests, make_route):
    rng = random.Random(seed)
    src, dst = guests(3, compression)
    route = make_route('tcp', Faults())
    start_slowly(src, dst, route)
    wait_channels(src, 3, rng.randrange(1, 3 * MIB))
    poll(lambda: len(route.relay.links) == 4, 30, 'four connections')
    cut_one(route.relay, rng.randrange(1, 4), rng.choice(('close', 'reset')))
    assert_goes_on(src)
    assert dst.incoming_verdict() == 'failed'


def test_destination_is_killed(seed, guests, make_route):
    rng = random.Random(100 + seed)
    src, dst = guests(4, rng.choice(COMPRESSIONS))
    dst.expect_signal = 9
    start_slowly(src, dst, make_route('tcp'))
    wait_channels(src, 4, rng.randrange(1, 3 * MIB))
    dst.kill()
    assert_goes_on(src)


def test_source_is_killed(seed, guests, make_route):
    rng = random.Random(200 + seed)
    src, dst = guests(4, rng.choice(COMPRESSIONS))
    src.expect_signal = 9
    start_slowly(src, dst, make_route('tcp'))
    wait_channels(src, 4, rng.randrange(1, 3 * MIB))
    src.kill()
    assert dst.incoming_verdict() == 'failed'


@pytest.mark.parametrize('end', ('migrate_cancel', 'yank'))
def test_stopped_by_hand_and_again(seed, end, guests, make_route, godwit, make_vm, make_ram):
    rng = random.Random(300 + seed)
    src, dst = guests(2, rng.choice(COMPRESSIONS))
    start_slowly(src, dst, make_route('tcp'))
    wait_channels(src, 2, rng.randrange(1, 2 * MIB))
    if end == 'yank':
        src.call('yank', instances=[{'type': 'migration'}])
        src.wait_migration('failed')
    else:
        src.call('migrate_cancel')
        src.wait_migration('cancelled')
    assert dst.incoming_verdict() == 'failed'
    workload.wait_written(src, 500)
    again = make_vm(godwit, 'again', ram=make_ram(GUEST).fill(0x3c), incoming='defer', machine='workload')
    configure(again, 2, src.call('query-migrate-parameters')['multifd-compression'])
    again.set_capabilities('return-path')
    src.set_parameters(max_bandwidth=0, downtime_limit=2000)
    perform(src, again, make_route('unix'))
    workload.assert_verified(again)


@pytest.mark.parametrize('end', ('cancel', 'yank-destination'))
def test_stalled_channels_can_be_cancelled(end, guests, make_route):
    """Nothing is lost, nothing moves: the source waits for its channels, the destination for a sync."""
    src, dst = guests(2)
    route = make_route('unix', Faults(cut_after=MIB, how='stall'))
    src.set_parameters(max_bandwidth=0, downtime_limit=1)
    route.listen(dst)
    route.connect(src)
    poll(lambda: any(link.stalled for link in list(route.relay.links)), 30, 'a channel stalls')
    time.sleep(0.3)
    assert_answers(src)
    assert_answers(dst)
    if end == 'yank-destination':
        dst.call('yank', instances=[{'type': 'migration'}])
        assert dst.incoming_verdict() == 'failed'
    src.call('migrate_cancel')
    src.wait_migration('cancelled')
    workload.wait_written(src, 500)
    assert dst.incoming_verdict() == 'failed'


# ---- refusals ----

@pytest.mark.quick
@pytest.mark.parametrize('uri', ('exec:cat > /dev/null', 'fd:mig', 'file:{}/stream', 'rdma:127.0.0.1:4444'))
def test_not_with_this_transport(uri, godwit, make_vm, make_ram, folder):
    uri = uri.format(folder)
    src = make_vm(godwit, 'src', ram=make_ram(SIZE))
    dst = make_vm(godwit, 'dst', ram=make_ram(SIZE), incoming='defer')
    near, far = socket.socketpair()
    src.qmp.getfd('mig', near.fileno())
    dst.qmp.getfd('mig', far.fileno())
    for vm in (src, dst):
        configure(vm)
    assert src.try_call('migrate', uri=uri) == NOT_SEVERAL
    assert dst.try_call('migrate-incoming', uri=uri.replace('cat >', 'cat <')) == NOT_SEVERAL
    assert src.run_state == 'running'
    near.close()
    far.close()


@pytest.mark.quick
@pytest.mark.parametrize('first, second', (('multifd', 'xbzrle'), ('xbzrle', 'multifd')))
def test_not_with_xbzrle(first, second, godwit, make_vm, make_ram):
    vm = make_vm(godwit, 'vm', ram=make_ram(SIZE))
    vm.set_capabilities(first)
    refused = [{'capability': second, 'state': True}]
    assert vm.try_call('migrate-set-capabilities', capabilities=refused) == NOT_XBZRLE
    vm.set_capabilities(first, state=False)
    vm.set_capabilities(second)
    both = [{'capability': name, 'state': True} for name in (first, second)]
    assert vm.try_call('migrate-set-capabilities', capabilities=both) == NOT_XBZRLE


@pytest.mark.quick
@pytest.mark.parametrize('on', (True, False))
def test_values(on, godwit, make_vm, make_ram):
    vm = make_vm(godwit, 'vm', ram=make_ram(SIZE))
    vm.set_capabilities('multifd', state=on)
    for channels in (0, 256, 300, -1):
        text = vm.try_call('migrate-set-parameters', **{'multifd-channels': channels})
        assert text == 'Option multifd-channels expects a value between 1 and 255'
    for channels in (1, 255):
        vm.call('migrate-set-parameters', **{'multifd-channels': channels})
    for method in ('qpl', 'uadk', 'qatzip'):
        assert vm.try_call('migrate-set-parameters', **{'multifd-compression': method}) == \
            f'multifd-compression {method} is not supported: use none, zlib or zstd'
    assert vm.call('query-migrate-parameters')['multifd-compression'] == 'none'


# ---- zero copy ----

def test_zero_copy(guests, make_route):
    src, dst = guests(2)
    src.set_capabilities('zero-copy-send')
    src.set_parameters(max_bandwidth=0)
    perform(src, dst, make_route('tcp'))
    workload.assert_verified(dst)
    assert 'dirty-sync-missed-zero-copy' in src.migration()['ram']


def test_zero_copy_not_over_unix(pair, make_route):
    src, dst = pair(2)
    src.set_capabilities('zero-copy-send')
    route = make_route('unix')
    route.listen(dst)
    route.connect(src)
    info = src.wait_migration('failed')
    assert 'Zero copy send feature not detected in host kernel' in info['error-desc']
    src.wait_run_state('running')
    assert dst.migration_state() == 'setup'     # connections that leave without a word are none


@pytest.mark.quick
def test_zero_copy_needs_plain_multifd(godwit, make_vm, make_ram):
    vm = make_vm(godwit, 'vm', ram=make_ram(SIZE))
    wanted = [{'capability': 'zero-copy-send', 'state': True}]
    assert vm.try_call('migrate-set-capabilities', capabilities=wanted) == ZERO_COPY
    configure(vm, compression='zlib')
    assert vm.try_call('migrate-set-capabilities', capabilities=wanted) == ZERO_COPY
    vm.set_parameters(multifd_compression='none')
    vm.set_capabilities('zero-copy-send')
    assert vm.try_call('migrate-set-parameters', **{'multifd-compression': 'zstd'}) == ZERO_COPY

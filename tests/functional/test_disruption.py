# SPDX-License-Identifier: BSD-2-Clause
"""
Links that break, peers that die or do not fit, disks that are full: the guest goes on, and can be sent
again.
"""
import os
import random
import signal
import subprocess

import pytest
from godwit import captures
from godwit.ram import MIB, PAGE
from godwit.relay import Faults
from godwit.routes import perform

SIZE = 8 * MIB + 2 * PAGE


@pytest.fixture
def source(godwit, make_vm, make_ram):
    src = make_vm(godwit, 'src', ram=make_ram(SIZE).fill_mixed())
    src.set_capabilities('return-path')
    return src


@pytest.fixture
def destination(godwit, make_vm, make_ram):
    count = 0

    def make(size=SIZE, **options):
        nonlocal count
        count += 1
        return make_vm(godwit, f'dst{count}', ram=make_ram(size, **options).fill(0xa5), incoming='defer')
    return make


def goes_on(src, content):
    """Failed, with a reason; running, memory as it was."""
    info = src.wait_migration('failed')
    assert len(info.get('error-desc', '')) > 10, info
    src.wait_run_state('running')
    src.ram.assert_same(content)


def sent_again(src, destination, make_route):
    dst = destination()
    perform(src, dst, make_route('tcp'))
    dst.ram.assert_same(src.ram)
    dst.wait_run_state('running')


def stream_length(godwit, make_vm, make_ram, make_route):
    src = make_vm(godwit, 'length', ram=make_ram(SIZE).fill_mixed())
    src.set_capabilities('return-path')
    dst = make_vm(godwit, 'lengthdst', ram=make_ram(SIZE), incoming='defer')
    route = make_route('unix', Faults(record=True))
    perform(src, dst, route)
    return len(route.captured())


@pytest.mark.parametrize('how', ('close', 'reset'))
def test_cut_at_many_points(how, source, godwit, make_vm, make_ram, destination, make_route):
    """One source, cut again and again; the last attempt is left alone."""
    length = stream_length(godwit, make_vm, make_ram, make_route)
    rng = random.Random(1)
    points = [1, 4, 8, 13, 17, 30, 60, 0x100, 5000, length // 2, *(rng.randrange(length) for _ in range(6)),
              length - 2000, length - 1000, length - 900, length - 400, length - 1]
    content = source.ram.copy()
    for point in points:
        dst = destination()
        route = make_route('tcp', Faults(cut_after=point, how=how))
        route.listen(dst)
        route.connect(source)
        # Once the description alone is missing, the destination has all it needs and may say so.
        info = source.wait_migration()
        if info['status'] == 'completed':
            assert point > length - 1500, point
            dst.wait_run_state('running')
            dst.ram.assert_same(content)
            source.call('cont')         # a test may do so: that destination is thrown away
        else:
            goes_on(source, content)
            # Less than four bytes are no migration yet.
            assert point < 4 or dst.incoming_verdict() == 'failed' or point > length - 1500
        dst.reap()
    sent_again(source, destination, make_route)


def test_garbage_at_many_points(source, godwit, make_vm, make_ram, destination, make_route):
    """Bytes of the stream's frame spoiled on the way."""
    rng = random.Random(2)
    content = source.ram.copy()
    for point in (0, 5, 8, 12, 14, *(rng.randrange(20, 60) for _ in range(6))):
        dst = destination()
        route = make_route('unix', Faults(corrupt={point: b'\xde\xad\xbe\xef'}))
        route.listen(dst)
        route.connect(source)
        goes_on(source, content)
        assert dst.incoming_verdict() == 'failed'
    sent_again(source, destination, make_route)


@pytest.mark.parametrize('how', (signal.SIGKILL, signal.SIGTERM), ids=('kill', 'term'))
@pytest.mark.parametrize('passed', (1000, 500_000, 1_500_000))
def test_destination_ends(how, passed, source, destination, make_route):
    content = source.ram.copy()
    dst = destination()
    dst.expect_signal = how
    source.set_parameters(max_bandwidth=4 * MIB, downtime_limit=1)
    route = make_route('tcp', Faults(cut_after=passed, how='stall'))
    route.listen(dst)
    route.connect(source)
    route.relay.wait_passed(passed)
    dst.kill(how)
    dst.wait_exit()
    route.relay.cut()       # a link that stalls does not look at who has gone
    goes_on(source, content)
    source.set_parameters(max_bandwidth=0, downtime_limit=300)
    sent_again(source, destination, make_route)


@pytest.mark.parametrize('how', (signal.SIGKILL, signal.SIGTERM), ids=('kill', 'term'))
def test_source_ends(how, source, destination, make_route):
    dst = destination()
    source.expect_signal = how
    source.set_parameters(max_bandwidth=4 * MIB, downtime_limit=1)
    route = make_route('tcp', Faults(cut_after=500_000, how='stall'))
    route.listen(dst)
    route.connect(source)
    route.relay.wait_passed(500_000)
    source.kill(how)
    source.wait_exit()
    route.relay.cut()
    assert dst.incoming_verdict() == 'failed'


def test_stalled_link_can_be_cancelled(source, destination, make_route):
    dst = destination()
    route = make_route('tcp', Faults(cut_after=300_000, how='stall'))
    route.listen(dst)
    route.connect(source)
    route.relay.wait_passed(300_000)
    assert source.migration_state() in ('active', 'device')
    dst.wait_migration('active')
    source.call('migrate_cancel')
    source.wait_migration('cancelled')
    assert source.run_state == 'running'
    route.relay.cut()
    sent_again(source, destination, make_route)


@pytest.mark.parametrize('size', (SIZE - PAGE, SIZE + PAGE, 64 * PAGE))
def test_size_mismatch(size, source, destination, make_route):
    content = source.ram.copy()
    dst = destination(size=size)
    route = make_route('unix')
    route.listen(dst)
    route.connect(source)
    goes_on(source, content)
    assert dst.incoming_verdict() == 'failed'
    if not dst.alive:
        assert 'm0' in dst.stderr
    sent_again(source, destination, make_route)


def test_block_name_mismatch(source, destination, make_route):
    content = source.ram.copy()
    dst = destination(block='other')
    route = make_route('unix')
    route.listen(dst)
    route.connect(source)
    goes_on(source, content)
    assert dst.incoming_verdict() == 'failed'
    sent_again(source, destination, make_route)


def test_machine_mismatch(source, godwit, make_vm, make_ram, destination, make_route):
    content = source.ram.copy()
    dst = make_vm(godwit, 'workload', ram=make_ram(SIZE), incoming='defer', machine='workload')
    route = make_route('unix')
    route.listen(dst)
    route.connect(source)
    goes_on(source, content)
    assert dst.incoming_verdict() == 'failed'
    sent_again(source, destination, make_route)


@pytest.mark.quick
@pytest.mark.parametrize('uri', ('exec:cat > /dev/full', 'exec:false', 'exec:exit 3',
                                 'exec:head -c 1000 > /dev/null', 'exec:exec <&-; sleep 0.1; exit 1'))
def test_command_fails(uri, source, destination, make_route):
    content = source.ram.copy()
    source.set_capabilities('return-path', state=False)
    source.call('migrate', uri=uri)
    goes_on(source, content)
    sent_again(source, destination, make_route)


def test_disk_full(source, destination, make_route, folder):
    if os.geteuid() != 0:
        pytest.skip('mounting a small tmpfs needs root')
    small = os.path.join(folder, 'small')
    os.mkdir(small)
    mounted = subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', small],
                             capture_output=True,
                             text=True,
                             check=False)
    if mounted.returncode:
        pytest.skip(f'a tmpfs cannot be mounted: {mounted.stderr.strip()}')
    try:
        content = source.ram.copy()
        source.set_capabilities('return-path', state=False)
        source.call('migrate', uri=f'file:{small}/saved')
        goes_on(source, content)
        assert 'No space left' in source.migration()['error-desc']
        source.call('migrate', uri=f'exec:cat > {small}/saved')
        goes_on(source, content)
        sent_again(source, destination, make_route)
    finally:
        subprocess.run(['umount', small], check=True)


@pytest.mark.quick
def test_immediate_errors_leave_all_as_it_was(source, destination, make_route, folder):
    for uri in ('file:/nonexistent/x', 'fd:nosuch', 'foo:bar', 'tcp:localhost', 'unix:'):
        text = source.try_call('migrate', uri=uri)
        assert text
        assert source.run_state == 'running'
    sent_again(source, destination, make_route)


@pytest.mark.quick
def test_connection_refused(source, destination, make_route, folder):
    content = source.ram.copy()
    for uri in ('tcp:127.0.0.1:1', f'unix:{folder}/nosuch', 'tcp:nohost.invalid:1'):
        source.call('migrate', uri=uri)
        goes_on(source, content)
    sent_again(source, destination, make_route)


def test_garbage_instead_of_a_stream(godwit, make_vm, make_ram, folder):
    """Through the transports that read: fd and exec and file."""
    junk = os.path.join(folder, 'junk')
    with open(junk, 'wb') as f:
        f.write(b'GET / HTTP/1.1\r\n' * 100)
    cut = os.path.join(folder, 'cut')
    with open(cut, 'wb') as f:
        f.write(captures.load('plain-11.1')[:9000])
    for number, uri in enumerate(
        (f'exec:cat {junk}', f'file:{junk}', 'exec:false', f'file:{cut}', f'exec:cat {cut}', 'exec:true')):
        dst = make_vm(godwit, f'dst{number}', ram=make_ram(64 * PAGE), incoming='defer')
        dst.call('migrate-incoming', uri=uri)
        assert dst.incoming_verdict() == 'failed', uri

# SPDX-License-Identifier: BSD-2-Clause
"""
Guests saved to files and restored, live and under fire: chains of saves under a workload, disks that fail or
are full or slow, memory that held something else, what may not be combined, and guests that run before their
memory is read.
"""
import os
import resource
import subprocess
import time

import pytest
from godwit import workload
from godwit.deadline import poll
from godwit.qmp import QmpError
from godwit.ram import MIB, PAGE, Memfd
from godwit.routes import perform

SIZE = 24 * MIB + 3 * PAGE
GUEST = 32 * MIB
SEEKABLE = 'Migration requires seekable transport (e.g. file)'
GUEST_MACHINE = dict(pattern='random', rate='200M', working_set='16M', zero=20, compressible=20)

# What a mapped-ram file may hold beside the pages: bitmap, alignment of one block, the rest of the stream.
ROOM = MIB + 256 * 1024

MODES = {
    'plain': ((), {}),
    'mapped': (('mapped-ram',), {}),
    'mapped+direct': (('mapped-ram',), {'direct_io': True}),
    'multifd': (('mapped-ram', 'multifd'), {'multifd_channels': 4}),
    'multifd+direct': (('mapped-ram', 'multifd'), {'multifd_channels': 2, 'direct_io': True}),
    'lazy': (('mapped-ram',), {'x_mapped_ram_lazy': True}),
}


def configure(vm, mode, **parameters):
    capabilities, values = MODES[mode]
    if capabilities:
        vm.set_capabilities(*capabilities)
    vm.set_parameters(**{'max_bandwidth': 0, **values, **parameters})


@pytest.fixture
def guest(godwit, make_vm, make_ram):
    """guest(name, mode) -> a VM of machine workload; incoming ones have memory full of garbage."""
    def make(name, mode, incoming=None, fault=None, **parameters):
        environment = {'GODWIT_FAULT': fault} if fault else {}
        vm = make_vm(godwit, name, ram=make_ram(GUEST).fill(0x5a if incoming else 0), incoming=incoming,
                     machine=workload.machine(**GUEST_MACHINE), environment=environment)
        configure(vm, mode, **parameters)
        if not incoming:
            workload.wait_written(vm, 1000)
        return vm
    return make


@pytest.fixture
def image(pytestconfig):
    """image(path) -> exit status of `godwit-image check`."""
    tool = os.path.join(os.path.abspath(pytestconfig.getoption('--build-dir')), 'tools', 'godwit-image')

    def check(path):
        return subprocess.run([tool, 'check', path], capture_output=True, timeout=120, check=False).returncode
    return check


def save(vm, path, seconds=120):
    vm.call('migrate', uri=f'file:{path}')
    return vm.wait_migration('completed', seconds=seconds)


def load(vm, path, seconds=120):
    vm.call('migrate-incoming', uri=f'file:{path}')
    return vm.wait_migration('completed', seconds=seconds)


# ---- live, again and again ----

@pytest.mark.parametrize('mode', [mode for mode in MODES if mode != 'plain'])
def test_chain(mode, guest, folder, image):
    """Ten times saved while it runs, and restored: each time the guest finds its memory as it left it."""
    path = os.path.join(folder, 'guest')
    vm = guest('vm0', mode)
    for i in range(1, 11):
        save(vm, path)
        assert os.stat(path).st_size <= GUEST + ROOM
        assert image(path) == 0
        vm.quit()
        vm.ram.remove()
        vm = guest(f'vm{i}', mode, incoming='defer')
        load(vm, path)
        vm.wait_run_state('running')
        workload.wait_written(vm, 500)
        workload.assert_verified(vm)


@pytest.mark.parametrize('mode', ('mapped', 'multifd+direct'))
def test_many_rounds(mode, guest, folder):
    """A guest that writes faster than the file may grow: pages are rewritten in place, many times."""
    path = os.path.join(folder, 'guest')
    src = guest('src', mode, max_bandwidth=64 * MIB, downtime_limit=10)
    src.call('migrate', uri=f'file:{path}')
    poll(lambda: src.migration().get('ram', {}).get('dirty-sync-count', 0) > 4, 60, 'some rounds')
    src.set_parameters(max_bandwidth=0, downtime_limit=5000)
    src.wait_migration('completed')
    assert os.stat(path).st_size <= GUEST + ROOM
    dst = guest('dst', mode, incoming='defer')
    load(dst, path)
    workload.assert_verified(dst)


# ---- disks that fail ----

@pytest.mark.parametrize('mode', ('mapped', 'multifd'))
@pytest.mark.parametrize('fault', ('file-io-enospc', 'file-io-eio'))
def test_failing_write(fault, mode, guest, folder, image):
    path = os.path.join(folder, 'guest')
    src = guest('src', mode, fault=f'{fault}:20')
    src.call('migrate', uri=f'file:{path}')
    reason = src.wait_migration('failed')['error-desc']
    assert 'Unable to write page 0x' in reason and "of RAM block 'm0' at offset 0x" in reason
    assert image(path) == 1
    src.wait_run_state('running')
    workload.wait_written(src, 500)
    workload.assert_verified(src)
    # What is left of it is taken for a guest by nobody.
    dst = guest('dst', mode, incoming='defer')
    dst.call('migrate-incoming', uri=f'file:{path}', **{'exit-on-error': False})
    assert 'incomplete' in dst.wait_migration('failed')['error-desc']
    assert dst.ram.read() == b'\x5a' * GUEST
    # The next attempt is a good one.
    save(src, path)
    assert image(path) == 0


@pytest.mark.parametrize('mode', ('mapped', 'multifd'))
def test_disturbed_transfers(mode, guest, folder):
    """EINTR and short transfers on both sides are nobody's business."""
    path = os.path.join(folder, 'guest')
    fault = ','.join(f'file-io-{what}:{number}' for what in ('eintr', 'short') for number in (1, 5, 6, 20))
    src = guest('src', mode, fault=fault)
    save(src, path)
    dst = guest('dst', mode, incoming='defer', fault=fault)
    load(dst, path)
    workload.assert_verified(dst)


@pytest.mark.parametrize('mode', ('plain', 'mapped', 'multifd+direct'))
def test_failing_sync(mode, guest, folder, image):
    """All was written, but is not on the disk: the guest runs on, so it must not be in the file as well."""
    path = os.path.join(folder, 'guest')
    src = guest('src', mode, fault='migration-file-sync:1', x_file_fsync=True)
    src.call('migrate', uri=f'file:{path}')
    src.wait_migration('failed')
    src.wait_run_state('running')
    assert image(path) == 1
    dst = guest('dst', mode, incoming='defer')
    dst.call('migrate-incoming', uri=f'file:{path}', **{'exit-on-error': False})
    dst.wait_migration('failed')
    workload.wait_written(src, 500)
    save(src, path)
    assert image(path) == 0


@pytest.fixture
def small_disk(folder):
    """A file system that has room for a third of the guest."""
    where = os.path.join(folder, 'disk')
    os.mkdir(where)
    made = subprocess.run(['mount', '-t', 'tmpfs', '-o', f'size={GUEST // 3}', 'tmpfs', where],
                          capture_output=True, text=True, timeout=30, check=False)
    if made.returncode:
        pytest.skip(f'no file system can be mounted here: {made.stderr.strip()}')
    yield where
    subprocess.run(['umount', '-l', where], timeout=30, check=True)


@pytest.mark.parametrize('mode', [mode for mode in MODES if mode != 'lazy'])
def test_full_disk(mode, guest, small_disk):
    src = guest('src', mode)
    src.call('migrate', uri=f'file:{small_disk}/guest')
    assert 'No space left on device' in src.wait_migration('failed')['error-desc']
    src.wait_run_state('running')
    workload.wait_written(src, 500)
    workload.assert_verified(src)


@pytest.mark.parametrize('mode', [mode for mode in MODES if mode != 'lazy'])
def test_file_size_limit(mode, guest, folder):
    """ulimit -f: a file that may not grow ends the migration, not the guest."""
    src = guest('src', mode)
    resource.prlimit(src.pid, resource.RLIMIT_FSIZE, (GUEST // 4, GUEST // 4))
    src.call('migrate', uri=f'file:{folder}/guest')
    assert 'File too large' in src.wait_migration('failed')['error-desc']
    src.wait_run_state('running')
    workload.wait_written(src, 500)
    workload.assert_verified(src)


def test_slow_disk(guest, folder):
    """Writes that take seconds: the monitor does not wait for them, and a cancel need not wait for all."""
    delays = ','.join(f'file-io-submit:{number}:delay=10000' for number in range(2, 12))
    src = guest('src', 'mapped', fault=delays)
    src.call('migrate', uri=f'file:{folder}/guest')
    slowest = 0
    for _ in range(20):
        src.call('query-migrate')
        slowest = max(slowest, src.qmp.latency)
        time.sleep(0.1)
    assert src.migration_state() == 'active'
    assert slowest < 8, 'an answer took as long as a write'
    src.call('migrate_cancel')
    src.wait_migration('cancelled')
    workload.wait_written(src, 500)
    workload.assert_verified(src)


# ---- memory that held something else ----

@pytest.mark.parametrize('mode', MODES)
@pytest.mark.parametrize('kind', ('file', 'memfd', 'private'))
def test_garbage(kind, mode, godwit, make_vm, make_ram, make_route):
    """Every page, zero ones too, is what it was at the source."""
    if kind == 'file':
        ram = make_ram(SIZE).fill(0xa5)
    elif kind == 'memfd':
        ram = Memfd(SIZE)
    else:
        ram = make_ram(SIZE, share=False).fill(0xa5)
    src = make_vm(godwit, 'src', ram=make_ram(SIZE).fill_mixed(seed=7))
    dst = make_vm(godwit, 'dst', ram=ram, incoming='defer', qtest=True)
    for vm in (src, dst):
        configure(vm, mode)
    if kind == 'memfd':
        for at in range(0, SIZE, 64 * PAGE):
            dst.qtest.memset(at, min(64 * PAGE, SIZE - at), 0xa5)
    perform(src, dst, make_route('file'))
    if kind == 'private':
        wanted = src.ram.read()
        for at in range(0, SIZE, MIB):
            assert dst.qtest.read(at, min(MIB, SIZE - at)) == wanted[at:at + MIB]
    else:
        if kind == 'memfd':
            dst.ram.attach(dst.pid)
        dst.ram.assert_same(src.ram)


@pytest.mark.parametrize('mode', ('mapped', 'multifd+direct', 'lazy'))
def test_empty_memory_stays_empty(mode, godwit, make_vm, make_ram, make_route):
    """Memory that nobody has written to costs nothing at the destination, and nothing in the file."""
    size = 256 * MIB
    src = make_vm(godwit, 'src', ram=make_ram(size))
    dst = make_vm(godwit, 'dst', ram=make_ram(size), incoming='defer')
    for vm in (src, dst):
        configure(vm, mode)
    route = make_route('file')
    perform(src, dst, route)
    for path in (src.ram.path, dst.ram.path, route.file):
        assert os.stat(path).st_blocks * 512 < MIB


@pytest.mark.parametrize('mode', MODES)
def test_file_is_let_go(mode, guest, folder):
    """What was saved, cancelled or restored holds no descriptor of the file: deleted, it is gone."""
    path = os.path.join(folder, 'guest')

    def holders(vm):
        where = f'/proc/{vm.pid}/fd'
        return [n for n in os.listdir(where) if os.readlink(os.path.join(where, n)).startswith(path)]
    src = guest('src', mode)
    save(src, path)
    poll(lambda: not holders(src), 30, 'the source closes the file')
    dst = guest('dst', mode, incoming='defer')
    with open(path, 'rb') as whole, open(path + '.cut', 'wb') as cut:
        cut.write(whole.read(3 * MIB))
    dst.call('migrate-incoming', uri=f'file:{path}.cut', **{'exit-on-error': False})
    dst.wait_migration('failed')
    poll(lambda: not holders(dst), 30, 'the destination closes what it refused')
    load(dst, path)
    poll(lambda: not holders(dst), 30, 'the destination closes the file')


# ---- offsets ----

@pytest.mark.parametrize('mode', [mode for mode in MODES if mode != 'lazy'])
@pytest.mark.parametrize('offset', (0, 4096, 0x11921))
def test_offset(offset, mode, godwit, make_vm, make_ram, folder):
    """What is before the offset stays, what was behind the end goes."""
    path = os.path.join(folder, 'guest')
    head = os.urandom(offset)
    with open(path, 'wb') as f:
        f.write(head + b'\xee' * (SIZE + 4 * MIB))
    src = make_vm(godwit, 'src', ram=make_ram(SIZE).fill_mixed(seed=9))
    dst = make_vm(godwit, 'dst', ram=make_ram(SIZE).fill(0xa5), incoming='defer')
    for vm in (src, dst):
        configure(vm, mode)
    uri = f'file:{path},offset={offset:#x}'
    src.call('migrate', uri=uri)
    src.wait_migration('completed')
    with open(path, 'rb') as f:
        content = f.read()
    assert content[:offset] == head
    assert b'\xee' * PAGE not in content
    assert content.endswith(b'}'), 'the description is the end of the file'
    dst.call('migrate-incoming', uri=uri)
    dst.wait_migration('completed')
    dst.ram.assert_same(src.ram)


# ---- what is refused, what is done without ----

@pytest.mark.quick
@pytest.mark.parametrize('capabilities', (('return-path',), ('return-path', 'switchover-ack')), ids=','.join)
@pytest.mark.parametrize('mode', ('plain', 'mapped', 'multifd'))
def test_return_path_is_left_on(mode, capabilities, guest, folder):
    """A file cannot answer, and is not asked to: real peers fail here."""
    path = os.path.join(folder, 'guest')
    src, dst = guest('src', mode), guest('dst', mode, incoming='defer')
    for vm in (src, dst):
        vm.set_capabilities(*capabilities)
    save(src, path)
    load(dst, path)
    workload.assert_verified(dst)


def test_not_seekable(godwit, make_vm, make_ram, folder):
    pipe = os.path.join(folder, 'pipe')
    os.mkfifo(pipe)
    src = make_vm(godwit, 'src', ram=make_ram(SIZE))
    dst = make_vm(godwit, 'dst', ram=make_ram(SIZE), incoming='defer')
    for vm in (src, dst):
        configure(vm, 'mapped')
    for uri in (f'file:{pipe}', 'tcp:127.0.0.1:0', f'unix:{folder}/x', 'exec:cat'):
        assert src.try_call('migrate', uri=uri) == SEEKABLE
        assert dst.try_call('migrate-incoming', uri=uri) == SEEKABLE
    assert src.try_call('migrate', uri='file:/dev/null') == \
        'failed to truncate migration file to offset 0: Invalid argument'
    assert dst.try_call('migrate-incoming', uri='file:/dev/null') == SEEKABLE
    configure(src, 'multifd')
    save(src, f'{folder}/guest')


@pytest.mark.quick
@pytest.mark.parametrize('mode', ('mapped', 'multifd+direct'))
def test_appending(mode, godwit, make_vm, make_ram, folder):
    """With O_APPEND nothing gets to its place, and the kernel says nothing."""
    path = os.path.join(folder, 'guest')
    vm = make_vm(godwit, 'src', ram=make_ram(SIZE).fill_mixed(seed=3))
    configure(vm, mode)
    for flags in (os.O_WRONLY, os.O_WRONLY | os.O_DIRECT | os.O_APPEND, os.O_WRONLY | os.O_APPEND):
        fd = os.open(path, os.O_CREAT | flags, 0o600)
        vm.qmp.execute('add-fd', {'fdset-id': 1}, fds=[fd])
        os.close(fd)
        if flags != os.O_WRONLY | os.O_APPEND:
            save(vm, '/dev/fdset/1')
            dst = make_vm(godwit, f'dst{flags}', ram=make_ram(SIZE).fill(0xa5), incoming='defer')
            configure(dst, mode)
            load(dst, path)
            dst.ram.assert_same(vm.ram)
            vm.call('cont')
    before = os.path.getsize(path)
    assert vm.try_call('migrate', uri='file:/dev/fdset/1') == \
        "'/dev/fdset/1' is open with O_APPEND: pages cannot be written at their places"
    assert os.path.getsize(path) == before and vm.run_state == 'running'


@pytest.mark.quick
@pytest.mark.parametrize('other, text', (
    ('xbzrle', 'Mapped-ram migration is incompatible with xbzrle'),
    ('postcopy-ram', 'not supported yet'),
))
def test_not_with(other, text, godwit, make_vm, make_ram):
    for order in (('mapped-ram', other), (other, 'mapped-ram')):
        vm = make_vm(godwit, '-'.join(order), ram=make_ram(SIZE))
        try:
            for name in order:
                vm.set_capabilities(name)
        except QmpError as error:
            assert text in error.desc
        else:
            raise AssertionError(f'{order} were accepted')


@pytest.mark.parametrize('fault', ('page-file-direct', 'file-io-uring'))
def test_without(fault, godwit, make_vm, make_ram, make_route):
    """Where the host refuses O_DIRECT or io_uring, the rest does it; the log and query-migrate say so."""
    faults = ','.join(f'{fault}:{number}' for number in range(1, 9))
    src = make_vm(godwit, 'src', ram=make_ram(SIZE).fill_mixed(seed=2), environment={'GODWIT_FAULT': faults})
    dst = make_vm(godwit, 'dst', ram=make_ram(SIZE).fill(0xa5), incoming='defer',
                  environment={'GODWIT_FAULT': faults})
    for vm in (src, dst):
        configure(vm, 'multifd+direct')
    perform(src, dst, make_route('file'))
    dst.ram.assert_same(src.ram)
    for vm in (src, dst):
        info = vm.migration()['x-file']
        if fault == 'page-file-direct':
            assert not info['direct-io'] and 'direct-io: ' in vm.stderr
        else:
            assert info['engine'] == 'threads'
    assert 'mapped-ram: pages are written by' in src.stderr


def test_ignore_shared(godwit, make_vm, make_ram, folder):
    """Shared memory is not in the file: the destination has it already."""
    path = os.path.join(folder, 'guest')
    ram = make_ram(SIZE).fill_mixed(seed=4)
    src = make_vm(godwit, 'src', ram=ram)
    dst = make_vm(godwit, 'dst', ram=ram, incoming='defer')
    other = make_vm(godwit, 'other', ram=make_ram(SIZE, share=False).fill(0), incoming='defer')
    before = ram.read()
    for vm in (src, dst, other):
        configure(vm, 'multifd')
        vm.set_capabilities('x-ignore-shared')
    save(src, path)
    assert os.stat(path).st_size < 64 * 1024
    load(dst, path)
    assert ram.read() == before
    other.call('migrate-incoming', uri=f'file:{path}', **{'exit-on-error': False})
    assert "RAM block 'm0' is not in the file" in other.wait_migration('failed')['error-desc']


# ---- lazy ----

def has_userfaultfd(vm):
    folder = f'/proc/{vm.pid}/fd'
    return any('userfaultfd' in os.readlink(os.path.join(folder, name)) for name in os.listdir(folder))


def lazy_or_skip(dst):
    if 'all memory is read before the guest runs' in dst.stderr:
        pytest.skip(dst.stderr.strip())


def test_lazy_guest_runs_at_once(guest, folder):
    """The guest runs while most of its memory is still in the file; then userfaultfd is taken away."""
    path = os.path.join(folder, 'guest')
    src = guest('src', 'mapped')
    save(src, path)
    # Those who read beside the guest, one for a processor and at most 4, and who reads what it touches: all
    # have to wait.
    threads = min(len(os.sched_getaffinity(0)), 4) + 1
    delays = ','.join(f'mapped-ram-lazy-read:{number}:delay=10000' for number in range(3, 3 + threads))
    dst = guest('dst', 'lazy', incoming='defer', fault=delays)
    dst.call('migrate-incoming', uri=f'file:{path}')
    dst.wait_run_state('running')
    lazy_or_skip(dst)
    info = dst.migration()
    assert info['status'] == 'postcopy-active' and info['x-file']['lazy']
    assert info['x-file']['pages-left'] > 0 and has_userfaultfd(dst)
    assert dst.try_call('migrate', uri=f'file:{folder}/other') == \
        'Guest memory is still being read from the file it was saved to'
    dst.wait_migration('completed')
    assert not has_userfaultfd(dst)
    workload.wait_written(dst, 500)
    workload.assert_verified(dst)
    save(dst, path)


def test_lazy_read_error(guest, folder):
    """A page that cannot be read stops the guest, with page and offset, and it is not to go on."""
    path = os.path.join(folder, 'guest')
    src = guest('src', 'mapped')
    save(src, path)
    dst = guest('dst', 'lazy', incoming='defer', fault='mapped-ram-lazy-read:40')
    dst.call('migrate-incoming', uri=f'file:{path}')
    reason = dst.wait_migration('failed')['error-desc']
    assert 'Unable to read page 0x' in reason and "of RAM block 'm0' from offset 0x" in reason
    assert 'Input/output error' in reason
    assert dst.run_state == 'internal-error'
    assert not has_userfaultfd(dst)
    assert len(dst.try_call('cont')) > 10
    assert len(dst.try_call('migrate', uri=f'file:{folder}/other')) > 10
    written = workload.query(dst)['pages-written']
    time.sleep(0.3)
    assert workload.query(dst)['pages-written'] == written


def test_lazy_quit(guest, folder):
    """A VM whose memory is still on its way can be ended."""
    path = os.path.join(folder, 'guest')
    src = guest('src', 'mapped')
    save(src, path)
    dst = guest('dst', 'lazy', incoming='defer', fault='mapped-ram-lazy-read:3:delay=2000')
    dst.call('migrate-incoming', uri=f'file:{path}')
    dst.wait_run_state('running')
    dst.quit()

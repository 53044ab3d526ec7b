# SPDX-License-Identifier: BSD-2-Clause
"""
Virtio devices on machine pico as seen from outside: what -device and -drive refuse, who has the disk during a
migration, and what a destination refuses. The guest here has no driver; tests/kvm has a Linux.
"""
import os
import signal
import subprocess

import pytest
from godwit import guest
from godwit.deadline import poll
from godwit.routes import perform

LIGHT = {'set': 200, 'nap': 20000}
DISK = 1 << 20

SERIAL = ('-device', 'virtio-serial-device', '-device', 'virtconsole,chardev=a')

REFUSED = [
    (['-device', 'x'], "-device x: 'x' is not a valid device model name\n"),
    (['-device', 'virtio-rng-device,drive=a'],
     "-device virtio-rng-device,drive=a: Invalid parameter 'drive'\n"),
    (['-device', 'virtio-blk-device'], '-device virtio-blk-device: drive property not set\n'),
    (['-device', 'virtio-blk-device,drive=a'],
     "-device virtio-blk-device,drive=a: Property 'virtio-blk-device.drive' can't find value 'a'\n"),
    (['-drive', 'id=a,file=/dev/null'],
     '-drive id=a,file=/dev/null: only if=none is supported, with a -device virtio-blk-device,drive=ID\n'),
    (['-drive', 'if=none,id=a,file=/dev/null,format=qcow2'],
     "-drive if=none,id=a,file=/dev/null,format=qcow2: format 'qcow2' is not supported, only raw\n"),
    (['-drive', 'if=none,id=a,file=x', '-drive', 'if=none,id=a,file=y'],
     "-drive if=none,id=a,file=y: Duplicate ID 'a' for drive\n"),
    (['-drive', 'if=none,id=a,file=/nonexistent', '-device', 'virtio-blk-device,drive=a'],
     "-device virtio-blk-device,drive=a: drive 'a': cannot open '/nonexistent': No such file or directory\n"),
    (['-device', 'virtio-rng-device'] * 9,
     '-device virtio-rng-device: machine pico has room for 8 virtio devices\n'),
    (['-device', 'virtconsole'], '-device virtconsole: chardev property not set\n'),
    (['-device', 'virtconsole,chardev=a'],
     "-device virtconsole,chardev=a: Property 'virtconsole.chardev' can't find value 'a'\n"),
    (['-chardev', 'null,id=a', '-device', 'virtconsole,chardev=a'],
     '-device virtconsole,chardev=a: there is no virtio-serial-device before it that has its port free\n'),
    (['-chardev', 'null,id=a', *SERIAL, *SERIAL],
     "-device virtconsole,chardev=a: chardev 'a' is already in use\n"),
    (['-chardev', 'null,id=a', *SERIAL, '-serial', 'chardev:a'], "Device 'a' is in use\n"),
    (['-chardev', 'null,id=a', '-serial', 'chardev:a', '-serial', 'chardev:a'], "Device 'a' is in use\n"),
]


@pytest.fixture
def disk(folder):
    path = os.path.join(folder, 'disk.img')
    with open(path, 'wb') as f:
        f.truncate(DISK)
    return path


def devices(path, *more, drive=''):
    return ['-drive', f'if=none,id=d0,file={path},format=raw{drive}', '-device',
            'virtio-blk-device,drive=d0,serial=D0', *more]


RNG = ('-device', 'virtio-rng-device')


@pytest.fixture
def make(godwit, make_vm, kernel):
    def make(name, options, incoming=None, environment=None):
        vm = make_vm(godwit, name, incoming=incoming, machine='pico', environment=environment,
                     options=guest.options(kernel, 'stamp', pattern='random', **LIGHT) + list(options))
        vm.set_capabilities('return-path')
        if not incoming:
            vm.set_parameters(max_bandwidth=0, downtime_limit=1000)
            guest.wait_steps(vm, 20)
        return vm
    return make


def start_beside(godwit, kernel, options):
    """A machine of its own with @options: (exit status, what it says)."""
    words = guest.options(kernel, 'exit', status=1) + ['-nodefaults', '-display', 'none', '-monitor', 'none']
    result = subprocess.run([godwit.path, '-M', 'pico', *words, *options], capture_output=True, text=True,
                            timeout=30)
    return result.returncode, result.stderr


@pytest.mark.quick
@pytest.mark.parametrize('words,message', REFUSED, ids=range(len(REFUSED)))
def test_refused(words, message, godwit, kernel):
    result = subprocess.run([godwit.path, '-M', 'pico', '-accel', 'kvm', '-incoming', 'defer', *words],
                            capture_output=True, text=True, timeout=30)
    assert result.returncode == 1
    assert result.stderr == 'godwit: ' + message


@pytest.mark.quick
def test_shared_disk(make, disk, make_route, godwit, kernel):
    """One machine has the disk at any time; it changes hands with the guest, there and back."""
    src = make('src', devices(disk, *RNG))
    dst = make('dst', devices(disk, *RNG), incoming='defer')
    status, text = start_beside(godwit, kernel, devices(disk))
    assert status == 1 and 'which another process uses' in text
    perform(src, dst, make_route('unix'))
    guest.wait_sweeps(dst, 1)
    status, text = start_beside(godwit, kernel, devices(disk))
    assert status == 1 and 'which another process uses' in text
    dst.quit()
    # The source has let go of it: who looks now finds it free.
    assert start_beside(godwit, kernel, devices(disk)) == (3, '')


def test_readonly_disk(make, disk, godwit, kernel):
    """Several may read one disk, while nobody writes to it."""
    os.chmod(disk, 0o444)
    make('reader', devices(disk, drive=',readonly=on'))
    assert start_beside(godwit, kernel, devices(disk, drive=',readonly=on')) == (3, '')
    if os.geteuid() == 0:
        assert start_beside(godwit, kernel, devices(disk))[0] == 1


def assert_fails(src, dst, route):
    route.listen(dst)
    route.connect(src)
    assert src.wait_migration('failed')['error-desc']
    src.wait_run_state('running')
    guest.wait_sweeps(src, 1)


@pytest.mark.parametrize('side,point,number', (('src', 'virtio-blk-flush', 1), ('dst', 'virtio-blk-lock', 1)))
def test_fault(side, point, number, make, disk, make_route, faults, godwit, kernel):
    """The guest runs on and has its disk; a second attempt succeeds."""
    vms = {}
    for name in ('src', 'dst'):
        environment = {'GODWIT_FAULT': f'{point}:{number}'} if name == side else None
        vms[name] = make(name, devices(disk), 'defer' if name == 'dst' else None, environment)
    assert_fails(vms['src'], vms['dst'], make_route('unix'))
    assert 'which another process uses' in start_beside(godwit, kernel, devices(disk))[1]
    good = make('good', devices(disk), incoming='defer')
    perform(vms['src'], good, make_route('unix'))
    guest.wait_sweeps(good, 1)


# Where the hand-over is made to fail: after the source has let go of the disk, and most often when the
# destination has it already.  "kill": the process dies there.
HAND_OVER = [('src', 'migration-handover:1'), ('src', 'savevm-eof:1'),
             ('dst', 'incoming-start-guest:1'), ('dst', 'machine-start:1'), ('dst', 'loadvm-eof:1'),
             ('dst', 'incoming-start-guest:1:kill'), ('dst', 'machine-start:1:kill'),
             ('dst', 'virtio-blk-lock:1:kill'), ('dst', 'return-path-write:{last}'),
             ('dst', 'return-path-write:{last}:kill')]


def count_passes(make, disk, route, point):
    """How often does the destination of a migration pass @point?"""
    trace = f'{disk}.trace'
    src = make('count-src', devices(disk))
    dst = make('count-dst', [*devices(disk), '-trace', 'fault_pass', '-D', trace], incoming='defer')
    perform(src, dst, route)
    src.quit()
    dst.quit()
    dst.reap()
    with open(trace) as f:
        passes = sum(f'fault_pass {point} ' in line + ' ' for line in f.read().splitlines())
    assert passes
    return passes


@pytest.mark.parametrize('exits', (True, False))
@pytest.mark.parametrize('side,fault', HAND_OVER, ids=[f'{side}-{fault}' for side, fault in HAND_OVER])
def test_hand_over(side, fault, exits, make, disk, make_route, faults, godwit, kernel):
    """Wherever it fails, the source's guest goes on and has its disk, also if the destination lives on."""
    if '{last}' in fault:
        fault = fault.format(last=count_passes(make, disk, make_route('unix'), fault.partition(':')[0]))
    vms = {}
    for name in ('src', 'dst'):
        environment = {'GODWIT_FAULT': fault} if name == side else None
        vms[name] = make(name, devices(disk), 'defer' if name == 'dst' else None, environment)
    src, dst = vms['src'], vms['dst']
    if fault.endswith(':kill'):
        dst.expect_signal = signal.SIGKILL
    uri = f'unix:{disk}.sock'
    dst.call('migrate-incoming', uri=uri, **{'exit-on-error': exits})
    src.call('migrate', uri=uri)
    assert src.wait_migration('failed')['error-desc']
    src.wait_run_state('running')
    guest.wait_sweeps(src, 1)
    assert not exits or dst.wait_exit() in (1, -signal.SIGKILL)
    # Nobody else has it.
    poll(lambda: 'which another process uses' in start_beside(godwit, kernel, devices(disk))[1], 60,
         'the lock')
    assert 'requests' not in src.stderr
    good = make('good', devices(disk), incoming='defer')
    perform(src, good, make_route('tcp'))
    guest.wait_sweeps(good, 1)
    assert 'which another process uses' in start_beside(godwit, kernel, devices(disk))[1]
    if not exits and not fault.endswith(':kill'):
        dst.quit()


def test_snapshot_goes_on(make, disk, make_route, godwit, kernel):
    """A guest that was saved to a file has its disk when it goes on, unless others have written to it."""
    src = make('src', devices(disk))
    src.set_capabilities('return-path', state=False)
    for number in range(2):
        src.call('migrate', uri=f'file:{disk}.saved')
        src.wait_migration('completed')
        assert start_beside(godwit, kernel, devices(disk)) == (3, '')
        if number:
            with open(disk, 'r+b') as f:
                f.write(b'x')
        src.call('cont')
        guest.wait_sweeps(src, 1)
        used = 'which another process uses' in start_beside(godwit, kernel, devices(disk))[1]
        assert used == (number == 0)
    assert 'another process has written to' in src.stderr


def test_three_hosts(make, disk, make_route, godwit, kernel):
    """A to B to C to D: the disk is where the guest is."""
    vm = make('vm0', devices(disk, *RNG))
    for number in range(1, 4):
        following = make(f'vm{number}', devices(disk, *RNG), incoming='defer')
        vm.set_parameters(max_bandwidth=0, downtime_limit=1000)
        perform(vm, following, make_route('unix'))
        vm.quit()
        guest.wait_sweeps(following, 1)
        assert 'which another process uses' in start_beside(godwit, kernel, devices(disk))[1]
        vm = following


def test_other_devices(make, disk, make_route, folder):
    """A destination with other devices refuses; the guest goes on with its disk, and can still be moved."""
    small = os.path.join(folder, 'small.img')
    with open(small, 'wb') as f:
        f.truncate(DISK // 2)
    src = make('src', devices(disk, *RNG))
    for number, options in enumerate((devices(small, *RNG), [*RNG, *devices(disk)], devices(disk), [])):
        dst = make(f'dst{number}', options, incoming='defer')
        assert_fails(src, dst, make_route('unix'))
        dst.kill()
    dst = make('dst', devices(disk, *RNG), incoming='defer')
    perform(src, dst, make_route('unix'))
    guest.wait_sweeps(dst, 1)

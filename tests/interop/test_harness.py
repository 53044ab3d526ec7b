# SPDX-License-Identifier: BSD-2-Clause
"""The harness itself, proved with real QEMUs at both ends: what fails here is no fault of godwit's."""
import pytest
from godwit.programs import compat_options
from godwit.ram import MIB, PAGE, Memfd
from godwit.relay import Faults
from godwit.routes import ROUTES, perform

PAIRS = (('7.2', '7.2'), ('7.2', '11.1'), ('11.1', '7.2'))
SIZE = 5 * MIB + 8 * 1024


def two_vms(make_vm, make_ram, source, destination, incoming='defer', pass_fds=()):
    src = make_vm(source, 'src', ram=make_ram(SIZE).fill_mixed(), options=compat_options(source, destination))
    dst = make_vm(destination, 'dst', ram=make_ram(SIZE).fill(0xa5), incoming=incoming, pass_fds=pass_fds)
    return src, dst


@pytest.mark.parametrize('kind', ROUTES)
@pytest.mark.parametrize('pair', PAIRS, ids='->'.join)
def test_route(pair, kind, find_program, make_vm, make_ram, make_route):
    source, destination = (find_program(name) for name in pair)
    route = make_route(kind)
    if route.needs and not (source.can(route.needs) and destination.can(route.needs)):
        pytest.skip(f'{kind}: is not in QEMU 7.2')
    incoming, fds = route.incoming
    src, dst = two_vms(make_vm, make_ram, source, destination, incoming, fds)
    perform(src, dst, route)
    dst.ram.assert_same(src.ram)
    assert dst.ram.difference(src.ram.read(0, SIZE - 1) + b'?') is not None
    for vm in (src, dst):
        vm.quit()


@pytest.mark.parametrize('kind', ('tcp', 'unix', 'fd', 'exec'))
def test_recorded_bytes_are_the_stream(kind, find_program, make_vm, make_ram, make_route):
    program = find_program('7.2')
    src, dst = two_vms(make_vm, make_ram, program, program)
    route = make_route(kind, Faults(record=True))
    perform(src, dst, route)
    stream = route.captured()
    assert stream.startswith(b'QEVM\0\0\0\3') and stream.endswith(b'}')
    # Each non-zero page is in the stream once as it is in memory.
    page = next(p for p in range(SIZE // PAGE) if any(src.ram.read(p * PAGE, PAGE)))
    assert stream.count(src.ram.read(page * PAGE, PAGE)) == 1


@pytest.mark.parametrize('how', ('close', 'reset', 'stall'))
def test_cut_is_seen(how, find_program, make_vm, make_ram, make_route):
    program = find_program('7.2')
    src, dst = two_vms(make_vm, make_ram, program, program)
    route = make_route('tcp', Faults(cut_after=1 * MIB, how=how))
    route.listen(dst)
    src.set_parameters(max_bandwidth=4 * MIB)
    route.connect(src)
    route.relay.wait_passed(1 * MIB)
    assert route.relay.passed == 1 * MIB
    if how == 'stall':
        assert src.migration_state() == 'active'
        src.call('migrate_cancel')
        src.wait_migration('cancelled')
    else:
        src.wait_migration('failed')
        assert dst.wait_exit() == 1
    assert src.run_state == 'running'


def test_memfd_is_seen(find_program, make_vm, make_ram, make_route):
    program = find_program('7.2')
    src = make_vm(program, 'src', ram=Memfd(SIZE))
    src.ram.fill_mixed()
    dst = make_vm(program, 'dst', ram=Memfd(SIZE), incoming='defer')
    perform(src, dst, make_route('unix'))
    dst.ram.assert_same(src.ram)


def test_crash_of_a_vm_is_an_error(find_program, make_vm):
    vm = make_vm(find_program('7.2'), 'vm')
    vm.expect_signal = 11
    vm.kill(11)
    assert vm.wait_exit() == -11


def test_events(find_program, make_vm, make_ram, make_route):
    program = find_program('7.2')
    src, dst = two_vms(make_vm, make_ram, program, program)
    for vm in (src, dst):
        vm.set_capabilities('events')
    perform(src, dst, make_route('unix'))
    src.qmp.wait_event('MIGRATION', status='completed')
    assert src.qmp.migration_states() == ['setup', 'active', 'completed']
    dst.qmp.wait_event('MIGRATION', status='completed')

# SPDX-License-Identifier: BSD-2-Clause
"""Precopy between two godwits, machine none: each transport, memory sizes and kinds, chains, retries."""
import pytest
from godwit import verifier
from godwit.ram import MIB, PAGE, Memfd
from godwit.relay import Faults
from godwit.routes import ROUTES, perform

SIZE = 5 * MIB + 2 * PAGE


@pytest.fixture
def pair(godwit, make_vm, make_ram):
    """pair(...) -> (source, destination)."""
    def make(size=SIZE, incoming='defer', pass_fds=(), src_options=(), dst_options=(), **options):
        src = make_vm(godwit, 'src', ram=make_ram(size).fill_mixed(seed=size), options=src_options, **options)
        dst = make_vm(godwit, 'dst', ram=make_ram(size).fill(0xa5), incoming=incoming, pass_fds=pass_fds,
                      options=dst_options)
        return src, dst
    return make


@pytest.mark.quick
@pytest.mark.parametrize('kind', ROUTES)
def test_route(kind, pair, make_route):
    route = make_route(kind)
    incoming, fds = route.incoming
    src, dst = pair(incoming=incoming, pass_fds=fds)
    perform(src, dst, route)
    dst.ram.assert_same(src.ram)
    dst.wait_run_state('running')
    assert src.run_state == 'postmigrate'
    if route.stored:
        verifier.assert_good(route.captured(), capabilities=set(), memory={'m0': src.ram.read()})
    for vm in (src, dst):
        vm.quit()


@pytest.mark.quick
@pytest.mark.parametrize('kind', ('tcp', 'unix', 'fd', 'exec'))
@pytest.mark.parametrize('capabilities', ((), ('return-path',), ('xbzrle', 'return-path')),
                         ids=lambda c: '+'.join(c) or 'plain')
def test_recorded(kind, capabilities, pair, make_route):
    src, dst = pair()
    if capabilities:
        for vm in (src, dst):
            vm.set_capabilities(*capabilities)
    route = make_route(kind, Faults(record=True))
    perform(src, dst, route)
    dst.ram.assert_same(src.ram)
    verifier.assert_good(route.captured(), capabilities=set(capabilities), machine='none',
                         memory={'m0': src.ram.read()})
    if 'return-path' in capabilities:
        assert verifier.assert_good_return_path(route.relay.down) == ['PONG', 'SHUT']
    else:
        assert route.relay.down == b''


@pytest.mark.parametrize('compat', ('7.2', '8.0', '8.2', '9.2', '11.0', '11.1'))
def test_compat(compat, pair, make_route):
    src, dst = pair(src_options=['-global', f'migration.x-compat={compat}'])
    route = make_route('unix', Faults(record=True))
    perform(src, dst, route)
    dst.ram.assert_same(src.ram)
    report = verifier.assert_good(route.captured(), peer=compat)
    assert ('SWITCHOVER_START' in report['commands']) == (float(compat) >= 10)


@pytest.mark.parametrize('pages', (1, 2, 62, 63, 64, 65, 127, 1000, 4097))
def test_memory_sizes(pages, pair, make_route):
    src, dst = pair(size=pages * PAGE)
    route = make_route('unix', Faults(record=True))
    perform(src, dst, route)
    dst.ram.assert_same(src.ram)
    verifier.assert_good(route.captured(), memory={'m0': src.ram.read()})


@pytest.mark.parametrize('source', ('file', 'memfd'))
@pytest.mark.parametrize('destination', ('file', 'memfd'))
def test_memory_kinds(source, destination, godwit, make_vm, make_ram, make_route):
    """The backend is nobody's business but its own: all four pairs."""
    rams = [make_ram(SIZE) if kind == 'file' else Memfd(SIZE) for kind in (source, destination)]
    src = make_vm(godwit, 'src', ram=rams[0])
    dst = make_vm(godwit, 'dst', ram=rams[1], incoming='defer')
    src.ram.fill_mixed()
    dst.ram.fill(0x77)
    perform(src, dst, make_route('unix'))
    dst.ram.assert_same(src.ram)


def test_anonymous_memory(godwit, make_vm, make_route):
    """-m alone: block "ram", seen through qtest only."""
    options = ['-m', '8M']
    src = make_vm(godwit, 'src', options=options, qtest=True)
    dst = make_vm(godwit, 'dst', options=options, qtest=True, incoming='defer')
    written = {0: b'first', 3 * MIB + 17: b'middle', 8 * MIB - 4: b'last'}
    for address, data in written.items():
        src.qtest.write(address, data)
    route = make_route('unix', Faults(record=True))
    perform(src, dst, route)
    for address, data in written.items():
        assert dst.qtest.read(address, len(data)) == data
    assert list(verifier.assert_good(route.captured())['blocks']) == ['ram']


def test_no_memory(godwit, make_vm, make_route):
    src = make_vm(godwit, 'src')
    dst = make_vm(godwit, 'dst', incoming='defer')
    route = make_route('unix', Faults(record=True))
    perform(src, dst, route)
    assert verifier.assert_good(route.captured())['blocks'] == {}


@pytest.mark.parametrize('value', (0, 1, 0xff))
def test_uniform_memory(value, pair, make_route):
    src, dst = pair()
    src.ram.fill(value)
    perform(src, dst, make_route('unix'))
    dst.ram.assert_same(src.ram)


@pytest.mark.parametrize('incoming', ('unix:{}', 'exec:cat < {}'))
def test_incoming_on_the_command_line(incoming, godwit, make_vm, make_ram, folder):
    path = f'{folder}/incoming'
    src = make_vm(godwit, 'src', ram=make_ram(SIZE).fill_mixed())
    if incoming.startswith('exec'):
        src.call('migrate', uri=f'exec:cat > {path}')
        src.wait_migration('completed')
    dst = make_vm(godwit, 'dst', ram=make_ram(SIZE), incoming=incoming.format(path))
    if incoming.startswith('unix'):
        src.call('migrate', uri=f'unix:{path}')
        src.wait_migration('completed')
    dst.wait_migration('completed')
    dst.ram.assert_same(src.ram)


def test_channels_argument(pair):
    src, dst = pair()
    address = {'transport': 'socket', 'type': 'inet', 'host': '127.0.0.1', 'port': '0'}
    dst.call('migrate-incoming', channels=[{'channel-type': 'main', 'addr': address}])
    address['port'] = dst.migration()['socket-address'][0]['port']
    src.call('migrate', channels=[{'channel-type': 'main', 'addr': address}])
    src.wait_migration('completed')
    dst.wait_migration('completed')
    dst.ram.assert_same(src.ram)


@pytest.mark.quick
def test_chain(godwit, make_vm, make_ram, make_route):
    """A to B to C to D, with no write in between."""
    vm = make_vm(godwit, 'vm0', ram=make_ram(SIZE).fill_mixed())
    content = vm.ram.copy()
    for number in range(1, 4):
        following = make_vm(godwit, f'vm{number}', ram=make_ram(SIZE).fill(number), incoming='defer')
        perform(vm, following, make_route('tcp'))
        following.ram.assert_same(content)
        following.wait_run_state('running')
        vm.quit()
        vm = following


def test_file_with_offset(pair, folder):
    """Bytes before the offset stay, what stood behind the new end goes."""
    for offset in (4096, 0x11921):
        path = f'{folder}/saved{offset}'
        before = bytes(range(256)) * (offset // 256 + 1)
        with open(path, 'wb') as f:
            f.write(before[:offset] + b'\xee' * (2 * SIZE))
        src, dst = pair()
        src.call('migrate', uri=f'file:{path},offset={offset}')
        src.wait_migration('completed')
        with open(path, 'rb') as f:
            data = f.read()
        assert data[:offset] == before[:offset]
        verifier.assert_good(data, offset=offset, memory={'m0': src.ram.read()})
        dst.call('migrate-incoming', uri=f'file:{path},offset={offset}')
        dst.wait_migration('completed')
        dst.ram.assert_same(src.ram)
        for vm in (src, dst):
            vm.quit()


def test_second_migration_needs_a_running_guest(pair, make_route):
    src, dst = pair()
    perform(src, dst, make_route('unix'))
    text = src.try_call('migrate', uri='unix:/nonexistent')
    assert text == "Can't migrate the vm that was paused due to previous migration"
    # A user may go back to the source, if the destination is given up.
    src.call('cont')
    assert src.run_state == 'running'


def test_zero_pages_make_no_memory(godwit, make_vm, make_route):
    """
    Zero pages are neither made at the source by reading them, nor at a destination that never had others.
    """
    mib = 256
    src = make_vm(godwit, 'src', options=['-m', f'{mib}M'], qtest=True)
    dst = make_vm(godwit, 'dst', options=['-m', f'{mib}M'], qtest=True, incoming='defer')
    src.qtest.write(5 * PAGE, b'something')
    perform(src, dst, make_route('unix'))
    assert dst.qtest.read(5 * PAGE, 9) == b'something'
    for vm in (src, dst):
        assert vm.anonymous_memory() < mib * MIB // 4

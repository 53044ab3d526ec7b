# SPDX-License-Identifier: BSD-2-Clause
"""multifd between godwit and each real QEMU, both ways: channels, compression, many rounds."""
import pytest
from godwit.programs import PEERS, compat_options
from godwit.ram import MIB, PAGE
from godwit.routes import perform
from godwit.writer import run

PAIRS = [pair for peer in PEERS for pair in (('godwit', peer), (peer, 'godwit'))] + [('godwit', 'godwit')]
SIZE = 24 * MIB + 3 * PAGE

MODES = [(1, 'none'), (2, 'none'), (8, 'none'), (16, 'none'), (2, 'zlib'), (2, 'zstd'), (16, 'zstd')]


def configure(vm, channels, compression, **parameters):
    vm.set_capabilities('multifd')
    vm.set_parameters(multifd_channels=channels, multifd_compression=compression, max_bandwidth=0,
                      **parameters)


def garbage_for(program):
    """Real QEMUs take memory for zero that no page of has arrived yet, so theirs must be."""
    return 0xa5 if program.is_godwit else 0


@pytest.fixture
def setting(find_program, make_vm, make_ram):
    def make(pair, size=SIZE):
        source, destination = (find_program(name) for name in pair)
        src = make_vm(source, 'src', ram=make_ram(size).fill_mixed(seed=3),
                      options=compat_options(source, destination))
        dst = make_vm(destination, 'dst', ram=make_ram(size).fill(garbage_for(destination)), incoming='defer')
        return src, dst
    return make


def assert_carried(src, channels):
    """The channels, and not the main stream, carried the pages."""
    ram = src.migration()['ram']
    assert ram['multifd-bytes'] > ram['transferred'] // 2
    if src.program.is_godwit:
        stats = src.migration()['x-multifd-channels']
        assert len(stats) == channels
        assert sum(c['bytes'] for c in stats) == ram['multifd-bytes']
        assert sum(c['normal-pages'] for c in stats) == ram['normal']


@pytest.mark.parametrize('channels, compression', MODES, ids=lambda v: str(v))
@pytest.mark.parametrize('pair', PAIRS, ids='->'.join)
def test_channels(pair, channels, compression, setting, make_route):
    src, dst = setting(pair)
    for vm in (src, dst):
        configure(vm, channels, compression)
    perform(src, dst, make_route('tcp'))
    dst.ram.assert_same(src.ram)
    dst.wait_run_state('running')
    assert_carried(src, channels)


@pytest.mark.parametrize('pair', PAIRS, ids='->'.join)
def test_return_path_over_unix(pair, setting, make_route):
    src, dst = setting(pair)
    for vm in (src, dst):
        configure(vm, 2, 'none')
        vm.set_capabilities('return-path')
    perform(src, dst, make_route('unix'))
    dst.ram.assert_same(src.ram)


@pytest.mark.parametrize('compression', ('none', 'zstd'))
@pytest.mark.parametrize('pair', PAIRS, ids='->'.join)
def test_many_rounds(pair, compression, writer, make_route):
    src, dst, write = writer(*pair)
    dst.ram.fill(garbage_for(dst.program))
    for vm in (src, dst):
        configure(vm, 4, compression)
    run(src, dst, write, make_route('unix'), passes=4)
    dst.ram.assert_same(src.ram)
    assert src.migration()['ram']['dirty-sync-count'] > 3


@pytest.mark.parametrize('detection', ('none', 'legacy', 'multifd'))
@pytest.mark.parametrize('pair', (('godwit', '11.1'), ('11.1', 'godwit')), ids='->'.join)
def test_zero_page_detection(pair, detection, setting, make_route):
    src, dst = setting(pair)
    for vm in (src, dst):
        configure(vm, 2, 'none')
    src.set_parameters(zero_page_detection=detection)
    perform(src, dst, make_route('tcp'))
    dst.ram.assert_same(src.ram)


@pytest.mark.parametrize('source', PEERS)
def test_per_section_is_recognised(source, find_program, make_vm, make_ram, make_route):
    """What between real QEMUs completes with memory missing: per-section source, per-round destination."""
    program = find_program(source)
    options = []
    if program.version >= (8, 1):
        options = ['-global', 'migration.multifd-flush-after-each-section=on']
    src = make_vm(program, 'src', ram=make_ram(SIZE).fill_mixed(seed=4), options=options)
    dst = make_vm(find_program('godwit'), 'dst', ram=make_ram(SIZE).fill(0x5a), incoming='defer')
    for vm in (src, dst):
        configure(vm, 3, 'none')
    src.set_parameters(max_bandwidth=64 * MIB)
    perform(src, dst, make_route('unix'))
    dst.ram.assert_same(src.ram)


@pytest.mark.parametrize('destination', ('10.0', '11.1'))
def test_more_channels_than_expected(destination, setting, make_route):
    """
    These look at no connection before the main stream has begun, and have room for two channels in their
    queue: a source that would first connect all of its own would wait for ever.
    """
    src, dst = setting(('godwit', destination))
    for vm, channels in ((src, 8), (dst, 2)):
        configure(vm, channels, 'none')
        vm.set_capabilities('return-path')
    route = make_route('tcp')
    route.listen(dst)
    route.connect(src)
    src.wait_migration('failed')
    src.wait_run_state('running')

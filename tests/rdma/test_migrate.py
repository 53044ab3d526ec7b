# SPDX-License-Identifier: BSD-2-Clause
"""Whole migrations over real verbs: every pair of programs, chunk sizes, pinning; identical memory."""
import pytest
from godwit import rdma, workload
from godwit.programs import compat_options
from godwit.ram import HUGE_PAGE, MIB, PAGE
from godwit.routes import perform

PAIRS = (('godwit', 'godwit'), ('godwit', '7.2'), ('7.2', 'godwit'), ('godwit', '11.1'), ('11.1', 'godwit'))
OWN_AND_REAL = (('godwit', 'godwit'), pytest.param(('godwit', '11.1'), marks=pytest.mark.thorough),
                pytest.param(('11.1', 'godwit'), marks=pytest.mark.thorough))
CHUNKS = {'1M': MIB, '32M': 32 * MIB, '1G': 1024 * MIB}
PINNING = {'dynamic': False, 'pin-all': True}


def quick(pair, chunk, pinning):
    """Those of scripts/check: each pair, each size of chunk, both ways of pinning, not all of all."""
    if pair == ('godwit', 'godwit'):
        return (chunk, pinning) in (('1M', 'dynamic'), ('32M', 'dynamic'), ('1G', 'pin-all'))
    if '7.2' in pair:
        return (chunk, pinning) == ('1M', 'dynamic')
    other = ('1M', 'pin-all') if pair[0] == '11.1' else ('1G', 'pin-all')
    return (chunk, pinning) in (('32M', 'dynamic'), other)


def cases():
    for pair in PAIRS:
        for chunk in CHUNKS:
            for pinning in PINNING:
                marks = [] if quick(pair, chunk, pinning) else [pytest.mark.thorough]
                yield pytest.param(pair, chunk, pinning, marks=marks,
                                   id=f'{"->".join(pair)}-{chunk}-{pinning}')


class Setting:
    """A source with content and a destination full of garbage."""

    def __init__(self, find_program, make_vm, make_ram):
        self.find_program, self.make_vm, self.make_ram = find_program, make_vm, make_ram

    def pair(self, names=('godwit', 'godwit'), size=3 * MIB + 5 * PAGE, chunk=0, pin_all=False,
             machine='none', **arguments):
        source, destination = (self.find_program(name) for name in names)
        ram = self.make_ram(size)
        if machine == 'none':
            rdma.fill_half_zero(ram, chunk or MIB)
        src = self.make_vm(source, 'src', ram=ram, options=compat_options(source, destination),
                           machine=machine, **arguments)
        dst = self.make_vm(destination, 'dst', ram=self.make_ram(size).fill(0xa5), incoming='defer',
                           machine=machine)
        for vm in (src, dst):
            rdma.set_chunk(vm, chunk)
            vm.set_parameters(max_bandwidth=0)
        if pin_all:
            src.set_capabilities('rdma-pin-all')
        return src, dst


@pytest.fixture
def setting(find_program, make_vm, make_ram):
    return Setting(find_program, make_vm, make_ram)


def assert_counted(vm, info, ram, pin_all):
    """What godwit says to have written is what a program must write."""
    if not vm.program.is_godwit:
        return
    least = ram.size if pin_all else rdma.data_bytes(ram)
    assert least <= info['ram']['normal-bytes'] <= ram.size * info['ram']['dirty-sync-count']
    assert info['x-rdma']['write-bytes'] == info['ram']['normal-bytes']


@pytest.mark.parametrize('pair, chunk, pinning', cases())
def test_memory_arrives(pair, chunk, pinning, setting, make_rdma, carried):
    """Half zero memory, zero runs across the borders of chunks; a size that is no multiple of a chunk."""
    size = min(2 * CHUNKS[chunk] + 5 * PAGE, 34 * MIB + 5 * PAGE)
    pin_all = PINNING[pinning]
    src, dst = setting.pair(pair, size, CHUNKS[chunk], pin_all)
    info, _ = perform(src, dst, make_rdma())
    dst.ram.assert_same(src.ram)
    dst.wait_run_state('running')
    carried(src.ram, size if pin_all else None)
    assert_counted(src, info, src.ram, pin_all)


@pytest.mark.parametrize('pair', OWN_AND_REAL, ids='->'.join)
def test_return_path(pair, setting, make_rdma, carried):
    src, dst = setting.pair(pair)
    for vm in (src, dst):
        vm.set_capabilities('return-path')
    perform(src, dst, make_rdma())
    dst.ram.assert_same(src.ram)
    carried(src.ram)


@pytest.mark.parametrize('size', (PAGE, MIB - PAGE, MIB + PAGE), ids=lambda n: f'{n // PAGE}-pages')
@pytest.mark.parametrize('pair', OWN_AND_REAL, ids='->'.join)
def test_blocks_unlike_chunks(pair, size, setting, make_rdma, carried):
    src, dst = setting.pair(pair, size, chunk=2 * MIB)
    src.ram.write(size - PAGE, b'the last page of the block')
    perform(src, dst, make_rdma())
    dst.ram.assert_same(src.ram)
    carried(src.ram)


@pytest.mark.parametrize('pin_all', (False, pytest.param(True, marks=pytest.mark.thorough)),
                         ids=('dynamic', 'pin-all'))
@pytest.mark.parametrize('pair', OWN_AND_REAL, ids='->'.join)
def test_huge_pages(pair, pin_all, find_program, make_huge_ram, make_vm, make_rdma, carried):
    """Memory of both sides is in pages of 2 MiB; some of it is zero."""
    size = 4 * HUGE_PAGE
    source, destination = (find_program(name) for name in pair)
    rams = [make_huge_ram(size) for _ in pair]
    src = make_vm(source, 'src', ram=rams[0], options=compat_options(source, destination))
    dst = make_vm(destination, 'dst', ram=rams[1], incoming='defer')
    rdma.fill_half_zero(src.ram, MIB)
    dst.ram.fill(0xa5)
    for vm in (src, dst):
        vm.set_capabilities('rdma-pin-all', state=pin_all)
        vm.set_parameters(max_bandwidth=0)
    info, _ = perform(src, dst, make_rdma())
    dst.ram.assert_same(src.ram)
    carried(src.ram, size if pin_all else None)
    assert_counted(src, info, src.ram, pin_all)


@pytest.mark.parametrize('source_chunk, destination_chunk', ((MIB, 4 * MIB), (4 * MIB, MIB)))
@pytest.mark.parametrize('pin_all', (False, True), ids=('dynamic', 'pin-all'))
def test_chunk_sizes_differ(source_chunk, destination_chunk, pin_all, setting, make_rdma, carried):
    """The two agree; neither wrong memory nor a failure."""
    src, dst = setting.pair(size=9 * MIB + 5 * PAGE, pin_all=pin_all)
    rdma.set_chunk(src, source_chunk)
    rdma.set_chunk(dst, destination_chunk)
    perform(src, dst, make_rdma())
    dst.ram.assert_same(src.ram)
    carried(src.ram)


@pytest.mark.parametrize('pair', (('godwit', '7.2'), OWN_AND_REAL[1]), ids='->'.join)
def test_chunk_size_that_the_peer_does_not_know(pair, setting, make_rdma, carried):
    """A QEMU with chunks of 1 MiB is asked in a way that is right for it."""
    src, dst = setting.pair(pair, 9 * MIB + 5 * PAGE)
    rdma.set_chunk(src, 4 * MIB)
    perform(src, dst, make_rdma())
    dst.ram.assert_same(src.ram)
    carried(src.ram)


@pytest.mark.parametrize('pin_all', (False, pytest.param(True, marks=pytest.mark.thorough)),
                         ids=('dynamic', 'pin-all'))
def test_five_rounds(pin_all, setting, make_rdma, carried):
    """A guest that writes all the time; it finds all its memory whole at the other end."""
    machine = workload.machine(rate='8M', working_set='3M', zero=20, compressible=20)
    src, dst = setting.pair(size=8 * MIB, pin_all=pin_all, machine=machine)
    src.set_parameters(max_bandwidth=6 * MIB, downtime_limit=1)
    route = make_rdma()
    route.listen(dst)
    route.connect(src)
    src.wait_migration('active')
    rdma.wait_rounds(src, 5)
    src.set_parameters(max_bandwidth=0, downtime_limit=2000)
    info = src.wait_migration('completed', seconds=120)
    dst.wait_migration('completed')
    assert info['ram']['dirty-sync-count'] >= 5
    dst.wait_run_state('running')
    workload.wait_written(dst, 10)
    workload.assert_verified(dst)
    carried(src.ram, 4 * MIB)


@pytest.mark.parametrize('pair', (('godwit', 'godwit'), ('11.1', 'godwit')), ids='->'.join)
@pytest.mark.parametrize('where', ('concrete', pytest.param('wildcard', marks=pytest.mark.thorough)))
def test_ipv6(pair, where, setting, make_rdma, ipv6_address, carried):
    src, dst = setting.pair(pair)
    perform(src, dst, make_rdma(address=ipv6_address, listen_at='::' if where == 'wildcard' else None))
    dst.ram.assert_same(src.ram)
    carried(src.ram)


def test_chain(setting, make_vm, make_ram, godwit, make_rdma, carried):
    """From A to B to C without a write in between."""
    src, middle = setting.pair()
    perform(src, middle, make_rdma())
    last = make_vm(godwit, 'last', ram=make_ram(src.ram.size).fill(0x5a), incoming='defer')
    perform(middle, last, make_rdma())
    last.ram.assert_same(src.ram)
    carried(src.ram, 2 * rdma.data_bytes(src.ram))

# SPDX-License-Identifier: BSD-2-Clause
"""RDMA without a device: whole migrations over the fake verbs, and each thing that can go wrong in them."""
import os
import time

import pytest
from godwit import rdma, workload
from godwit.programs import compat_options
from godwit.qmp import QmpError
from godwit.ram import HUGE_PAGE, MIB, PAGE, Memfd
from godwit.rdma import FakeVerbs, Rdma
from godwit.routes import perform

SIZE = 5 * MIB + 3 * PAGE
PAIRS = (('godwit', 'godwit'), ('godwit', '7.2'), ('7.2', 'godwit'), ('godwit', '11.1'), ('11.1', 'godwit'))
OWN_AND_11_1 = pytest.mark.parametrize('pair', [pair for pair in PAIRS if '7.2' not in pair], ids='->'.join)


class Lab:
    """Makes VMs whose verbs are fake."""

    def __init__(self, build_dir, folder, find_program, make_vm, make_ram):
        self.build_dir, self.folder, self.find_program = build_dir, folder, find_program
        self.make_vm, self.make_ram = make_vm, make_ram
        self.verbs = {}
        self.count = 0

    def vm(self, program, name, ram, specification='', **arguments):
        self.count += 1
        verbs = FakeVerbs(self.build_dir, self.folder, f'{name}{self.count}', specification)
        vm = self.make_vm(program, f'{name}{self.count}', ram=ram, environment=verbs.environment, **arguments)
        self.verbs[vm] = verbs
        return vm

    def pair(self, names=('godwit', 'godwit'), size=SIZE, chunk=0, capabilities=(), specifications=('', ''),
             machine='none', fill=True, **arguments):
        source, destination = (self.find_program(name) for name in names)
        ram = self.make_ram(size)
        if machine == 'none' and fill:
            rdma.fill_half_zero(ram, chunk or MIB)
        src = self.vm(source, 'src', ram, specifications[0], options=compat_options(source, destination),
                      machine=machine, **arguments)
        dst = self.vm(destination, 'dst', self.make_ram(size).fill(0xa5), specifications[1], incoming='defer',
                      machine=machine)
        for vm in (src, dst):
            vm.set_capabilities(*capabilities)
            vm.set_parameters(max_bandwidth=0)
            rdma.set_chunk(vm, chunk)
        return src, dst

    def sparse_pair(self, names, size, chunk, specifications=('', '')):
        """Memory that does not exist yet."""
        source, destination = (self.find_program(name) for name in names)
        src = self.vm(source, 'src', self.make_ram(size), specifications[0],
                      options=compat_options(source, destination))
        dst = self.vm(destination, 'dst', self.make_ram(size), specifications[1], incoming='defer')
        for vm in (src, dst):
            vm.set_parameters(max_bandwidth=0)
            rdma.set_chunk(vm, chunk)
        return src, dst

    def end(self, *vms):
        """They end, and have left nothing behind; the reports of those that are godwit."""
        reports = []
        for vm in vms:
            if vm.alive:
                vm.quit()
            if vm.program.is_godwit:
                reports.append(self.verbs[vm].assert_clean())
        return reports


@pytest.fixture
def lab(pytestconfig, folder, find_program, make_vm, make_ram):
    build_dir = os.path.abspath(pytestconfig.getoption('--build-dir'))
    lab = Lab(build_dir, folder, find_program, make_vm, make_ram)
    if not os.path.exists(FakeVerbs(build_dir, folder, 'any').library):
        pytest.skip('the build has no RDMA')
    return lab


# ---- all is well ----

@pytest.mark.parametrize('pin_all', (False, True), ids=('dynamic', 'pin-all'))
@pytest.mark.parametrize('chunk', (MIB, 4 * MIB, 1024 * MIB), ids=('1M', '4M', '1G'))
@pytest.mark.parametrize('pair', PAIRS, ids='->'.join)
def test_memory_arrives(pair, chunk, pin_all, lab):
    src, dst = lab.pair(pair, chunk=chunk, capabilities=['rdma-pin-all'] if pin_all else [])
    data = rdma.data_bytes(src.ram)
    at_source, _ = perform(src, dst, Rdma())
    dst.ram.assert_same(src.ram)
    for vm, report in zip((vm for vm in (src, dst) if vm.program.is_godwit), lab.end(src, dst)):
        assert report['numbers']['rnr'] == 0
        if vm is src:
            assert report['numbers']['write-bytes'] >= (src.ram.size if pin_all else data)
            assert at_source['ram']['normal-bytes'] == report['numbers']['write-bytes']


@pytest.mark.parametrize('turn', range(4))
@OWN_AND_11_1
def test_return_path(pair, turn, lab):
    """More than once: who is faster at the end, with the last message or with asking for it, differs."""
    src, dst = lab.pair(pair, capabilities=['return-path'])
    perform(src, dst, Rdma())
    dst.ram.assert_same(src.ram)
    lab.end(src, dst)


GIB = 1024 * MIB
SMALL_REGIONS = 'limit=max_mr_size:0x4500000'


@pytest.mark.parametrize('chunk, pair', ((GIB, ('godwit', 'godwit')), (GIB, ('godwit', '11.1')),
                                         (GIB, ('11.1', 'godwit')), (MIB, ('godwit', '7.2')),
                                         (MIB, ('7.2', 'godwit'))), ids=lambda v: '->'.join(v) if
                         isinstance(v, tuple) else f'{v // MIB}M')
def test_block_larger_than_the_largest_chunk(pair, chunk, lab):
    """Its content lies across the border of the largest chunk, and at the end; the rest does not exist."""
    size = GIB + 3 * MIB + 2 * PAGE
    src, dst = lab.sparse_pair(pair, size, chunk)
    for ram, byte in ((src.ram, 0x11), (dst.ram, 0xa5)):
        with ram.open() as f:
            for start, length in ((0, 5), (GIB // PAGE - 300, 600), (size // PAGE - 2, 2)):
                f.seek(start * PAGE)
                f.write(bytes([byte]) * length * PAGE)
    with dst.ram.open() as f:
        f.seek(700 * MIB)
        f.write(bytes([0xa5]) * 100 * PAGE)
    perform(src, dst, Rdma())
    dst.ram.assert_same(src.ram)
    lab.end(src, dst)


@pytest.mark.parametrize('side', (0, 1), ids=('source', 'destination'))
def test_chunk_that_is_no_region(side, lab):
    """The device of one side cannot register a whole chunk: both take smaller ones."""
    size = 160 * MIB + 3 * PAGE
    specifications = [SMALL_REGIONS if i == side else '' for i in range(2)]
    src, dst = lab.sparse_pair(('godwit', 'godwit'), size, GIB, specifications)
    src.ram.fill(0x22)
    perform(src, dst, Rdma())
    dst.ram.assert_same(src.ram)
    lab.end(src, dst)


# Of any size, and the least that still holds the buffers for messages.
@pytest.mark.parametrize('limit', (40 * MIB, 5 * 524288), ids=('40M', '2.5M'))
@pytest.mark.parametrize('chunk', (MIB, GIB), ids=('1M', '1G'))
@pytest.mark.parametrize('side', (0, 1), ids=('source', 'destination'))
def test_regions_smaller_than_a_slot(side, chunk, limit, lab):
    """Keys are asked for ahead, but never for more than the destination's device can register as one."""
    size = 160 * MIB + 3 * PAGE
    specifications = [f'limit=max_mr_size:{limit}' if i == side else '' for i in range(2)]
    src, dst = lab.sparse_pair(('godwit', 'godwit'), size, chunk, specifications)
    src.ram.fill(0x22)
    at_source, _ = perform(src, dst, Rdma())
    dst.ram.assert_same(src.ram)
    numbers = lab.end(src, dst)[0]['numbers']
    assert numbers['write-bytes'] == at_source['ram']['normal-bytes'] >= size


@pytest.mark.parametrize('chunk', (MIB, 32 * MIB), ids=('1M', '32M'))
def test_real_source_whose_chunks_fit_small_regions(chunk, lab):
    size = 160 * MIB + 3 * PAGE
    src, dst = lab.sparse_pair(('11.1', 'godwit'), size, chunk, ('', 'limit=max_mr_size:0x2800000'))
    src.ram.fill(0x22)
    perform(src, dst, Rdma())
    dst.ram.assert_same(src.ram)
    lab.end(src, dst)


@pytest.mark.parametrize('told', (True, False), ids=('told', 'not-told'))
def test_real_source_whose_chunks_do_not_fit(told, lab):
    """
    A QEMU's chunks are larger than a region of the destination can be: refused before anything is sent if
    the destination has been told their size, else the first write fails.  The guest runs on either way.
    """
    size = 160 * MIB + 3 * PAGE
    src, dst = lab.sparse_pair(('11.1', 'godwit'), size, 64 * MIB, ('', 'limit=max_mr_size:0x2800000'))
    if not told:
        rdma.set_chunk(dst, MIB)
    src.ram.fill(0x22)
    content = src.ram.copy()
    src.set_capabilities('events')
    route = Rdma()
    route.listen(dst)
    try:
        route.connect(src)
    except QmpError:
        pass                # it connects before it answers
    src.wait_migration('failed')
    assert dst.wait_exit() == 1
    assert str(0x2800000) in dst.stderr and 'chunk' in dst.stderr
    assert src.run_state == 'running'
    assert 'STOP' not in [event.name for event in src.qmp.pending_events()]
    src.ram.assert_same(content)


@pytest.mark.parametrize('pin_all', (False, True), ids=('dynamic', 'pin-all'))
@OWN_AND_11_1
def test_huge_pages(pair, pin_all, make_huge_ram, lab):
    """Memory of both sides is in pages of 2 MiB; some of it is zero."""
    size = 4 * HUGE_PAGE
    source, destination = (lab.find_program(name) for name in pair)
    rams = [make_huge_ram(size) for _ in pair]
    src = lab.vm(source, 'src', rams[0], options=compat_options(source, destination))
    dst = lab.vm(destination, 'dst', rams[1], incoming='defer')
    rdma.fill_half_zero(src.ram, MIB)
    dst.ram.fill(0xa5)
    data = rdma.data_bytes(src.ram)
    for vm in (src, dst):
        vm.set_capabilities('rdma-pin-all', state=pin_all)
        vm.set_parameters(max_bandwidth=0)
    at_source, _ = perform(src, dst, Rdma())
    dst.ram.assert_same(src.ram)
    reports = lab.end(src, dst)
    if src.program.is_godwit:
        written = reports[0]['numbers']['write-bytes']
        assert written == at_source['ram']['normal-bytes'] >= (size if pin_all else data)


@pytest.mark.parametrize('return_path', (False, True), ids=('no-return-path', 'return-path'))
@pytest.mark.parametrize('destination', ('godwit', '11.1'))
def test_end_of_the_connection_before_completions(destination, return_path, lab):
    """What the source has sent last completes after the destination, which has the guest, has closed."""
    src, dst = lab.pair(('godwit', destination), capabilities=['return-path'] if return_path else [],
                        specifications=('late=send:40000', ''))
    perform(src, dst, Rdma())
    dst.ram.assert_same(src.ram)
    lab.end(src, dst)


def test_a_lost_write_is_seen(lab):
    """These tests would notice: a write that completes and moves nothing leaves other memory."""
    src, dst = lab.pair(specifications=('no-copy=write:2', ''))
    perform(src, dst, Rdma())
    assert dst.ram.difference(src.ram)


@pytest.mark.parametrize('pin_all', (False, True), ids=('dynamic', 'pin-all'))
def test_guest_that_writes(pin_all, lab):
    """Completions come late and in no order, and the guest writes all the time: at least five rounds."""
    machine = workload.machine(rate='40M', working_set='4M', zero=20, compressible=20)
    delay = 'delay=0:2000 seed=3'
    src, dst = lab.pair(size=8 * MIB, machine=machine, capabilities=['rdma-pin-all'] if pin_all else [],
                        specifications=(delay, delay))
    src.set_parameters(max_bandwidth=8 * MIB, downtime_limit=1)
    route = Rdma()
    route.listen(dst)
    route.connect(src)
    rdma.wait_rounds(src, 5)
    src.set_parameters(max_bandwidth=0, downtime_limit=2000)
    src.wait_migration('completed')
    dst.wait_migration('completed')
    dst.wait_run_state('running')
    workload.wait_written(dst, 10)
    workload.assert_verified(dst)
    lab.end(src, dst)


# ---- how much is said on the wire ----

@pytest.mark.parametrize('pin_all', (False, True), ids=('dynamic', 'pin-all'))
def test_few_completions_and_messages(pin_all, lab):
    """
    Every other page is written in the pause, so that each is a write of its own: one signalled completion for
    16 writes at most, and one control round trip for 64 MiB.
    """
    size = 128 * MIB
    src, dst = lab.pair(size=size, chunk=32 * MIB, capabilities=['rdma-pin-all'] if pin_all else [],
                        qtest=True)
    src.set_capabilities('pause-before-switchover')
    src.ram.fill(0x22)
    route = Rdma()
    route.listen(dst)
    route.connect(src)
    src.wait_migration('pre-switchover')
    for start in range(0, size, 16 * PAGE):
        src.qtest.memset(start, PAGE, 0x11)
    src.call('migrate-continue', state='pre-switchover')
    at_source = src.wait_migration('completed')
    dst.wait_migration('completed')
    dst.ram.assert_same(src.ram)
    numbers = lab.end(src, dst)[0]['numbers']
    counted = at_source['x-rdma']
    assert numbers['write-bytes'] == counted['write-bytes'] == at_source['ram']['normal-bytes']
    assert numbers['writes'] >= size / (16 * PAGE)
    assert numbers['signalled'] - numbers['sends'] <= numbers['writes'] / 16 + 8
    # Those that every migration has: stream, block table, the end of each hook.
    in_any = counted['stream-messages'] + at_source['ram']['dirty-sync-count'] + 3
    assert counted['control-messages'] - in_any <= size / (64 * MIB)


@pytest.mark.parametrize('destination, step, per_request', (('godwit', 1, 32), ('godwit', 7, 32),
                                                            ('11.1', 1, 64), ('11.1', 7, 8)))
def test_few_waits_for_memory_that_is_new_in_the_pause(destination, step, per_request, lab):
    """Keys for chunks of which nothing was sent before are asked for many at a time, ahead of the writes."""
    size = 256 * MIB
    src, dst = lab.pair(('godwit', destination), size=size, qtest=True, fill=False)
    src.set_capabilities('pause-before-switchover')
    route = Rdma()
    route.listen(dst)
    route.connect(src)
    before = src.wait_migration('pre-switchover')['x-rdma']
    for start in range(0, size, step * MIB):
        src.qtest.memset(start + 17 * PAGE, PAGE, 0x11)
    src.call('migrate-continue', state='pre-switchover')
    after = src.wait_migration('completed')['x-rdma']
    dst.wait_migration('completed')
    dst.ram.assert_same(src.ram)
    lab.end(src, dst)
    assert after['writes'] - before['writes'] == len(range(0, size, step * MIB))
    requests = after['registration-requests'] - before['registration-requests']
    assert requests <= size // step // MIB // per_request + 2
    # A message may have to wait for its READY, a write for a key that has been asked for.
    messages = after['control-messages'] - before['control-messages']
    assert after['control-waits'] - before['control-waits'] <= requests + messages


# ---- cancel, whatever is being waited for ----

# Name: (words for the source's verbs, for the destination's, capabilities).
WAITS = {
    'address': ('event=ADDR_RESOLVED:1:none', '', ()),
    'route': ('event=ROUTE_RESOLVED:1:none', '', ()),
    'established': ('event=ESTABLISHED:1:none', '', ()),
    'request': ('', 'event=CONNECT_REQUEST:1:none', ()),
    'return-path': ('event=ESTABLISHED:2:none', '', ('return-path',)),
    'first-ready': ('', 'stall=send:1', ()),
    'a-message': ('stall=send:1', '', ()),
    'blocks': ('', 'stall=send:3', ()),
    'key': ('', 'stall=send:6', ()),
    'a-write': ('stall=write:1', '', ()),
    'a-later-write': ('stall=write:3', '', ('rdma-pin-all',)),
    'a-receive': ('stall=recv:2', '', ()),
}


@pytest.mark.parametrize('wait', WAITS)
def test_cancel(wait, lab, make_route):
    """At once, the guest runs on, nothing is left, and it can be migrated."""
    source_words, destination_words, capabilities = WAITS[wait]
    src, dst = lab.pair(capabilities=capabilities, specifications=(source_words, destination_words))
    content = src.ram.copy()
    route = Rdma()
    route.listen(dst)
    route.connect(src)
    time.sleep(0.3)
    assert src.migration_state() in ('setup', 'active', 'device'), src.migration()
    src.call('migrate_cancel')
    src.wait_migration('cancelled', seconds=8)      # what is waited for takes 10 s, or for ever
    src.wait_run_state('running')
    src.ram.assert_same(content)
    again = lab.vm(src.program, 'again', lab.make_ram(SIZE).fill(3), incoming='defer')
    again.set_capabilities(*[c for c in capabilities if c == 'return-path'])
    perform(src, again, make_route('tcp'))
    again.ram.assert_same(content)
    dst.kill()
    dst.expect_signal = 9
    lab.end(src, again)


def test_return_path_at_the_source_only(lab):
    """An error in less than ten seconds."""
    src, dst = lab.pair()
    src.set_capabilities('return-path')
    route = Rdma()
    route.listen(dst)
    route.connect(src)
    info = src.wait_migration('failed', seconds=10)
    assert len(info['error-desc']) > 10
    src.wait_run_state('running')
    assert dst.incoming_verdict(seconds=10) == 'failed'
    lab.end(src)


def test_return_path_at_the_destination_only(lab):
    src, dst = lab.pair()
    dst.set_capabilities('return-path')
    perform(src, dst, Rdma())
    dst.ram.assert_same(src.ram)
    lab.end(src, dst)


# ---- a side dies ----

@pytest.mark.parametrize('after', (0.0, 0.02, 0.1, 0.3))
@pytest.mark.parametrize('victim', ('src', 'dst'))
def test_killed(victim, after, lab, make_route):
    src, dst = lab.pair(size=24 * MIB)
    src.set_parameters(max_bandwidth=MIB)       # 12 s, whatever keeps this process from going on
    content = src.ram.copy()
    route = Rdma()
    route.listen(dst)
    route.connect(src)
    if after >= 0.1:
        dst.wait_migration('active')
    time.sleep(after)
    if victim == 'src':
        src.expect_signal = 9
        src.kill()
        # Sooner, it may not have got as far as the destination, which then goes on listening.
        if after >= 0.1:
            assert dst.incoming_verdict() == 'failed'
            assert dst.wait_exit() == 1         # by itself: it may still be there when it says so
            lab.end(dst)
        return
    dst.expect_signal = 9
    dst.kill()
    src.wait_migration('failed')
    src.wait_run_state('running')
    src.set_parameters(max_bandwidth=0)
    again = lab.vm(src.program, 'again', lab.make_ram(src.ram.size).fill(3), incoming='defer')
    perform(src, again, Rdma())
    again.ram.assert_same(content)
    lab.end(src, again)


# ---- what does not go together ----

# Capability, and what the error says.
NOT_TOGETHER = (('xbzrle', "RDMA and XBZRLE can't be used together"),
                ('multifd', 'Migration requires multi-channel URIs (e.g. tcp)'),
                ('mapped-ram', 'Migration requires seekable transport (e.g. file)'),
                ('x-ignore-shared', "RDMA and x-ignore-shared can't be used together: "
                 "RAM block 'm0' is shared"))
CAPABILITIES = pytest.mark.parametrize('capability, text', NOT_TOGETHER, ids=lambda v: v.split()[0])


@CAPABILITIES
@pytest.mark.parametrize('side', ('source', 'destination'))
def test_capability_that_cannot_go_with_it(side, capability, text, lab):
    """Refused by both sides; the process lives, and RDMA works when the capability is off."""
    src, dst = lab.pair(size=MIB)
    vm = src if side == 'source' else dst
    vm.set_capabilities(capability)
    route = Rdma()
    with pytest.raises(QmpError) as refused:
        route.connect(src) if side == 'source' else route.listen(dst)
    assert text in str(refused.value)
    vm.set_capabilities(capability, state=False)
    perform(src, dst, Rdma())
    dst.ram.assert_same(src.ram)
    lab.end(src, dst)


def switch_on(vm, capability):
    return vm.try_call('migrate-set-capabilities', capabilities=[{'capability': capability, 'state': True}])


@CAPABILITIES
@pytest.mark.parametrize('how', ('migrate-incoming', 'incoming'))
def test_capability_after_the_address(how, capability, text, lab):
    """The destination already listens: by a command, or since its start."""
    src, dst = lab.pair(size=MIB)
    route = Rdma()
    if how == 'incoming':
        dst.quit()
        dst = lab.vm(dst.program, 'late', lab.make_ram(MIB).fill(0xa5), incoming=route.uri)
    else:
        route.listen(dst)
    assert text in switch_on(dst, capability)
    route.connect(src)
    src.wait_migration('completed')
    dst.wait_migration('completed')
    dst.ram.assert_same(src.ram)
    lab.end(src, dst)


@CAPABILITIES
def test_capability_and_address_on_the_command_line(capability, text, lab, godwit):
    """It does not start, and says why."""
    name = capability if capability in ('mapped-ram', 'x-ignore-shared') else f'x-{capability}'
    dst = lab.vm(godwit, 'dst', lab.make_ram(MIB), options=['-global', f'migration.{name}=on'],
                 incoming=Rdma().uri, connect=False)
    assert dst.wait_exit() == 1
    assert text in dst.stderr


@OWN_AND_11_1
def test_ignore_shared_with_private_memory(pair, lab):
    """Nothing would be left out: it goes with RDMA, whatever the order of commands."""
    source, destination = (lab.find_program(name) for name in pair)
    src = lab.vm(source, 'src', Memfd(SIZE, share=False), options=compat_options(source, destination))
    dst = lab.vm(destination, 'dst', Memfd(SIZE, share=False), incoming='defer')
    src.set_capabilities('x-ignore-shared')
    route = Rdma()
    route.listen(dst)
    dst.set_capabilities('x-ignore-shared')
    route.connect(src)
    src.wait_migration('completed')
    dst.wait_migration('completed')
    lab.end(src, dst)


@pytest.mark.skipif(rdma.has_device(), reason='this machine has an RDMA device')
def test_no_device(godwit, make_vm, make_ram, make_route):
    """One error on each side, at once; then all is well by another way, in the same processes."""
    src = make_vm(godwit, 'src', ram=make_ram(MIB).fill_mixed())
    dst = make_vm(godwit, 'dst', ram=make_ram(MIB).fill(0xa5), incoming='defer')
    route = Rdma()
    assert 'RDMA' in dst.try_call('migrate-incoming', uri=route.uri)
    try:
        route.connect(src)
        assert 'RDMA' in src.wait_migration('failed')['error-desc']
    except QmpError as error:
        assert 'RDMA' in str(error)
    perform(src, dst, make_route('tcp'))
    dst.ram.assert_same(src.ram)

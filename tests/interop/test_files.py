# SPDX-License-Identifier: BSD-2-Clause
"""Guests saved to a file by godwit or a real QEMU and started from it by the other, in every mode."""
import json
import os
import random
import subprocess

import pytest
from godwit.programs import PEERS, compat_options
from godwit.ram import MIB, PAGE, mixed_chunk
from godwit.saved import NoDirectIo, Saved
from godwit.verifier import assert_good
from godwit.writer import run

FILE_PEERS = tuple(peer for peer in PEERS if peer != '7.2')     # file: came later
PAIRS = [pair for peer in FILE_PEERS for pair in (('godwit', peer), (peer, 'godwit'))]
PAIRS += [('godwit', 'godwit')]

# Capabilities and channels; 0: without multifd.
MODES = {'plain': ((), 0), 'mapped-ram': (('mapped-ram',), 0),
         **{f'multifd-{n}': (('mapped-ram', 'multifd'), n) for n in (1, 2, 8)}}
OFFSETS = (0, 4096, 0x11921)
# No multiple of 64 pages; the last page is a run of zeros of its own.
SIZE = 4 * MIB + 5 * PAGE


def configure(vm, mode, direct=False, **parameters):
    capabilities, channels = MODES[mode]
    if capabilities:
        vm.set_capabilities(*capabilities)
    if channels:
        parameters['multifd_channels'] = channels
    vm.set_parameters(direct_io=direct, max_bandwidth=0, **parameters)


def garbage_for(program, mode):
    """Real QEMUs leave what is zero in a mapped-ram file untouched, so their memory must be zero before."""
    return 0xa5 if program.is_godwit or mode == 'plain' else 0


def fill(ram):
    ram.fill_mixed(seed=6)
    ram.write(ram.size - 2 * PAGE, b'the last page but one')
    ram.write(ram.size - PAGE, bytes(PAGE))
    return ram


@pytest.fixture
def setting(find_program, make_vm, make_ram, folder):
    """setting(pair, mode, direct) -> (source VM, function that makes destination VMs, that makes files)."""
    def make(pair, mode, direct=False, size=SIZE):
        source, destination = (find_program(name) for name in pair)
        src = make_vm(source, 'src', ram=fill(make_ram(size)), options=compat_options(source, destination))
        configure(src, mode, direct)
        count = 0

        def make_dst():
            nonlocal count
            count += 1
            ram = make_ram(size).fill(garbage_for(destination, mode))
            dst = make_vm(destination, f'dst{count}', ram=ram, incoming='defer')
            configure(dst, mode, direct)
            return dst

        def make_file(offset=0, by_fdset=False):
            try:
                return Saved(folder, offset, by_fdset, direct, name=f'saved-{offset:#x}')
            except NoDirectIo as reason:
                pytest.skip(str(reason))
        return src, make_dst, make_file
    return make


def assert_file_holds(saved, ram, by_godwit):
    """The file, looked at without either program."""
    with saved.opened() as file:
        assert file.capabilities == ['mapped-ram']
        (block,) = file.blocks
        ram.assert_same(file.memory(block))
        zero = bytes(PAGE)
        bits = file.bits(block)
        assert not any(bits[page] for page in range(block.pages) if file.page(block, page) == zero)
        if by_godwit:
            assert file.stale_pages(block) == []
        tail = os.path.getsize(saved.path) - file.end_of_blocks
        assert tail < 4096
        assert os.path.getsize(saved.path) <= file.size_limit(tail)


@pytest.mark.parametrize('direct', (False, True), ids=('buffered', 'direct-io'))
@pytest.mark.parametrize('mode', MODES)
@pytest.mark.parametrize('pair', PAIRS, ids='->'.join)
def test_saved_and_restored(pair, mode, direct, setting):
    src, make_dst, make_file = setting(pair, mode, direct)
    src.call('stop')
    for offset in OFFSETS:
        saved = make_file(offset)
        saved.save(src)
        saved.assert_only_the_guest()
        if mode != 'plain':
            assert_file_holds(saved, src.ram, src.program.is_godwit)
        dst = make_dst()
        saved.load(dst)
        dst.ram.assert_same(src.ram)
        dst.wait_run_state('paused')
        # A saved guest may run on, and be saved again.
        src.call('cont')
        src.call('stop')


@pytest.mark.parametrize('direct', (False, True), ids=('buffered', 'direct-io'))
@pytest.mark.parametrize('mode', ('plain', 'mapped-ram', 'multifd-2'))
@pytest.mark.parametrize('pair', PAIRS, ids='->'.join)
def test_by_descriptor_set(pair, mode, direct, setting):
    src, make_dst, make_file = setting(pair, mode, direct)
    for offset in (0, 0x11921):
        saved = make_file(offset, by_fdset=True)
        saved.save(src)
        saved.assert_only_the_guest()
        if mode != 'plain':
            assert_file_holds(saved, src.ram, src.program.is_godwit)
        dst = make_dst()
        saved.load(dst)
        dst.ram.assert_same(src.ram)
        dst.wait_run_state('running')
        src.call('cont')


@pytest.mark.parametrize('mode', ('mapped-ram', 'multifd-2'))
@pytest.mark.parametrize('by_fdset', (False, True), ids=('path', 'fdset'))
def test_direct_io_is_used(by_fdset, mode, setting):
    src, make_dst, make_file = setting(('godwit', 'godwit'), mode, direct=True)
    saved = make_file(by_fdset=by_fdset)
    assert saved.save(src)['x-file']['direct-io'] is True
    assert saved.load(make_dst())['x-file']['direct-io'] is True


@pytest.mark.parametrize('mode', ('mapped-ram', 'multifd-2'))
def test_no_member_for_direct_io(mode, setting):
    """A set without a descriptor that has O_DIRECT, on which real QEMUs end: the file is opened once more."""
    src, make_dst, make_file = setting(('godwit', 'godwit'), mode, direct=True)
    saved = make_file(offset=0x11921, by_fdset=True)
    saved.direct = False
    dst = make_dst()
    assert saved.save(src)['x-file']['direct-io'] is True
    assert saved.load(dst)['x-file']['direct-io'] is True
    dst.ram.assert_same(src.ram)
    saved.assert_only_the_guest()


@pytest.mark.parametrize('mode', MODES)
@pytest.mark.parametrize('pair', PAIRS, ids='->'.join)
def test_live(pair, mode, writer, folder):
    """The guest writes meanwhile, zeros among it: pages come several times, and the last state counts."""
    src, dst, write = writer(*pair)
    dst.ram.fill(garbage_for(dst.program, mode))
    for vm in (src, dst):
        configure(vm, mode)
    saved = Saved(folder, offset=0x11921)
    info = run(src, dst, write, saved, passes=3)
    assert info['ram']['dirty-sync-count'] >= 3
    dst.ram.assert_same(src.ram)
    saved.assert_only_the_guest()
    if mode != 'plain':
        with saved.opened() as file:
            (block,) = file.blocks
            src.ram.assert_same(file.memory(block))
            if src.program.is_godwit:
                assert file.stale_pages(block) == []


@pytest.mark.parametrize('modes', (('mapped-ram', 'multifd-8'), ('multifd-8', 'mapped-ram'),
                                   ('multifd-2', 'multifd-1')), ids='->'.join)
@pytest.mark.parametrize('pair', PAIRS, ids='->'.join)
def test_each_side_has_its_own_mode(pair, modes, setting):
    """Channels are no part of the format."""
    src, make_dst, make_file = setting(pair, modes[0])
    dst = make_dst()
    dst.set_capabilities('multifd', state='multifd' in MODES[modes[1]][0])
    if MODES[modes[1]][1]:
        dst.set_parameters(multifd_channels=MODES[modes[1]][1])
    saved = make_file()
    saved.save(src)
    saved.load(dst)
    dst.ram.assert_same(src.ram)


@pytest.mark.parametrize('detection', ('none', 'legacy', 'multifd'))
@pytest.mark.parametrize('pair', (('godwit', PEERS[-1]), (PEERS[-1], 'godwit')), ids='->'.join)
def test_zero_page_detection(pair, detection, setting):
    """Without detection zeros are written as data: the bitmap says so, and memory is the same."""
    src, make_dst, make_file = setting(pair, 'multifd-2')
    src.set_parameters(zero_page_detection=detection)
    saved = make_file()
    saved.save(src)
    with saved.opened() as file:
        assert all(file.bits(file.blocks[0])) == (detection == 'none')
    dst = make_dst()
    saved.load(dst)
    dst.ram.assert_same(src.ram)


@pytest.mark.parametrize('mode', ('mapped-ram', 'multifd-2'))
@pytest.mark.parametrize('pair', (('godwit', PEERS[-1]), (PEERS[-1], 'godwit'), ('godwit', 'godwit')),
                         ids='->'.join)
def test_ignore_shared(pair, mode, setting):
    src, make_dst, make_file = setting(pair, mode)
    dst = make_dst()
    dst.ram.fill(0x5a)
    for vm in (src, dst):
        vm.set_capabilities('x-ignore-shared')
    saved = make_file(offset=4096)
    saved.save(src)
    with saved.opened() as file:
        assert file.capabilities == ['x-ignore-shared', 'mapped-ram'] and file.blocks[0].absent
    assert os.path.getsize(saved.path) < 16384
    saved.load(dst)
    dst.ram.assert_same(b'\x5a' * SIZE)


@pytest.mark.parametrize('mode', [mode for mode in MODES if mode != 'plain'])
def test_the_verifier_agrees(mode, setting):
    src, _, make_file = setting(('godwit', 'godwit'), mode)
    saved = make_file()
    saved.save(src)
    with open(saved.path, 'rb') as f:
        data = f.read()
    report = assert_good(data, capabilities={'mapped-ram'}, machine='none', peer='11.1',
                         memory={'m0': src.ram.read()})
    assert [s['name'] for s in report['sections']] == ['ram', 'timer', 'globalstate']


@pytest.mark.parametrize('source', ('godwit', *FILE_PEERS))
def test_lazy_restore(source, setting):
    """The guest runs at once; when all is in, memory is what it would have been."""
    src, make_dst, make_file = setting((source, 'godwit'), 'mapped-ram')
    saved = make_file(offset=0x11921)
    saved.save(src)
    dst = make_dst()
    dst.set_parameters(x_mapped_ram_lazy=True)
    saved.load(dst)
    dst.wait_run_state('running')
    dst.ram.assert_same(src.ram)


# ---- several blocks: a QEMU with a whole machine, and ours with the same blocks and no devices ----

BOX_MODES = {'plain': [], 'mapped-ram': ['mapped-ram'],
             'multifd-2': ['mapped-ram', 'multifd', 'multifd-channels=2'],
             'multifd-8-direct-io': ['mapped-ram', 'multifd', 'multifd-channels=8', 'direct-io=on']}


def configure_machine(vm, words):
    vm.set_capabilities(*[word for word in words if '=' not in word])
    for name, value in (word.split('=') for word in words if '=' in word):
        vm.set_parameters(**{name: True if value == 'on' else int(value)})
    vm.set_parameters(max_bandwidth=0)


class Box:
    """A machine without devices and the files with the memory of its blocks."""

    def __init__(self, build_dir, folder, machine, lengths):
        self.program = os.path.join(build_dir, 'tests', 'interop', 'block-box')
        if not os.access(self.program, os.X_OK):
            pytest.skip(f'no {self.program}: build it, or give --build-dir')
        self.machine = machine
        self.lengths = lengths
        self.paths = {name: os.path.join(folder, f'block{n}') for n, name in enumerate(lengths)}
        for name, length in lengths.items():
            with open(self.paths[name], 'wb') as f:
                f.write(self.content(name, length))

    @staticmethod
    def content(name, length):
        """
        RAM of mixed pages that ends in a zero page behind one with data. Firmware has no zero page: the
        machine's own is there before, and real QEMUs leave what is zero in the file untouched.
        """
        rng = random.Random(name)
        if name != 'pc.ram':
            return rng.randbytes(length)
        return mixed_chunk(rng, 0, length // PAGE - 2) + b'end'.ljust(PAGE, b'.') + bytes(PAGE)

    def run(self, verb, uri, words):
        blocks = [f'{name}={path}' for name, path in self.paths.items()]
        result = subprocess.run([self.program, verb, self.machine, uri, *words, '--', *blocks],
                                capture_output=True, text=True, timeout=120, check=False)
        assert result.returncode == 0, result.stderr

    def memory(self):
        memory = {}
        for name, path in self.paths.items():
            with open(path, 'rb') as f:
                memory[name] = f.read()
        return memory


@pytest.fixture
def machine_and_box(find_program, make_vm, folder, pytestconfig):
    """machine_and_box(version) -> (function that makes QEMUs of a machine, Box with the blocks of it)."""
    build_dir = os.path.abspath(pytestconfig.getoption('--build-dir'))

    def make(version):
        count = 0

        def make_machine(*options):
            nonlocal count
            count += 1
            return make_vm(find_program(version), f'machine{count}', machine='q35',
                           options=['-m', '2M', *options])
        vm = make_machine('-S')
        vm.set_capabilities('mapped-ram')
        probe = Saved(folder, name='probe')
        probe.save(vm)
        with probe.opened() as file:
            lengths = {block.name: block.length for block in file.blocks}
            original = {block.name: file.memory(block) for block in file.blocks}
        with open(probe.path, 'rb') as f:
            head = f.read(64)
        name = head[13:13 + int.from_bytes(head[9:13], 'big')].decode()
        return make_machine, Box(build_dir, folder, name, lengths), original
    return make


def cut_devices_off(tool, saved):
    """A stream may end when its memory is there: no device of the machine is known here."""
    shown = subprocess.run([tool, 'info', '--json', '--offset', str(saved.offset), saved.path],
                           capture_output=True, text=True, timeout=60, check=True)
    first = json.loads(shown.stdout)['sections'][1]
    with open(saved.path, 'r+b') as f:
        f.truncate(first['offset'] - 8 - len(first['name']) - 1 - 4 - 1)
        f.seek(0, os.SEEK_END)
        f.write(b'\0')


def assert_different_kinds(lengths):
    assert len(lengths) >= 5
    assert any(length // PAGE % 64 for length in lengths.values())
    assert PAGE in lengths.values() and max(lengths.values()) == 2 * MIB


@pytest.mark.parametrize('offset', OFFSETS)
@pytest.mark.parametrize('mode', BOX_MODES)
@pytest.mark.parametrize('version', FILE_PEERS)
def test_several_blocks_to_a_machine(version, mode, offset, machine_and_box, folder):
    make_machine, box, _ = machine_and_box(version)
    assert_different_kinds(box.lengths)
    saved = Saved(folder, offset=offset)
    box.run('save', saved.uri, BOX_MODES[mode])
    saved.assert_only_the_guest()
    if mode != 'plain':
        with saved.opened() as file:
            assert {b.name: file.memory(b) for b in file.blocks} == box.memory()
    dst = make_machine('-S', '-incoming', 'defer')
    configure_machine(dst, BOX_MODES[mode])
    saved.load(dst)
    dst.set_capabilities('mapped-ram')
    dst.set_capabilities('multifd', state=False)
    dst.wait_run_state('paused', 'prelaunch')
    again = Saved(folder, name='again')
    again.save(dst)
    with again.opened() as file:
        arrived = {b.name: file.memory(b) for b in file.blocks}
    assert arrived.keys() == box.memory().keys()
    assert [name for name, memory in box.memory().items() if arrived[name] != memory] == []


@pytest.mark.parametrize('offset', OFFSETS)
@pytest.mark.parametrize('mode', BOX_MODES)
@pytest.mark.parametrize('version', FILE_PEERS)
def test_several_blocks_from_a_machine(version, mode, offset, machine_and_box, folder, pytestconfig):
    make_machine, box, original = machine_and_box(version)
    assert_different_kinds(box.lengths)
    src = make_machine('-S')
    configure_machine(src, BOX_MODES[mode])
    saved = Saved(folder, offset=offset)
    saved.save(src)
    build_dir = os.path.abspath(pytestconfig.getoption('--build-dir'))
    cut_devices_off(os.path.join(build_dir, 'tools', 'godwit-image'), saved)
    box.run('load', saved.uri, BOX_MODES[mode])
    assert [name for name, memory in box.memory().items() if original[name] != memory] == []

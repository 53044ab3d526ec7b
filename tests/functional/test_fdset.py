# SPDX-License-Identifier: BSD-2-Clause
"""Descriptor sets: add-fd, remove-fd, query-fdsets, -add-fd; files called /dev/fdset/N; offsets in files."""
import os
from contextlib import contextmanager

import pytest
from godwit.programs import PEERS
from godwit.qmp import QmpError
from godwit.ram import MIB, PAGE
from godwit.saved import FDSET, Saved
from godwit.vm import Vm

# What godwit is held to is what the newest peer says in the same test.
PROGRAMS = ('godwit', PEERS[-1])


@contextmanager
def opened(path, *flags):
    fds = [os.open(path, f | os.O_CREAT, 0o600) for f in flags]
    yield fds
    for fd in fds:
        os.close(fd)


def add(vm, fd=None, **arguments):
    """add-fd: the set it went to, or the text of the error."""
    named = {key.replace('_', '-'): value for key, value in arguments.items()}
    try:
        answer = vm.qmp.execute('add-fd', named, fds=[] if fd is None else [fd])
    except QmpError as error:
        return error.desc
    assert sorted(answer) == ['fd', 'fdset-id'] and answer['fd'] > 2
    return answer['fdset-id']


def sets(vm):
    """{number: opaque texts of the members}, in the order shown."""
    return {s['fdset-id']: [m.get('opaque') for m in s['fds']] for s in vm.call('query-fdsets')}


@pytest.mark.quick
@pytest.mark.parametrize('program', PROGRAMS)
def test_commands(program, find_program, make_vm, folder):
    vm = make_vm(find_program(program), 'vm', options=['-m', '1M'])
    with opened(os.path.join(folder, 'file'), os.O_RDWR) as (fd,):
        assert add(vm) == 'No file descriptor supplied via SCM_RIGHTS'
        assert add(vm, fd) == 0 and add(vm, fd) == 1
        assert add(vm, fd, fdset_id=3, opaque='three') == 3
        assert add(vm, fd) == 2                                     # the first that is free
        for number in (-1, -5):
            assert add(vm, fd, fdset_id=number) == "Parameter 'fdset-id' expects a non-negative value"
        assert add(vm, fd, fdset_id=2**63 - 1) == 2**63 - 1
        assert add(vm, fd, fdset_id=3, opaque='again') == 3
        assert add(vm, fd, fdset_id=3) == 3
    assert list(sets(vm).items()) == [(2**63 - 1, [None]), (3, ['three', 'again', None]), (2, [None]),
                                      (1, [None]), (0, [None])]
    for arguments, text in (({'fdset_id': 77}, 'fdset-id:77'), ({'fdset_id': -1}, 'fdset-id:-1'),
                            ({'fdset_id': 77, 'fd': 1}, 'fdset-id:77, fd:1'),
                            ({'fdset_id': 3, 'fd': 99999}, 'fdset-id:3, fd:99999')):
        assert vm.try_call('remove-fd', **arguments) == f"File descriptor named '{text}' not found"
    middle = next(s for s in vm.call('query-fdsets') if s['fdset-id'] == 3)['fds'][1]['fd']
    vm.call('remove-fd', fdset_id=3, fd=middle)
    assert sets(vm)[3] == ['three', None]
    for number in sets(vm):
        vm.call('remove-fd', fdset_id=number)
    assert sets(vm) == {}
    assert add(vm, None) == 'No file descriptor supplied via SCM_RIGHTS'


@pytest.mark.quick
@pytest.mark.parametrize('program', PROGRAMS)
def test_sets_outlive_the_connection(program, find_program, make_vm, folder):
    vm = make_vm(find_program(program), 'vm', options=['-m', '1M'])
    with opened(os.path.join(folder, 'file'), os.O_RDWR) as (fd,):
        add(vm, fd, fdset_id=4, opaque='kept')
    vm.qmp.close()
    vm.connect()
    assert sets(vm) == {4: ['kept']}


@pytest.mark.quick
@pytest.mark.parametrize('program', PROGRAMS)
def test_command_line(program, find_program, make_vm, folder):
    with opened(os.path.join(folder, 'file'), os.O_WRONLY, os.O_RDONLY) as fds:
        options = ['-m', '1M']
        for fd in fds:
            options += ['-add-fd', f'fd={fd},set=7,opaque=fd {fd}']
        vm = make_vm(find_program(program), 'vm', pass_fds=fds, options=options)
        assert sets(vm) == {7: [f'fd {fd}' for fd in fds]}
    vm.call('migrate', uri='file:/dev/fdset/7')
    vm.wait_migration('completed')
    assert os.path.getsize(os.path.join(folder, 'file')) > 100


BAD_COMMAND_LINES = (
    ('fd=99,set=1', 'fd is not valid or already in use'),
    ('fd=0,set=1', 'fd cannot be a standard I/O stream'),
    ('fd=2,set=1', 'fd cannot be a standard I/O stream'),
    ('fd=-1,set=1', 'fd option is required and must be non-negative'),
    ('set=1', 'fd option is required and must be non-negative'),
    ('fd=7', 'set option is required and must be non-negative'),
    ('fd=7,set=-1', 'set option is required and must be non-negative'),
    ('fd=x,set=1', "Parameter 'fd' expects a number"),
    ('fd=7,set=x', "Parameter 'set' expects a number"),
    ('fd=7,set=1,foo=1', "Invalid parameter 'foo'"),
)


@pytest.mark.quick
@pytest.mark.parametrize('program', PROGRAMS)
def test_bad_command_lines(program, find_program, folder):
    null = os.open(os.devnull, os.O_RDWR)
    for words, text in BAD_COMMAND_LINES:
        words = words.replace('fd=7', f'fd={null}')
        vm = Vm(find_program(program), folder, 'vm', pass_fds=[null], options=['-add-fd', words])
        assert vm.wait_exit() == 1, words
        assert f'-add-fd {words}: {text}\n' in vm.stderr
        vm.reap()
    os.close(null)


@pytest.mark.quick
@pytest.mark.parametrize('program', PROGRAMS)
def test_which_member(program, find_program, make_vm, folder):
    """Access mode and O_DIRECT must be as asked for; of several that fit it is the latest."""
    vm = make_vm(find_program(program), 'vm', options=['-m', '1M'])
    paths = [os.path.join(folder, name) for name in ('a', 'b')]
    with opened(paths[0], os.O_WRONLY, os.O_RDWR, os.O_RDONLY, os.O_WRONLY | os.O_DIRECT) as first, \
            opened(paths[1], os.O_WRONLY) as second:
        writer, both, reader, direct = first
        for wrong in (both, reader, direct):
            add(vm, wrong, fdset_id=1)
        assert vm.try_call('migrate', uri='file:/dev/fdset/1') == \
            'Failed to find file descriptor with matching flags=0x41'
        assert vm.migration_state() == 'failed' and vm.run_state == 'running'
        for fd in (writer, second[0], direct, both):
            add(vm, fd, fdset_id=1)
    vm.call('migrate', uri='file:/dev/fdset/1')
    vm.wait_migration('completed')
    assert [os.path.getsize(path) > 0 for path in paths] == [False, True]


@pytest.mark.quick
@pytest.mark.parametrize('program', PROGRAMS)
def test_no_such_set(program, find_program, make_vm):
    vm = make_vm(find_program(program), 'vm', options=['-m', '1M'])
    assert vm.try_call('migrate', uri='file:/dev/fdset/1') == 'Failed to find fdset /dev/fdset/1'
    for text in ('', 'x', '1x', '-1', '0x1', '99999999999999999999'):
        path = f'/dev/fdset/{text}'
        assert vm.try_call('migrate', uri=f'file:{path}') == f'Could not parse fdset {path}'


@pytest.mark.quick
@pytest.mark.parametrize('program', PROGRAMS)
def test_no_pipe(program, find_program, make_vm):
    vm = make_vm(find_program(program), 'vm', options=['-m', '1M'])
    for fd in os.pipe():
        add(vm, fd, fdset_id=1)
        os.close(fd)
    assert vm.try_call('migrate', uri='file:/dev/fdset/1') == \
        'failed to truncate migration file to offset 0: Invalid argument'


OFFSETS = (('0', 0), ('4096', 4096), ('0x11921', 0x11921), ('1k', 1024), ('1K', 1024), ('1.5k', 1536),
           ('010', 10), ('2M', 2 << 20))
BAD_OFFSETS = (('foo', 'Invalid argument'), ('', 'Invalid argument'), ('1.5', 'Invalid argument'),
               ('0x', 'Invalid argument'), ('0x1k', 'Invalid argument'), ('1kB', 'Invalid argument'),
               ('1 ', 'Invalid argument'), ('1,2', 'Invalid argument'), ('4096,offset=1', 'Invalid argument'),
               ('-1', 'Numerical result out of range'), ('16E', 'Numerical result out of range'),
               ('99999999999999999999', 'Numerical result out of range'))


@pytest.mark.quick
@pytest.mark.parametrize('program', PROGRAMS)
def test_offset_texts(program, find_program, make_vm, folder):
    vm = make_vm(find_program(program), 'vm', options=['-m', '1M'])
    path = os.path.join(folder, 'file')
    for text, reason in BAD_OFFSETS:
        assert vm.try_call('migrate', uri=f'file:{path},offset={text}') == \
            f'file URI has bad offset {text}: {reason}'
    for text, offset in OFFSETS:
        vm.call('migrate', uri=f'file:{path},offset={text}')
        vm.wait_migration('completed')
        with open(path, 'rb') as f:
            assert f.read(offset) == bytes(offset) and f.read(4) == b'QEVM', text
        os.unlink(path)
        vm.call('cont')


@pytest.mark.quick
def test_offset_beyond_what_files_have(godwit, make_vm, folder):
    vm = make_vm(godwit, 'vm', options=['-m', '1M'])
    path = os.path.join(folder, 'file')
    for text in ('8E', '9223372036854775808', '18446744073709551615'):
        assert vm.try_call('migrate', uri=f'file:{path},offset={text}') == \
            f'file URI has bad offset {text}: Numerical result out of range'
    assert not os.path.exists(path)


@pytest.mark.parametrize('offset', (0, 4096, 0x11921))
@pytest.mark.parametrize('by_fdset', (False, True), ids=('path', 'fdset'))
def test_saved_in_the_midst_of_a_file(by_fdset, offset, godwit, make_vm, make_ram, folder):
    size = 4 * MIB + 3 * PAGE
    src = make_vm(godwit, 'src', ram=make_ram(size).fill_mixed(seed=8))
    saved = Saved(folder, offset=offset, by_fdset=by_fdset)
    src.set_parameters(max_bandwidth=0)
    saved.save(src)
    saved.assert_only_the_guest()
    for attempt in ('first', 'second'):
        dst = make_vm(godwit, attempt, ram=make_ram(size).fill(0xa5), incoming='defer')
        saved.load(dst)
        dst.ram.assert_same(src.ram)


def test_one_set_for_several_saves(godwit, make_vm, make_ram, folder):
    """The descriptors of a set share their position, which must not matter."""
    vm = make_vm(godwit, 'vm', ram=make_ram(MIB).fill_mixed(seed=9))
    saved = Saved(folder, offset=0x11921, by_fdset=True)
    with opened(saved.path, os.O_WRONLY) as (fd,):
        add(vm, fd, fdset_id=FDSET)
    sizes = set()
    for _ in range(3):
        vm.call('migrate', uri=saved.uri)
        vm.wait_migration('completed')
        saved.assert_only_the_guest()
        sizes.add(os.path.getsize(saved.path))
        vm.call('cont')
    assert len(sizes) == 1


def test_channel_argument(godwit, make_vm, make_ram, folder):
    src = make_vm(godwit, 'src', ram=make_ram(MIB).fill_mixed(seed=9))
    dst = make_vm(godwit, 'dst', ram=make_ram(MIB).fill(0xa5), incoming='defer')
    saved = Saved(folder, offset=4096, by_fdset=True)
    address = {'transport': 'file', 'filename': f'/dev/fdset/{FDSET}', 'offset': 4096}
    channels = [{'channel-type': 'main', 'addr': address}]
    with opened(saved.path, os.O_WRONLY, os.O_RDONLY) as (writer, reader):
        add(src, writer, fdset_id=FDSET)
        add(dst, reader, fdset_id=FDSET)
    src.call('migrate', channels=channels)
    src.wait_migration('completed')
    saved.assert_only_the_guest()
    dst.call('migrate-incoming', channels=channels)
    dst.wait_migration('completed')
    dst.ram.assert_same(src.ram)

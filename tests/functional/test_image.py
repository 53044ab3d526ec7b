# SPDX-License-Identifier: BSD-2-Clause
"""The program godwit-image, on files of real QEMUs and on spoiled ones."""
import json
import os
import pty
import re
import struct
import subprocess

import pytest
from godwit import captures, mapped_ram
from godwit.ram import MIB, PAGE

pytestmark = pytest.mark.quick

ORIGINS = captures.origins()
SAVED = [name for name in ORIGINS if name.startswith('mapped-ram')]
WITH_MEMORY = [name for name, facts in ORIGINS.items() if 'memory' in facts and not name.startswith('xbzrle')]
HEADER, BITMAP, PAGES = 0x64, 0x80, 0x100000        # of the first block in mapped-ram-11.1: see docs/files.md


@pytest.fixture
def tool(pytestconfig, tmp_path):
    """tool(words...) -> the finished process; words that are bytes become files."""
    path = os.path.join(os.path.abspath(pytestconfig.getoption('--build-dir')), 'tools', 'godwit-image')
    if not os.access(path, os.X_OK):
        pytest.skip(f'no {path}: build it, or give --build-dir')
    count = 0

    def run(*words, json_output=True):
        nonlocal count
        command = [path]
        for word in words:
            if isinstance(word, (bytes, bytearray)):
                count += 1
                file = tmp_path / f'file{count}'
                file.write_bytes(word)
                word = str(file)
            command.append(str(word))
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if '--json' in words:
            result.json = json.loads(result.stdout)
        return result
    run.path = path
    return run


def spoil(data, at, value):
    data = bytearray(data)
    data[at:at + len(value)] = value
    return data


# ---- info ----

@pytest.mark.parametrize('name', SAVED)
def test_info(name, tool):
    data = captures.load(name)
    file = mapped_ram.File(data)
    shown = tool('info', '--json', data)
    assert shown.returncode == 0 and not shown.stderr
    info = shown.json
    assert info['verdict'] == 'ok' and info['complete'] and info['format'] == 'mapped-ram'
    assert info['size'] == info['end'] == len(data)
    assert [(b['name'], b['length'], b['header-offset'], b['bitmap-offset'], b['pages-offset'], b['absent'])
            for b in info['blocks']] == \
        [(b.name, b.length, b.header, b.bitmap_offset, b.pages_offset, b.absent) for b in file.blocks]
    for shown_block, block in zip(info['blocks'], file.blocks):
        bits = [] if block.absent else file.bits(block)
        assert shown_block['data'] == sum(bits)
        assert shown_block['zero'] == len(bits) - sum(bits)
        assert shown_block['missing'] == (block.pages if block.absent else 0)
    text = data[info['description']['offset']:][:info['description']['bytes']]
    devices = [(d['name'], d['instance_id'], d['version']) for d in json.loads(text)['devices']]
    sections = [(s['name'], s['instance'], s['version']) for s in info['sections']]
    assert sections == [('ram', 0, 4)] + devices
    assert all(s['ended'] for s in info['sections'])


@pytest.mark.parametrize('name', ('mapped-ram-q35-10.0', 'mapped-ram-q35-11.1'))
def test_sections_without_a_description(name, tool):
    """Searching for footers finds what measuring by the description finds."""
    data = captures.load(name)
    measured = tool('info', '--json', data).json
    searched = tool('info', '--json', data[:measured['description']['offset'] - 5]).json
    assert 'description' not in searched and searched['verdict'] == 'ok'
    assert searched['sections'] == measured['sections'] and len(measured['sections']) > 20


def test_info_text(tool):
    shown = tool('info', captures.load('mapped-ram-11.1')).stdout
    assert re.search(r'^format: +mapped-ram, the stream begins at 0$', shown, re.M)
    assert re.search(r'^machine: +none$', shown, re.M) and re.search(r'^state: +complete$', shown, re.M)
    assert re.search(r'^ +m0 +256 KiB +64 +6 +58 +0x80 +0x100000$', shown, re.M)
    assert re.search(r'^ +globalstate +0 +1 +104 ', shown, re.M)


@pytest.mark.parametrize('name', ('plain-7.2', 'plain-10.0', 'plain-11.1', 'uuid-11.1', 'xbzrle-11.1'))
def test_info_of_a_plain_stream(name, tool):
    info = tool('info', '--json', captures.load(name)).json
    assert info['format'] == 'stream' and info['verdict'] == 'ok'
    assert [b['name'] for b in info['blocks']] == ['m0'] and info['blocks'][0]['pages'] == 64
    assert (info['xbzrle-pages'] > 0) == name.startswith('xbzrle')
    if name.startswith('plain'):
        assert (info['blocks'][0]['data'], info['blocks'][0]['zero']) == (6, 58)


# ---- check ----

@pytest.mark.parametrize('name', [n for n, f in ORIGINS.items() if not f.get('return_path')])
def test_check_of_good_files(name, tool):
    checked = tool('check', '--json', captures.load(name))
    assert checked.returncode == 0 and checked.json['verdict'] == 'ok'
    for block in checked.json['blocks']:
        assert block['data'] + block['zero'] + block['missing'] == block['pages']
        assert block['stale'] == 0
        blanked = ORIGINS[name].get('blanked')
        assert block['data-is-zero'] == (block['data'] if blanked else 0)


def stale(data):
    return spoil(data, PAGES + 2 * PAGE, b'old')


def test_pages_are_accounted_for(tool):
    data = stale(captures.load('mapped-ram-11.1'))
    data[PAGES + 5 * PAGE:PAGES + 6 * PAGE] = bytes(PAGE)
    block = tool('check', '--json', data).json['blocks'][0]
    assert (block['data'], block['zero'], block['data-is-zero'], block['stale']) == (6, 58, 1, 1)
    quick = tool('check', '--json', '--quick', data)
    assert quick.returncode == 0 and 'stale' not in quick.json['blocks'][0]


REFUSALS = {
    'magic': (0, b'QEVX', 'bad', 'magic at 0x0'),
    'version': (4, b'\0\0\0\4', 'bad', 'version at 0x4'),
    'no-ram': (0x11, b'\0', 'bad', 'the stream ends at 0x11 without a ram section'),
    'ram-instance': (0x4c, b'\7', 'bad', 'the ram section at 0x51 is of instance 7'),
    'header-version': (HEADER, b'\0\0\0\2', 'bad', 'version 2 (at 0x64)'),
    'page-size': (HEADER + 4, (8192).to_bytes(8, 'big'), 'bad', 'page_size 8192 (at 0x68)'),
    'bitmap-beyond': (HEADER + 12, (1 << 40).to_bytes(8, 'big'), 'bad', 'beyond the end of the file'),
    'bitmap-on-pages': (HEADER + 12, (PAGES + 64).to_bytes(8, 'big'), 'bad', 'overlap'),
    'misaligned': (HEADER + 20, (PAGES + 512).to_bytes(8, 'big'), 'bad', 'misaligned'),
}


@pytest.mark.parametrize('name', REFUSALS)
def test_refused(name, tool):
    at, value, verdict, text = REFUSALS[name]
    checked = tool('check', '--json', spoil(captures.load('mapped-ram-11.1'), at, value))
    assert checked.returncode == 1
    assert checked.json['verdict'] == verdict
    assert text in checked.json['error'] and text in checked.stderr


@pytest.mark.parametrize('command', ('info', 'check', 'diff'))
def test_names_on_a_terminal(command, tool):
    """What a name does to a terminal is not left to the file."""
    data = spoil(captures.load('mapped-ram-11.1'), 0x5a, b'\x1b\xff')
    words = (command, data, data) if command == 'diff' else (command, data)
    shown = tool(*words)
    assert '\x1b' not in shown.stdout + shown.stderr
    assert command == 'diff' or '?\ufffd' in shown.stdout


def test_bits_behind_the_last_page(tool):
    """A block of 63 pages whose bitmap has 64."""
    data = bytearray(captures.load('mapped-ram-11.1'))
    data[0x51:0x64] = (0x3f004).to_bytes(8, 'big') + b'\2m0' + (0x3f000).to_bytes(8, 'big')
    del data[PAGES + 63 * PAGE:PAGES + 64 * PAGE]
    checked = tool('check', '--json', data)
    assert checked.returncode == 1 and checked.json['verdict'] == 'bad'
    text = "block 'm0': the last word of the bitmap (at 0x80) has bits behind page 62"
    assert text in checked.json['error']
    data[BITMAP + 7] &= 0x7f
    assert tool('check', '--json', data).returncode == 0


@pytest.mark.parametrize('left', (3, 0x70, 0xa0, PAGES + 5000, PAGES + 64 * PAGE, -1000, -824))
def test_incomplete(left, tool):
    data = captures.load('mapped-ram-11.1')[:left]
    for command in ('check', 'info'):
        result = tool(command, '--json', data)
        assert result.returncode == 1 and result.json['verdict'] == 'incomplete'
        assert 'incomplete: ' in result.stderr
    assert 'state:        incomplete' in tool('info', data).stdout


def test_a_writer_that_died(tool):
    """What QEMU leaves when it is killed in the middle: no END, and zeros for a bitmap."""
    data = bytearray(captures.load('mapped-ram-11.1'))
    end = data.index(b'\3\0\0\0\1' + (0x10).to_bytes(8, 'big'))
    data[BITMAP:BITMAP + 8] = bytes(8)
    result = tool('check', '--json', data[:end])
    assert result.returncode == 1 and result.json['verdict'] == 'incomplete'
    result = tool('check', '--json', data[:end] + bytes(1000))
    assert result.returncode == 1 and result.json['verdict'] == 'incomplete'
    assert 'bitmaps were never written' in result.json['error']


def test_missing_pages_of_a_plain_stream(tool):
    data = captures.load('plain-11.1')
    zero = data.index((0x2000 | 0x22).to_bytes(8, 'big'))
    result = tool('check', '--json', data[:zero] + data[zero + 9:])
    assert result.returncode == 1 and '1 of 64 pages are not in the file' in result.json['error']


def test_bytes_after_the_end(tool):
    data = captures.load('mapped-ram-11.1')
    result = tool('check', data + b'x' * 77)
    assert result.returncode == 0 and f'77 bytes follow the end at {len(data):#x}' in result.stdout


def test_a_description_that_does_not_fit(tool):
    """No destination reads it: the device state is found without it."""
    data = captures.load('mapped-ram-q35-11.1')
    at = data.index(b'"size": 8}', data.index(b'{"name": "timer"'))
    result = tool('check', '--json', spoil(data, at, b'"size": 9}'))
    assert result.returncode == 0 and result.json['description-fits'] is False
    assert tool('check', '--json', data).json['description-fits'] is True


# ---- extract ----

@pytest.mark.parametrize('name', WITH_MEMORY)
def test_extract(name, tool, tmp_path):
    raw = tmp_path / 'raw'
    result = tool('extract', '--json', '--block', 'm0', '-o', raw, captures.load(name))
    assert result.returncode == 0, result.stderr
    assert raw.stat().st_size == 64 * PAGE
    assert captures.page_hashes(raw.read_bytes()) == ORIGINS[name]['memory']
    assert raw.stat().st_blocks * 512 == result.json['written'] == 6 * PAGE


def test_extract_believes_the_bitmap(tool, tmp_path):
    raw = tmp_path / 'raw'
    raw.write_bytes(b'x' * 100 * PAGE)
    assert tool('extract', '--block=m0', '-o', raw, stale(captures.load('mapped-ram-11.1'))).returncode == 0
    assert captures.page_hashes(raw.read_bytes()) == ORIGINS['mapped-ram-11.1']['memory']


@pytest.mark.parametrize('name, block, status, text', (
    ('mapped-ram-11.1', 'm1', 2, "no block 'm1'"),
    ('mapped-ram-ignore-shared-11.1', 'm0', 2, '64 of 64 pages are not in the file'),
    ('xbzrle-11.1', 'm0', 2, 'XBZRLE'),
))
def test_extract_refused(name, block, status, text, tool, tmp_path):
    result = tool('extract', '--json', '--block', block, '-o', tmp_path / 'raw', captures.load(name))
    assert result.returncode == status and text in result.json['error']
    assert not (tmp_path / 'raw').exists()


@pytest.mark.parametrize('link', (None, os.link, os.symlink))
def test_extract_onto_itself(link, tool, tmp_path):
    """The guest is not destroyed, by whatever name the output goes."""
    data = captures.load('mapped-ram-11.1')
    path = tmp_path / 'guest'
    path.write_bytes(data)
    output = path if link is None else tmp_path / 'other'
    if link:
        link(path, output)
    result = tool('extract', '--block=m0', '-o', output, path)
    assert result.returncode == 2 and 'is the file to be read' in result.stderr
    assert path.read_bytes() == data


def test_extract_nothing_of_half_a_file(tool, tmp_path):
    result = tool('extract', '--block', 'm0', '-o', tmp_path / 'raw', captures.load('mapped-ram-11.1')[:-900])
    assert result.returncode == 1 and 'incomplete' in result.stderr
    assert not (tmp_path / 'raw').exists()


# ---- diff ----

@pytest.mark.parametrize('other', ('plain-7.2', 'plain-10.0', 'plain-11.1', 'mapped-ram-10.0'))
def test_diff_same(other, tool):
    result = tool('diff', '--json', captures.load('mapped-ram-11.1'), captures.load(other))
    assert result.returncode == 0 and result.json['verdict'] == 'same'
    assert result.json['blocks'][0]['different'] == 0
    assert tool('diff', captures.load('mapped-ram-11.1'), captures.load(other)).stdout == ''


def test_diff_ignores_stale_bytes(tool):
    data = captures.load('mapped-ram-11.1')
    assert tool('diff', data, stale(data)).returncode == 0


def test_diff(tool):
    """Data against zero, data against data, and a run: pages 0, 5 and 6 have data, 2 and 3 have none."""
    data = captures.load('mapped-ram-11.1')
    other = spoil(data, PAGES + 5 * PAGE + 4095, b'\xff')
    other = spoil(other, PAGES + 6 * PAGE, b'\xff')
    other[BITMAP] ^= 1 << 0 | 1 << 2
    other = spoil(other, PAGES + 2 * PAGE, b'\xff')
    other[BITMAP] ^= 1 << 3                 # marked as data, but it is zero: no difference
    result = tool('diff', '--json', data, other)
    assert result.returncode == 1 and result.json['verdict'] == 'different'
    assert result.json['blocks'][0]['ranges'] == [[0, 1], [2, 1], [5, 2]]
    assert result.json['blocks'][0]['different'] == 4
    assert tool('diff', data, other).stdout == 'm0: 4 of 64 pages differ: 0, 2, 5-6\n'


def test_diff_of_other_machines(tool):
    result = tool('diff', captures.load('mapped-ram-11.1'), captures.load('mapped-ram-q35-11.1'))
    assert result.returncode == 1
    assert 'm0: only in the first file\n' in result.stdout
    assert 'pc.ram: only in the second file\n' in result.stdout


def test_diff_of_a_bad_file(tool):
    good = captures.load('mapped-ram-11.1')
    for pair in ((good, good[:-900]), (good[:-900], good)):
        result = tool('diff', '--json', *pair)
        assert result.returncode == 2 and result.json['verdict'] == 'incomplete'


# ---- offsets, words, the terminal ----

def moved(data, by):
    """The same guest saved at another offset: positions in the file are absolute."""
    data = bytearray(data)
    for at in (HEADER + 12, HEADER + 20):
        data[at:at + 8] = struct.pack('>Q', struct.unpack('>Q', data[at:at + 8])[0] + by)
    return b'\xee' * by + data


@pytest.mark.parametrize('by, text', ((4096, '4k'), (8192, '0x2000')))
def test_offset(by, text, tool):
    data = captures.load('mapped-ram-11.1')
    there = moved(data, by)
    assert tool('check', '--offset', text, there).returncode == 0
    assert tool('check', there).returncode == 1
    assert tool('diff', '--offset2', text, data, there).returncode == 0
    assert tool('diff', f'--offset={text}', '--offset2=0', there, data).returncode == 0
    assert tool('diff', '--offset', text, there, there).returncode == 0


@pytest.mark.parametrize('words, text', (
    ((), 'a command is missing'),
    (('list', 'x'), 'no such command: list'),
    (('info',), 'info takes 1 file, not 0'),
    (('diff', 'x'), 'diff takes 2 files, not 1'),
    (('info', 'x', 'y', 'z'), 'info takes 1 file, not 3'),
    (('info', '--quick', 'x'), '--quick: unknown option of info'),
    (('info', '--offset'), '--offset requires an argument'),
    (('info', '--offset', '-1', 'x'), "'-1' is not a number of bytes between 0 and 2^63-1"),
    (('info', '--offset=8E', 'x'), "'8E' is not a number of bytes between 0 and 2^63-1"),
    (('extract', 'x'), 'extract requires --block and -o'),
))
def test_usage(words, text, tool):
    result = tool(*words)
    assert result.returncode == 2 and text in result.stderr and result.stdout == ''


@pytest.mark.parametrize('path, text', (('/nonexistent/x', 'No such file or directory'),
                                        ('/dev/null', 'no file that one can seek in'),
                                        ('/proc/self', 'no file that one can seek in')))
def test_no_file(path, text, tool):
    for command in ('info', 'check'):
        result = tool(command, '--json', path)
        assert result.returncode == 2 and text in result.stderr and text in result.json['error']


def test_help(tool):
    shown = tool('info', '--help')
    assert shown.returncode == 0 and 'extract --block BLOCK -o RAW FILE' in shown.stdout
    assert tool('--version').stdout.startswith('godwit-image ')


def large(data):
    """The same, with a block of 32 MiB that all is data."""
    length = 32 * MIB
    head = bytearray(data[:BITMAP])
    head[0x51:0x59] = (length | 4).to_bytes(8, 'big')
    head[0x5c:0x64] = length.to_bytes(8, 'big')
    bitmap = b'\xff' * (length // PAGE // 8)
    return (head + bitmap).ljust(PAGES, b'\0') + b'\x11' * length + data[PAGES + 64 * PAGE:]


def read_all(terminal):
    shown = b''
    while True:
        try:
            shown += os.read(terminal, 65536)
        except OSError:                 # the other side is closed, and all has been read
            return shown.decode()


@pytest.mark.parametrize('command', ('check', 'extract', 'diff'))
def test_progress_on_a_terminal(command, tool, tmp_path):
    path = tmp_path / 'large'
    path.write_bytes(large(captures.load('mapped-ram-11.1')))
    words = {'check': [path], 'extract': ['--block', 'm0', '-o', tmp_path / 'raw', path],
             'diff': [path, path]}[command]
    near, far = pty.openpty()
    result = subprocess.run([tool.path, command, *map(str, words)], stdout=subprocess.PIPE, stderr=far,
                            timeout=60, check=False)
    os.close(far)
    shown = read_all(near)
    os.close(near)
    assert result.returncode == 0
    assert '[' + '#' * 30 + '] 100%' in shown and '\r' in shown and shown.endswith('\n')
    assert '%' not in tool(command, *words).stderr

# SPDX-License-Identifier: BSD-2-Clause
"""analyze-migration.py on captured streams."""
import json
import os
import subprocess
import sys

import pytest
from godwit import captures, mapped_ram
from godwit.ram import PAGE

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'scripts',
                      'analyze-migration.py')
ORIGINS = captures.origins()
FORWARD = [name for name, facts in ORIGINS.items()
           if not facts.get('return_path') and facts['machine'] == 'none']

pytestmark = pytest.mark.quick


def analyze(folder, data, *options):
    path = os.path.join(folder, 'stream')
    with open(path, 'wb') as f:
        f.write(data)
    return subprocess.run([sys.executable, SCRIPT, '-f', path, *options],
                          cwd=folder,
                          capture_output=True,
                          text=True,
                          timeout=60,
                          check=False)


@pytest.mark.parametrize('name', FORWARD)
def test_state(name, tmp_path):
    result = analyze(tmp_path, captures.load(name))
    assert result.returncode == 0, result.stderr
    state = json.loads(result.stdout)
    keys = ['ram (2)', 'timer (0)', 'globalstate (4)'] if name.endswith('-7.2') and 'to' not in name \
        else ['ram (1)', 'timer (0)', 'globalstate (3)']
    assert list(state) == keys
    ram, timer, globalstate = state.values()
    assert ram['section sizes'] == {'m0': '0x0000000000040000'}
    assert timer['unused'] == '00 00 00 00 00 00 00 00'
    assert globalstate['size'] == '0x00000008'
    assert globalstate['runstate'].startswith('72 75 6e 6e 69 6e 67 00')
    assert result.stdout.startswith('{\n    "ram (')


@pytest.mark.parametrize('name', ('plain-7.2', 'plain-11.1', 'mapped-ram-11.1'))
def test_pages_counted_by_kind(name, tmp_path):
    state = json.loads(analyze(tmp_path, captures.load(name)).stdout)
    assert next(iter(state.values()))['pages'] == {'m0': {'data': 6, 'zero': 58, 'xbzrle': 0}}


@pytest.mark.parametrize('name', ('plain-7.2', 'xbzrle-7.2', 'xbzrle-11.1', 'mapped-ram-11.1', 'uuid-11.1'))
def test_extract(name, tmp_path):
    result = analyze(tmp_path, captures.load(name), '-x')
    assert result.stdout.split() == ['desc.json', 'state.json', 'm0']
    assert captures.page_hashes((tmp_path / 'm0').read_bytes()) == ORIGINS[name]['memory']
    assert json.loads((tmp_path / 'desc.json').read_text())['page_size'] == PAGE


def test_memory(tmp_path):
    state = json.loads(analyze(tmp_path, captures.load('plain-11.1'), '-m').stdout)
    memory = state['ram (1)']['memory']
    assert len(memory) == 64
    assert memory['m0 (0x0000000000002000)'] == 'Filled with 0x00'
    assert memory['m0 (0x0000000000001000)'].startswith('30 30 31 20 30 30 31 20')


def test_description(tmp_path):
    result = analyze(tmp_path, captures.load('plain-11.1'), '-d', 'desc')
    assert [d['name'] for d in json.loads(result.stdout)['devices']] == ['timer', 'globalstate']


@pytest.mark.parametrize('data', (b'', b'QEVM', b'no stream at all {', bytes(100)))
def test_no_stream(data, tmp_path):
    result = analyze(tmp_path, data)
    assert result.returncode == 1 and result.stderr.startswith('analyze-migration: ')


def test_damaged(tmp_path):
    data = bytearray(captures.load('plain-11.1'))
    data[0x15] ^= 0x40          # the id of the ram section
    result = analyze(tmp_path, bytes(data))
    assert result.returncode == 1 and 'footer' in result.stderr


def test_bad_option(tmp_path):
    assert analyze(tmp_path, captures.load('plain-7.2'), '-d', 'nonsense').returncode == 2


def test_file_without_option(tmp_path):
    (tmp_path / 'stream').write_bytes(captures.load('plain-11.1'))

    def run(*arguments):
        return subprocess.run([sys.executable, SCRIPT, *arguments],
                              cwd=tmp_path,
                              capture_output=True,
                              text=True,
                              timeout=60,
                              check=False)

    plain = run('stream')
    assert plain.returncode == 0, plain.stderr
    assert plain.stdout == run('-f', 'stream').stdout
    for arguments in ((), ('stream', '-f', 'stream')):
        result = run(*arguments)
        assert result.returncode == 2
        assert 'one FILE is required' in result.stderr


# ---- mapped-ram ----

MAPPED = [name for name in ORIGINS if name.startswith('mapped-ram')]


@pytest.mark.parametrize('name', MAPPED)
def test_mapped_ram(name, tmp_path):
    data = captures.load(name)
    file = mapped_ram.File(data)
    result = analyze(tmp_path, data)
    assert result.returncode == 0, result.stderr
    ram = json.loads(result.stdout)['ram (1)']
    assert ram['section sizes'] == {b.name: f'0x{b.length:016x}' for b in file.blocks}
    for block in file.blocks:
        data_pages = 0 if block.absent else sum(file.bits(block))
        zero_pages = 0 if block.absent else block.pages - data_pages
        assert ram['pages'][block.name] == {'data': data_pages, 'zero': zero_pages, 'xbzrle': 0}


@pytest.mark.parametrize('name', ('mapped-ram-q35-10.0', 'mapped-ram-q35-11.1'))
def test_mapped_ram_of_a_machine(name, tmp_path):
    """All devices are decoded; of each block there is a file, with holes."""
    data = bytearray(captures.load(name))
    block = mapped_ram.File(data).block('pc.bios')
    end = block.pages_offset + block.length
    data[end - PAGE:end] = b'reset'.ljust(PAGE, b'!')
    result = analyze(tmp_path, bytes(data), '-x')
    assert result.returncode == 0, result.stderr
    names = result.stdout.split()
    assert names[:2] == ['desc.json', 'state.json'] and len(names) == 2 + len(mapped_ram.File(data).blocks)
    file = mapped_ram.File(data)
    for made in file.blocks:
        raw = tmp_path / made.name.lstrip('/')
        assert raw.read_bytes() == file.memory(made)
        assert raw.stat().st_blocks * 512 <= (sum(file.bits(made)) + 4) * PAGE
    assert len(json.loads((tmp_path / 'state.json').read_text())) > 20


def test_mapped_ram_memory(tmp_path):
    data = bytearray(captures.load('mapped-ram-11.1'))
    data[0x100000 + 2 * PAGE] = 0xff            # old bytes of a page that has become zero
    memory = json.loads(analyze(tmp_path, bytes(data), '-m').stdout)['ram (1)']['memory']
    assert len(memory) == 64
    assert memory['m0 (0x0000000000002000)'] == 'Filled with 0x00'
    assert memory['m0 (0x0000000000001000)'].startswith('30 30 31 20 30 30 31 20')


def test_offset(tmp_path):
    data = captures.load('plain-11.1')
    there = b'\xee' * 0x11921 + data
    assert analyze(tmp_path, there).returncode == 1
    assert analyze(tmp_path, there, '--offset', '0x11921').stdout == analyze(tmp_path, data).stdout


@pytest.mark.parametrize('at, value, text', (
    (0x64, b'\0\0\0\2', 'header version 2 at 0x64'),
    (0x68, (8192).to_bytes(8, 'big'), 'page size 8192'),
    (0x70, (1 << 40).to_bytes(8, 'big'), 'the file ends'),
    (0x78, (1 << 40).to_bytes(8, 'big'), 'end behind the file'),
))
def test_damaged_mapped_ram(at, value, text, tmp_path):
    data = bytearray(captures.load('mapped-ram-11.1'))
    data[at:at + len(value)] = value
    result = analyze(tmp_path, bytes(data))
    assert result.returncode == 1 and text in result.stderr

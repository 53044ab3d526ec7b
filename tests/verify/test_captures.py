# SPDX-License-Identifier: BSD-2-Clause
"""The verifier on captured streams of real programs: all good, and bad as soon as any field is touched."""
import json
import subprocess
import sys
import os

import pytest
from godwit import captures
from godwit.ram import PAGE

ORIGINS = captures.origins()
FORWARD = [name for name, facts in ORIGINS.items()
           if not facts.get('return_path') and facts['machine'] == 'none']
BACK = [name for name, facts in ORIGINS.items() if facts.get('return_path')]
SCRIPT = os.path.join(os.path.dirname(__file__), '..', '..', 'scripts', 'verify-stream')

def options(name):
    return {'capabilities': set(ORIGINS[name]['capabilities']), 'machine': 'none'}


@pytest.mark.quick
@pytest.mark.parametrize('name', FORWARD)
def test_good(name, verify_stream):
    verifier = verify_stream.Verifier(captures.load(name), memory={'m0': None}, **options(name))
    verifier.run()
    if 'memory' in ORIGINS[name]:
        assert captures.page_hashes(verifier.blocks['m0'].memory) == ORIGINS[name]['memory']
    report = verifier.report()
    assert [s['name'] for s in report['sections']] == ['ram', 'timer', 'globalstate']
    assert ('SWITCHOVER_START' in report['commands']) == (not name.endswith('7.2'))


@pytest.mark.parametrize('name', FORWARD)
def test_suits_its_own_age(name, verify):
    assert verify(captures.load(name), peer='11.1') is None
    bad = verify(captures.load(name), peer='7.2')
    assert (bad is None) == name.endswith('7.2')


@pytest.mark.parametrize('name', [n for n in FORWARD if n.startswith('xbzrle')])
def test_xbzrle_pages(name, verify_stream):
    verifier = verify_stream.Verifier(captures.load(name))
    verifier.run()
    assert verifier.blocks['m0'].xbzrle_pages >= 4


def opaque(name, data):
    """Offsets whose bytes may have any value."""
    timer = data.rindex(b'\5timer') + 6 + 8
    free = set(range(timer, timer + 8)) | set(range(timer + 16, timer + 24))
    suspended = data.rindex(b'\x0bglobalstate') + 12 + 8 + 36
    free |= {suspended, suspended + 1}                                  # two flags
    free |= set(range(data.rindex(b'{"name": "timer"'), len(data)))     # names of fields and the like
    free |= set(
        range(data.rindex(b'{"configuration"') if b'{"configuration"' in data else len(data), len(data)))
    if name.startswith('return-path'):
        ping = data.index(b'\x08\0\2\0\4') + 5
        free |= set(range(ping, ping + 4))
    if name.startswith('uuid'):
        uuid = data.index(b'configuration/uuid') + 18 + 4
        free |= set(range(uuid, uuid + 16))
    if 'ignore-shared' in name:
        address = data.index(b'\2m0') + 3 + 8
        free |= set(range(address, address + 8))
    return free


def structural(name, data):
    """All offsets but those of opaque values; of page contents only some."""
    free = opaque(name, data)
    for offset in range(len(data)):
        if offset not in free and (not 0x60 < offset < len(data) - 2500 or offset % 29 == 0):
            yield offset


@pytest.mark.parametrize('name',
                         ('plain-7.2', 'plain-11.1', 'return-path-10.0', 'uuid-11.1', 'ignore-shared-7.2'))
def test_every_field_mutated(name, verify, verify_stream):
    data = captures.load(name)
    good = verify_stream.Verifier(data, memory={'m0': None})
    good.run()
    memory = {'m0': bytes(good.blocks['m0'].memory)}
    unnoticed = []
    for offset in structural(name, data):
        for mask in (0x01, 0x80, 0xff):
            spoiled = bytearray(data)
            spoiled[offset] ^= mask
            if verify(bytes(spoiled), memory=memory, **options(name)) is None:
                unnoticed.append(f'{offset:#x} ^ {mask:#x}')
    assert not unnoticed


def test_mapped_ram_fields_mutated(verify, verify_stream):
    name = 'mapped-ram-11.1'
    data = captures.load(name)
    good = verify_stream.Verifier(data, memory={'m0': None})
    good.run()
    memory = {'m0': bytes(good.blocks['m0'].memory)}
    header_end = data.index(b'\2m0') + 3 + 8 + 28
    for offset in range(header_end):
        spoiled = bytearray(data)
        spoiled[offset] ^= 0x81
        assert verify(bytes(spoiled), memory=memory, **options(name)) is not None, hex(offset)


@pytest.mark.quick
def test_mapped_ram_page_lost(verify, verify_stream):
    name = 'mapped-ram-11.1'
    data = captures.load(name)
    good = verify_stream.Verifier(data, memory={'m0': None})
    good.run()
    bitmap = data.index(b'\2m0') + 3 + 8 + 28
    for page in ORIGINS[name]['memory']:
        spoiled = bytearray(data)
        spoiled[bitmap + int(page) // 8] &= ~(1 << int(page) % 8)
        bad = verify(bytes(spoiled), memory={'m0': bytes(good.blocks['m0'].memory)}, **options(name))
        assert f'page {int(page):#x} ends up different' in bad.reason


@pytest.mark.parametrize('name', ('plain-7.2', 'plain-11.1', 'uuid-11.1', 'xbzrle-7.2', 'return-path-10.0'))
def test_truncated_at_every_length(name, verify):
    data = captures.load(name)
    end = data.rindex(b'\6\0\0')
    lengths = [n for n in range(len(data)) if n < 0x100 or n > len(data) - 2500 or n % 17 == 0]
    for length in lengths:
        bad = verify(data[:length], **options(name))
        # A sender may leave the description out: then the stream ends with the EOF element.
        assert (bad is None) == (length == end), length
        if bad and length < end:
            assert bad.offset <= length


@pytest.mark.parametrize('name', BACK)
def test_return_path(name, verify_stream):
    data = captures.load(name)
    path = verify_stream.ReturnPath(data)
    path.run()
    assert path.messages == ['PONG', 'SHUT'] and path.shut == 0
    for length in range(len(data)):
        with pytest.raises(verify_stream.Bad):
            verify_stream.ReturnPath(data[:length]).run()


@pytest.mark.parametrize('message, reason', (
    (b'\0\0\0\0', 'unknown message'),
    (b'\0\7\0\1x', 'SWITCHOVER_ACK with length'),
    (b'\0\1\0\4\0\0\0\0\0\2\0\4\0\0\0\1', 'after SHUT'),
    (b'\0\4\0\x0c' + bytes(12), 'request for'),
    (b'\0\4\0\x0c' + bytes(10) + b'\x10\0', 'before any block'),
    (b'\0\x08\0\0', 'unknown message'),
    (b'\0\2\2\4' + bytes(516), 'with length'),
))
def test_bad_return_path(message, reason, verify_stream):
    with pytest.raises(verify_stream.Bad, match=reason):
        verify_stream.ReturnPath(message).run()


# ---- the command ----

def run(*words, data=None):
    return subprocess.run([sys.executable, SCRIPT, *words],
                          input=data,
                          capture_output=True,
                          timeout=60,
                          check=False)


@pytest.mark.quick
def test_exit_statuses(tmp_path):
    good = captures.load('plain-11.1')
    path = tmp_path / 'stream'
    path.write_bytes(good)
    assert run(str(path)).returncode == 0
    assert run('-', data=good).returncode == 0
    result = run('-', data=good[:100])
    assert result.returncode == 1 and b'bad at offset 0x' in result.stdout
    assert run('-', data=b'').returncode == 1
    assert run(str(tmp_path / 'nosuch')).returncode == 2
    assert run('--no-such-option').returncode == 2
    assert run(str(path), '--ram', 'm0').returncode == 2


@pytest.mark.quick
def test_json_report(tmp_path):
    data = captures.load('plain-7.2')
    report = json.loads(run('--json', '-', data=data).stdout)
    assert report['verdict'] == 'good' and report['machine'] == 'none'
    assert report['blocks'] == {'m0': {'length': 64 * PAGE, 'data': 6, 'zero': 58, 'xbzrle': 0, 'missing': 0}}
    report = json.loads(run('--json', '--machine', 'pc', '-', data=data).stdout)
    assert report['verdict'] == 'bad' and report['offset'] == 13


@pytest.mark.quick
def test_memory_image(tmp_path, verify_stream):
    data = captures.load('plain-7.2')
    verifier = verify_stream.Verifier(data, memory={'m0': None})
    verifier.run()
    image = tmp_path / 'image'
    memory = verifier.blocks['m0'].memory
    image.write_bytes(memory)
    assert run('--ram', f'm0={image}', '-', data=data).returncode == 0
    memory[5 * PAGE + 17] ^= 1
    image.write_bytes(memory)
    result = run('--ram', f'm0={image}', '-', data=data)
    assert result.returncode == 1 and b'page 0x5 ends up different' in result.stdout


@pytest.mark.quick
def test_offset():
    data = captures.load('plain-7.2')
    assert run('--offset', '0x1000', '-', data=bytes(0x1000) + data).returncode == 0
    assert run('-', data=bytes(0x1000) + data).returncode == 1

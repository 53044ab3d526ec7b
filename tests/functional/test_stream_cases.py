# SPDX-License-Identifier: BSD-2-Clause
"""The hand-made streams, and spoiled ones, at a godwit destination: the right verdict, and never a crash."""
import random

import pytest
from godwit import captures, feed
from godwit.ram import PAGE
from godwit.stream_cases import CASES, OK
from godwit.streams import PAGES, good_memory, stream


@pytest.fixture
def destination(godwit, make_vm, make_ram):
    def make(number=0, **options):
        ram = make_ram(PAGES * PAGE).fill(0xa5)
        return make_vm(godwit, f'dst{number}', ram=ram, incoming='defer', **options)
    return make


@pytest.mark.quick
@pytest.mark.parametrize('case', CASES, ids=lambda case: case.name)
def test_verdict(case, destination, folder):
    dst = destination()
    feed.stream(dst, case.stream, folder)
    assert dst.incoming_verdict() == case.godwit, dst.stderr
    if case.godwit == OK and case.memory is not None and b'\2m0' in case.stream:
        dst.ram.assert_same(case.memory)


@pytest.mark.parametrize('case', [c for c in CASES if c.godwit != OK], ids=lambda case: case.name)
def test_failure_is_told(case, destination, folder):
    """Without exit-on-error the process stays, and says why; with it, it has said so on standard error."""
    dst = destination()
    path = f'{folder}/incoming'
    dst.call('migrate-incoming', uri=f'unix:{path}', exit_on_error=False)
    with feed.connect_unix(path) as sock:
        feed.send(sock, case.stream)
        sock.shutdown(1)
        feed.read_to_end(sock)
    info = dst.wait_migration('failed')
    assert len(info.get('error-desc', '')) > 10
    assert dst.run_state == 'inmigrate'
    dst.quit()


def test_failure_ends_the_process(destination, folder):
    dst = destination()
    feed.stream(dst, stream(header=b'garbage!'), folder)
    assert dst.wait_exit() == 1
    assert 'load of migration failed' in dst.stderr or 'magic' in dst.stderr, dst.stderr


def test_retry_after_failure(destination, folder):
    """An incoming migration that failed before it touched anything can be tried again."""
    dst = destination()
    path = f'{folder}/incoming'
    dst.call('migrate-incoming', uri=f'unix:{path}', exit_on_error=False)
    with feed.connect_unix(path) as sock:
        feed.send(sock, b'no stream at all')
    dst.wait_migration('failed')
    feed.stream(dst, stream(), folder)
    dst.wait_migration('completed')
    dst.ram.assert_same(good_memory())


@pytest.mark.parametrize('name', [n for n, f in captures.origins().items() if not f.get('return_path')
                                  and n.startswith(('plain', 'xbzrle', 'return-path', 'uuid'))])
def test_captured_streams_load(name, destination, folder):
    dst = destination()
    feed.stream(dst, captures.load(name), folder)
    assert dst.wait_migration('completed')['status'] == 'completed'
    assert captures.page_hashes(dst.ram.read()) == captures.origins()[name]['memory']


def test_truncated(destination, folder):
    """Cut at many lengths: it fails, unless only the description is touched."""
    data = stream()
    end = data.rindex(b'\0\6')
    rng = random.Random(3)
    lengths = sorted(
        {*range(4, 0x60, 3), *rng.sample(range(0x60, end), 40), end, end + 1, end + 3,
         len(data) - 1})
    for number, length in enumerate(lengths):
        dst = destination(number)
        feed.stream(dst, data[:length], folder)
        assert dst.incoming_verdict() == ('completed' if length > end else 'failed'), length
        dst.reap()


@pytest.mark.parametrize('first', (b'', b'Q', b'QEV', b'\0\0'))
def test_short_connection_does_no_harm(first, destination, folder):
    """Whoever connects and goes away before it has said what it is leaves the destination as it was."""
    dst = destination()
    with feed.connect(dst, folder) as sock:
        feed.send(sock, first)
    with feed.connect_unix(f'{folder}/dst0.incoming') as sock:
        feed.send(sock, stream())
        sock.shutdown(1)
        assert dst.wait_migration('completed')
    dst.ram.assert_same(good_memory())


def test_mutated(destination, folder):
    """
    Any byte changed: whatever the verdict, the process ends in order (make_vm fails the test on a crash).
    """
    data = stream()
    rng = random.Random(11)
    for number in range(120):
        spoiled = bytearray(data)
        # Structure more often than page content.
        for _ in range(rng.choice((1, 1, 2, 5))):
            where = rng.choice(
                (rng.randrange(0x60), rng.randrange(len(data)), len(data) - 1 - rng.randrange(900)))
            spoiled[where] = rng.choice((0, 1, 0x10, 0x7f, 0x80, 0xff, rng.randrange(256)))
        dst = destination(number)
        feed.stream(dst, bytes(spoiled), folder)
        assert dst.incoming_verdict() in ('completed', 'failed')
        dst.reap()


def test_silent_peer_does_not_block_the_monitor(destination, folder):
    dst = destination()
    with feed.connect(dst, folder) as sock:
        dst.call('query-status')
        feed.send(sock, b'QE')
        dst.call('query-status')        # one that waited for more bytes would never answer
        assert dst.migration_state() == 'setup'
        feed.send(sock, b'VM\0\0')
        dst.wait_migration('active')
        dst.call('query-status')
    assert dst.incoming_verdict() == 'failed'


def test_second_connection_is_turned_away(destination, folder):
    data = stream()
    dst = destination()
    with feed.connect(dst, folder) as sock:
        feed.send(sock, data[:100])
        try:
            with feed.connect_unix(f'{folder}/dst0.incoming') as other:
                feed.send(other, b'x' * 1000)
        except OSError:
            pass
        feed.send(sock, data[100:])
        sock.shutdown(1)
        dst.wait_migration('completed')
    dst.ram.assert_same(good_memory())

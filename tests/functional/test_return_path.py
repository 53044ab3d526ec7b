# SPDX-License-Identifier: BSD-2-Clause
"""A source whose destination answers well, badly, or not at all on the return path."""
import struct

import pytest
from godwit import sink, verifier
from godwit.ram import MIB
from godwit.relay import listen_unix
from godwit.routes import perform
from godwit.sink import Sink, message, pong, shut

SIZE = 4 * MIB

pytestmark = pytest.mark.quick


@pytest.fixture
def make_sink(folder):
    made = []

    def make(**options):
        made.append(Sink(folder, **options))
        return made[-1]
    yield make
    for one in made:
        one.close()


@pytest.fixture
def source(godwit, make_vm, make_ram):
    src = make_vm(godwit, 'src', ram=make_ram(SIZE).fill_mixed(), qtest=True)
    src.set_capabilities('return-path')
    return src


def fails_and_goes_on(src, godwit, make_vm, make_ram, make_route):
    """The guest runs on, its memory is as before, and a good destination takes it."""
    info = src.wait_migration('failed')
    src.wait_run_state('running')
    dst = make_vm(godwit, 'good', ram=make_ram(SIZE).fill(1), incoming='defer')
    perform(src, dst, make_route('unix'))
    dst.ram.assert_same(src.ram)
    return info


@pytest.mark.parametrize('answers', (
    {'on_open': pong(), 'at_end': shut(0)},
    {'on_open': pong(), 'at_end': shut(0), 'close': False},
    {'at_end': shut(0)},
), ids=('pong-shut', 'left-open', 'no-pong'))
def test_good_answers(answers, source, make_sink):
    one = make_sink(**answers)
    source.call('migrate', uri=one.uri)
    source.wait_migration('completed')
    verifier.assert_good(bytes(one.received), capabilities={'return-path'}, memory={'m0': source.ram.read()})


def request(start, block=b'm0'):
    return message(sink.REQ_PAGES_ID, struct.pack('>QIB', start, 4096, len(block)) + block)


BAD_ANSWERS = {
    'close-without-shut': {'on_open': pong()},
    'shut-1': {'on_open': pong(), 'at_end': shut(1)},
    'type-0': {'on_open': message(0)},
    'type-8': {'on_open': message(8)},
    'type-0xffff': {'on_open': message(0xffff)},
    'pong-length-3': {'on_open': message(sink.PONG, b'abc')},
    'shut-length-8': {'on_open': pong(), 'at_end': message(sink.SHUT, bytes(8))},
    'length-513': {'on_open': message(sink.RECV_BITMAP, bytes(513))},
    'half-a-header': {'on_open': pong(), 'at_end': b'\0\1\0'},
    'half-a-shut': {'on_open': pong(), 'at_end': shut(0)[:6]},
    'request-without-block': {'on_open': message(sink.REQ_PAGES, struct.pack('>QI', 0, 4096))},
    'request-of-unknown-block': {'on_open': request(0, b'zz')},
    'request-in-precopy': {'on_open': request(0)},
    'request-out-of-range': {'on_open': request(1 << 40)},
    'request-unaligned': {'on_open': request(7)},
    'bitmap-outside-recovery': {'on_open': message(sink.RECV_BITMAP, b'\2m0')},
    'resume-ack': {'on_open': message(sink.RESUME_ACK, struct.pack('>I', 1))},
    'text': {'on_open': b'HTTP/1.1 400 Bad Request\r\n\r\n'},
}


@pytest.mark.parametrize('answers', BAD_ANSWERS.values(), ids=BAD_ANSWERS.keys())
def test_bad_answers(answers, source, make_sink, godwit, make_vm, make_ram, make_route):
    one = make_sink(**answers)
    source.call('migrate', uri=one.uri)
    info = fails_and_goes_on(source, godwit, make_vm, make_ram, make_route)
    assert len(info.get('error-desc', '')) > 10
    if answers.get('at_end') == shut(1):
        assert 'error 1' in info['error-desc']


def test_silence_at_the_end_can_be_cancelled(source, make_sink):
    one = make_sink(on_open=pong(), close=False)
    source.call('migrate', uri=one.uri)
    one.wait_complete()
    source.wait_migration('device')
    assert source.run_state == 'finish-migrate'
    source.call('migrate_cancel')
    source.wait_migration('cancelled')
    source.wait_run_state('running')
    source.qtest.write(0x1000, b'alive')


@pytest.mark.parametrize('count', (1, 100, 5000, 1 << 20))
def test_sink_closes_early(count, source, make_sink, godwit, make_vm, make_ram, make_route):
    one = make_sink(read_until=count)
    source.call('migrate', uri=one.uri)
    fails_and_goes_on(source, godwit, make_vm, make_ram, make_route)


def test_sink_that_never_reads_can_be_cancelled(source, folder):
    with listen_unix(f'{folder}/deaf') as listener:
        source.call('migrate', uri=f'unix:{folder}/deaf')
        conn, _ = listener.accept()
        # The kernel may have taken all of it already; then the source waits for the destination's word.
        source.wait_migration('active', 'device')
        source.call('migrate_cancel')
        source.wait_migration('cancelled')
        conn.close()
    assert source.run_state == 'running'

# SPDX-License-Identifier: BSD-2-Clause
"""
Memory that changes while it is sent, between godwit and real QEMUs: several rounds, and the last pages in
the downtime.
"""
import pytest
from godwit import verifier
from godwit.programs import PEERS
from godwit.ram import PAGE
from godwit.relay import Faults
from godwit.writer import SIZE, run

@pytest.mark.parametrize('capabilities', ((), ('xbzrle',)), ids=('plain', 'xbzrle'))
@pytest.mark.parametrize('pair', [pair for p in PEERS
                                  for pair in (('godwit', p), (p, 'godwit'))] + [('godwit', 'godwit')],
                         ids='->'.join)
def test_writes_while_it_is_sent(pair, capabilities, writer, make_route):
    src, dst, write = writer(*pair)
    if capabilities:
        for vm in (src, dst):
            vm.set_capabilities(*capabilities)
    route = make_route('unix', Faults(record=True))
    info = run(src, dst, write, route)
    dst.ram.assert_same(src.ram)
    peer = '11.1' if pair[1] == 'godwit' else pair[1]
    report = verifier.assert_good(route.captured(), peer=peer, memory={'m0': src.ram.read()},
                                  capabilities={*capabilities, 'pause-before-switchover'})
    block = report['blocks']['m0']
    assert block['data'] + block['zero'] + block['xbzrle'] > SIZE // PAGE, 'no page was sent twice'
    assert info['ram']['dirty-sync-count'] >= 2


@pytest.mark.parametrize('pair', [('godwit', p) for p in (*PEERS, 'godwit')], ids='->'.join)
def test_pages_written_at_the_switchover(pair, writer, make_route):
    """
    Pages written when the guest is stopped already travel in the downtime, by qtest, which writes whenever
    it is asked.
    """
    src, dst, write = writer(*pair)
    src.set_capabilities('pause-before-switchover')
    route = make_route('tcp')
    route.listen(dst)
    route.connect(src)
    src.wait_migration('pre-switchover')
    for _ in range(20):
        write()
    src.call('migrate-continue', state='pre-switchover')
    info = src.wait_migration('completed')
    dst.wait_migration('completed')
    dst.ram.assert_same(src.ram)
    assert info['ram']['downtime-bytes'] > 0

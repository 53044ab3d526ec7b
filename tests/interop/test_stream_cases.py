# SPDX-License-Identifier: BSD-2-Clause
"""The hand-made streams at real QEMUs: proves that the table of verdicts is true."""
import pytest
from godwit import feed
from godwit.ram import PAGE
from godwit.stream_cases import CASES, OK
from godwit.streams import PAGES


@pytest.mark.parametrize('case', CASES, ids=lambda case: case.name)
@pytest.mark.parametrize('peer', ('7.2', '11.1'))
def test_verdict_of_real_peer(peer, case, find_program, make_vm, make_ram, folder):
    ram = make_ram(PAGES * PAGE).fill(0xa5)
    dst = make_vm(find_program(peer), 'dst', ram=ram, incoming='defer')
    feed.stream(dst, case.stream, folder)
    expected = case.old if peer == '7.2' else case.new
    assert dst.incoming_verdict() == expected, dst.stderr
    if expected == OK and case.memory is not None and b'\2m0' in case.stream:
        ram.assert_same(case.memory)

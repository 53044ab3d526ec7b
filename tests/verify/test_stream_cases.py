# SPDX-License-Identifier: BSD-2-Clause
"""The verifier on every hand-made stream: in its lenient mode it judges as QEMU 11.1 does."""
import pytest
from godwit.stream_cases import CASES, OK


@pytest.mark.quick
@pytest.mark.parametrize('case', CASES, ids=lambda case: case.name)
def test_lenient_verdict(case, verify):
    memory = {'m0': case.memory} if case.memory and b'\2m0' in case.stream else {}
    bad = verify(case.stream, lenient=True, memory=memory)
    assert (bad is None) == (case.verifier == OK), bad

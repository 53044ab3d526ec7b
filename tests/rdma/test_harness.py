# SPDX-License-Identifier: BSD-2-Clause
"""The box and the harness themselves, with real programs only."""
import pytest
from godwit import rdma
from godwit.ram import MIB, PAGE
from godwit.routes import perform


@pytest.mark.parametrize('pair', (('7.2', '7.2'), pytest.param(('11.1', '11.1'), marks=pytest.mark.thorough)),
                         ids='->'.join)
def test_real_qemus(pair, find_program, make_vm, make_ram, make_rdma, carried):
    source, destination = (find_program(name) for name in pair)
    ram = rdma.fill_half_zero(make_ram(8 * MIB + 5 * PAGE), MIB)
    src = make_vm(source, 'src', ram=ram)
    dst = make_vm(destination, 'dst', ram=make_ram(ram.size).fill(0xa5), incoming='defer')
    perform(src, dst, make_rdma())
    dst.ram.assert_same(src.ram)
    carried(ram)


def test_counters_tell(find_program, make_vm, make_ram, make_route, carried):
    """A migration by another way is seen not to have gone by RDMA."""
    program = find_program('7.2')
    src = make_vm(program, 'src', ram=make_ram(MIB).fill(1))
    dst = make_vm(program, 'dst', ram=make_ram(MIB).fill(0xa5), incoming='defer')
    perform(src, dst, make_route('unix'))
    with pytest.raises(AssertionError):
        carried(src.ram)

# SPDX-License-Identifier: BSD-2-Clause
"""Precopy between godwit and each real QEMU, both ways, over each transport, byte for byte."""
import pytest
from godwit import verifier
from godwit.programs import COMPAT, PEERS, compat_options
from godwit.ram import MIB, PAGE
from godwit.relay import Faults
from godwit.routes import ROUTES, perform

PAIRS = [pair for peer in PEERS for pair in (('godwit', peer), (peer, 'godwit'))]
# 1282 pages: no multiple of 64.
SIZE = 5 * MIB + 2 * PAGE
RELAYED = ('tcp', 'unix', 'fd', 'exec')


class Setting:
    """A source with content and a destination full of garbage."""

    def __init__(self, source, destination, make_vm, make_ram, size=SIZE, incoming='defer', pass_fds=(),
                 src_options=(), dst_options=(), qtest=False):
        self.source, self.destination = source, destination
        self.src = make_vm(source, 'src', ram=make_ram(size).fill_mixed(seed=size), qtest=qtest,
                           options=[*compat_options(source, destination), *src_options])
        self.dst = make_vm(destination,
                           'dst',
                           ram=make_ram(size).fill(0xa5),
                           incoming=incoming,
                           pass_fds=pass_fds,
                           options=dst_options)

    def check_stream(self, data, capabilities=()):
        peer = '11.1' if self.destination.is_godwit else self.destination.name
        return verifier.assert_good(data, capabilities=set(capabilities), peer=peer, machine='none',
                                    memory={'m0': self.src.ram.read()})


@pytest.fixture
def setting(request, find_program, make_vm, make_ram):
    """setting(pair, ...) -> Setting."""
    def make(pair, **options):
        return Setting(*(find_program(name) for name in pair), make_vm, make_ram, **options)
    return make


def skip_if_unable(kind, *programs):
    needs = ROUTES[kind].needs
    for program in programs:
        if needs and not program.can(needs):
            pytest.skip(f'{kind}: is not in QEMU {program.name}')


@pytest.mark.parametrize('kind', ROUTES)
@pytest.mark.parametrize('pair', PAIRS, ids='->'.join)
def test_route(pair, kind, setting, find_program, make_route):
    skip_if_unable(kind, *(find_program(name) for name in pair))
    route = make_route(kind)
    incoming, fds = route.incoming
    s = setting(pair, incoming=incoming, pass_fds=fds)
    perform(s.src, s.dst, route)
    s.dst.ram.assert_same(s.src.ram)
    s.dst.wait_run_state('running')
    assert s.src.run_state == 'postmigrate'
    if route.stored:
        s.check_stream(route.captured())
    for vm in (s.src, s.dst):
        vm.quit()


@pytest.mark.parametrize('kind', RELAYED)
@pytest.mark.parametrize('pair', PAIRS, ids='->'.join)
def test_recorded(pair, kind, setting, make_route):
    s = setting(pair)
    route = make_route(kind, Faults(record=True))
    perform(s.src, s.dst, route)
    s.dst.ram.assert_same(s.src.ram)
    s.check_stream(route.captured())


@pytest.mark.parametrize('kind', ('tcp', 'unix', 'fd'))
@pytest.mark.parametrize('pair', PAIRS, ids='->'.join)
def test_return_path(pair, kind, setting, make_route):
    s = setting(pair)
    for vm in (s.src, s.dst):
        vm.set_capabilities('return-path')
    route = make_route(kind, Faults(record=True))
    perform(s.src, s.dst, route)
    s.dst.ram.assert_same(s.src.ram)
    report = s.check_stream(route.captured(), ['return-path'])
    assert report['commands'][:2] == ['OPEN_RETURN_PATH', 'PING']
    assert verifier.assert_good_return_path(route.relay.down) == ['PONG', 'SHUT']


@pytest.mark.parametrize('pages', (2, 62, 64, 126, 1000))
@pytest.mark.parametrize('pair',
                         (('godwit', '7.2'), ('7.2', 'godwit'), ('godwit', '11.1'), ('11.1', 'godwit')),
                         ids='->'.join)
def test_memory_sizes(pair, pages, setting, make_route):
    s = setting(pair, size=pages * PAGE)
    route = make_route('unix', Faults(record=True))
    perform(s.src, s.dst, route)
    s.dst.ram.assert_same(s.src.ram)
    s.check_stream(route.captured())


@pytest.mark.parametrize('state, expected', (('paused', 'paused'), ('prelaunch', 'prelaunch')))
@pytest.mark.parametrize('pair', PAIRS, ids='->'.join)
def test_run_state_travels(pair, state, expected, setting, make_route):
    s = setting(pair, src_options=['-S'] if state == 'prelaunch' else [])
    if state == 'paused':
        s.src.call('stop')
    perform(s.src, s.dst, make_route('unix'))
    s.dst.wait_run_state(expected)
    s.dst.ram.assert_same(s.src.ram)
    s.dst.call('cont')
    assert s.dst.run_state == 'running'


@pytest.mark.parametrize('pair', PAIRS, ids='->'.join)
def test_destination_that_must_not_start(pair, setting, make_route):
    s = setting(pair, dst_options=['-S'])
    perform(s.src, s.dst, make_route('unix'))
    s.dst.wait_run_state('paused')


@pytest.mark.parametrize('pair', PAIRS, ids='->'.join)
def test_pause_before_switchover(pair, setting, make_route):
    s = setting(pair)
    s.src.set_capabilities('pause-before-switchover')
    route = make_route('unix', Faults(record=True))
    route.listen(s.dst)
    route.connect(s.src)
    s.src.wait_migration('pre-switchover')
    assert s.src.run_state == 'finish-migrate'
    s.src.call('migrate-continue', state='pre-switchover')
    s.src.wait_migration('completed')
    s.dst.wait_migration('completed')
    s.dst.ram.assert_same(s.src.ram)
    s.check_stream(route.captured(), ['pause-before-switchover'])


@pytest.mark.parametrize('pair', PAIRS, ids='->'.join)
def test_chain_back(pair, setting, make_vm, make_ram, make_route):
    """A to B, and B to a third VM of A's kind, with no write in between."""
    s = setting(pair, dst_options=compat_options_back(pair))
    perform(s.src, s.dst, make_route('unix'))
    third = make_vm(s.source, 'third', ram=make_ram(SIZE).fill(0x5a), incoming='defer')
    perform(s.dst, third, make_route('tcp'))
    third.ram.assert_same(s.src.ram)
    third.wait_run_state('running')


def compat_options_back(pair):
    """For the middle of a chain when it is newer than the end."""
    if pair[1] == 'godwit':
        return ['-global', f'migration.x-compat={COMPAT[pair[0]]}']
    return []

# SPDX-License-Identifier: BSD-2-Clause
"""What the benchmarks beside real QEMUs share: who takes part, memory, one migration, medians."""
import os
import shutil
import statistics
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(TOP, 'tests', 'functional'))

from godwit import programs                         # noqa: E402
from godwit.ram import MIB, AnonymousRam, Ram                     # noqa: E402
from godwit.routes import ROUTES, perform           # noqa: E402
from godwit.vm import Vm                            # noqa: E402


class Run:
    """The figures of one migration."""

    def __init__(self, seconds, size, source_cpu=0.0, destination_cpu=0.0, downtime=0, wire=0):
        self.seconds = seconds
        self.speed = size / MIB / seconds
        self.source_cpu = source_cpu
        self.destination_cpu = destination_cpu
        self.downtime = downtime
        self.wire = wire


def say(text):
    print(text, file=sys.stderr, flush=True)


def median(runs, name):
    return statistics.median(getattr(run, name) for run in runs)


def label(name):
    """How a program is called in a table."""
    return f'QEMU {name}' if name[:1].isdigit() else name


class Bench:
    """Memory for a source and a destination, and migrations between them."""

    def __init__(self, args):
        self.args = args
        self.size = args.size * MIB
        self.folder = tempfile.mkdtemp(prefix='godwit-')
        say(f'making {args.size} MiB of guest memory')
        properties = 'prealloc=on' if args.prealloc else ''
        self.source_ram = Ram(self.size, properties=properties).fill_bulk()
        self.destination_ram = (AnonymousRam if args.anonymous else Ram)(self.size, properties=properties)
        self.count = 0

    def close(self):
        self.source_ram.remove()
        self.destination_ram.remove()
        shutil.rmtree(self.folder)

    def fresh_destination(self):
        """Memory as a new VM has it: nothing allocated."""
        self.destination_ram.remove_content()

    def fresh_folder(self):
        self.count += 1
        sub = os.path.join(self.folder, f'run{self.count}')
        os.mkdir(sub)
        return sub

    def configure(self, vm):
        if self.args.capability:
            vm.set_capabilities(*self.args.capability)
        if self.args.parameter:
            vm.set_parameters(**dict(self.args.parameter))

    def migrate(self, program):
        self.fresh_destination()
        sub = self.fresh_folder()
        src = Vm(program, sub, 'src', ram=self.source_ram)
        dst = Vm(program, sub, 'dst', ram=self.destination_ram, incoming='defer')
        route = ROUTES[self.args.route](sub)
        try:
            for vm in (src, dst):
                self.configure(vm.connect())
            src.set_parameters(max_bandwidth=0)
            before = src.cpu_seconds(), dst.cpu_seconds()
            info, _ = perform(src, dst, route, seconds=3600)
            after = src.cpu_seconds(), dst.cpu_seconds()
            run = Run(max(info['total-time'], 1) / 1000, self.size, after[0] - before[0],
                      after[1] - before[1], info['downtime'], info['ram']['transferred'])
            if not self.args.no_compare:
                self.destination_ram.assert_same(self.source_ram)
        finally:
            route.close()
            src.reap()
            dst.reap()
        return run


def parse_parameter(text):
    name, _, value = text.partition('=')
    return name.replace('-', '_'), int(value) if value.isdigit() else value


def add_arguments(parser, size=4096, names='godwit,11.1,7.2'):
    """The options that all take."""
    parser.add_argument('--size', type=int, default=size, metavar='MIB', help=f'guest memory ({size})')
    parser.add_argument('--repeat', type=int, default=3, help='runs of each program (3)')
    parser.add_argument('--programs', default=names, metavar='LIST',
                        help=f'godwit and names of tests/peers/list ({names})')
    parser.add_argument('--prealloc', action='store_true', help='memory is there before: no page faults')
    parser.add_argument('--anonymous', action='store_true',
                        help='memory without a file behind it at the destination (memory-backend-ram)')
    parser.add_argument('--no-compare', action='store_true', help='do not compare memory after each run')
    parser.add_argument('--no-fetch', action='store_true', help='use only peers that are prepared already')
    parser.add_argument('--build-dir', default=os.path.join(TOP, 'build'))
    parser.add_argument('--json', metavar='FILE', help='all figures of all runs')


def add_route_arguments(parser):
    parser.add_argument('--route', default='tcp', choices=[n for n, r in ROUTES.items() if not r.stored])
    parser.add_argument('--capability', action='append', default=[], help='to switch on at both ends')
    parser.add_argument('--parameter', action='append', default=[], type=parse_parameter,
                        metavar='NAME=VALUE', help='to set at both ends')


def chosen_programs(args):
    found = []
    for name in args.programs.split(','):
        try:
            found.append(programs.find_godwit(os.path.abspath(args.build_dir)) if name == 'godwit'
                         else programs.find_peer(name, may_fetch=not args.no_fetch))
        except programs.Missing as reason:
            say(f'left out: {reason}')
    return found

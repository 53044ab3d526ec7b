# SPDX-License-Identifier: BSD-2-Clause
"""A VM process, godwit or a real QEMU, with one interface."""
import ctypes
import os
import re
import resource
import signal
import subprocess

from .deadline import Timeout, poll
from .qmp import Qmp, QmpClosed, QmpError
from .qtest import Qtest

FINAL_STATES = ('completed', 'failed', 'cancelled')
PR_SET_PDEATHSIG = 1
# The head of a sanitizer's report: an error whatever the exit status is.
SANITIZER = re.compile(r'runtime error: |(Address|Leak|Thread|Memory)Sanitizer:')
libc = ctypes.CDLL(None, use_errno=True)


class VmDied(Exception):
    """The process ended when it should not have."""


def die_with_parent():
    """Runs in the child: whatever happens to the test run, no VM stays behind."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


PR_CAPBSET_DROP = 24
CAP_IPC_LOCK = 14


def limit_locked_memory(size):
    """Runs in the child: root may lock as much as it wants while it has that capability."""
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (size, size))
    if libc.prctl(PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0):
        raise OSError(ctypes.get_errno(), 'cannot give up a capability')


class Vm:
    """
    One process.  Memory is @ram (a Ram or Memfd), or none; @options are further words of the command line,
    @machine the -machine value before memory-backend.  @incoming is the -incoming value.  @memlock limits
    the memory that the process may lock, bytes.
    """

    def __init__(self, program, folder, name, ram=None, incoming=None, machine='none', options=(),
                 pass_fds=(), qtest=False, environment=None, memlock=None):
        self.program = program
        self.name = name
        self.ram = ram
        self.folder = folder
        self.qmp_path = os.path.join(folder, f'{name}.qmp')
        self.qtest_path = os.path.join(folder, f'{name}.qtest')
        self.stderr_path = os.path.join(folder, f'{name}.stderr')
        self.arguments = self._arguments(incoming, machine, options, qtest)
        self.qmp = None
        self._qtest = None
        self.expect_signal = None       # a signal by which this process may end
        self.reaped = False
        env = dict(os.environ, **(environment or {}))
        with open(self.stderr_path, 'wb') as stderr:
            self.process = subprocess.Popen(self.arguments, stdin=subprocess.DEVNULL, stdout=stderr,
                                            stderr=stderr, pass_fds=pass_fds, env=env, cwd=folder,
                                            preexec_fn=lambda: self._prepare_child(memlock))

    @staticmethod
    def _prepare_child(memlock):
        die_with_parent()
        if memlock is not None:
            limit_locked_memory(memlock)

    def connect(self):
        """Opens the QMP session; to be called once, when the process is to be talked to."""
        try:
            self.qmp = Qmp.connect(self.qmp_path, self.check_alive)
        except QmpClosed:
            self.wait_exit()        # it listens before it has looked at all options: what it says matters
            self.check_alive()
        if hasattr(self.ram, 'attach'):
            self.ram.attach(self.pid)
        return self

    def _arguments(self, incoming, machine, options, qtest):
        words = [self.program.path]
        if self.ram is not None:
            machine += f',memory-backend={self.ram.block}'
            words += self.ram.arguments()
        words += [
            '-machine', machine, '-nodefaults', '-display', 'none', '-monitor', 'none', '-serial', 'none',
            '-name', self.name, '-qmp', f'unix:{self.qmp_path},server=on,wait=off'
        ]
        if qtest:
            words += ['-qtest', f'unix:{self.qtest_path},server=on,wait=off']
        words += list(options)
        if incoming:
            words += ['-incoming', incoming]
        return words

    def __repr__(self):
        return f'{self.name} ({self.program.name}, pid {self.pid})'

    # ---- the process ----

    @property
    def pid(self):
        return self.process.pid

    @property
    def stderr(self):
        with open(self.stderr_path, errors='replace') as f:
            return f.read()

    @property
    def alive(self):
        return self.process.poll() is None

    def anonymous_memory(self):
        """Bytes of anonymous memory that are really there."""
        with open(f'/proc/{self.pid}/status') as f:
            return next(int(line.split()[1]) << 10 for line in f if line.startswith('RssAnon'))

    def cpu_seconds(self):
        """Processor time used so far, user and system."""
        with open(f'/proc/{self.pid}/stat') as f:
            fields = f.read().rpartition(')')[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')

    def check_alive(self):
        if not self.alive:
            raise VmDied(f'{self} ended with status {self.process.returncode}: {self.stderr.strip()}')

    def wait_exit(self, seconds=30):
        """Exit status (negative: killed by that signal)."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Timeout(f'{self} has not ended within {seconds} s') from None

    def kill(self, how=signal.SIGKILL):
        if self.alive:
            self.process.send_signal(how)

    def quit(self):
        """Ends it in the normal way and expects status 0."""
        try:
            self.qmp.execute('quit')
        except QmpClosed:
            pass
        status = self.wait_exit()
        assert status == 0, f'{self} ended with status {status}: {self.stderr.strip()}'

    def reap(self):
        """Whatever state it is in: it is gone afterwards.  VmDied if it had crashed."""
        if self.reaped:
            return
        self.reaped = True
        status = self.process.poll()
        if status is None:
            self.process.kill()
            self.process.wait()
        for client in (self.qmp, self._qtest):
            if client:
                client.close()
        report = SANITIZER.search(self.stderr)
        if report:
            raise VmDied(f'{self}: {self.stderr[report.start():][:4000]}')
        if status is not None and status < 0 and -status != self.expect_signal:
            raise VmDied(f'{self} was killed by signal {-status}: {self.stderr.strip()[-2000:]}')

    # ---- the monitors ----

    def call(self, command, **arguments):
        return self.qmp.call(command, **arguments)

    def hmp(self, line):
        return self.qmp.hmp(line)

    @property
    def qtest(self):
        if self._qtest is None:
            self._qtest = Qtest(self.qtest_path, self.check_alive)
        return self._qtest

    @property
    def run_state(self):
        return self.call('query-status')['status']

    # ---- migration ----

    def set_capabilities(self, *names, state=True):
        self.call('migrate-set-capabilities', capabilities=[{'capability': n, 'state': state} for n in names])

    def set_parameters(self, **values):
        self.call('migrate-set-parameters', **values)

    def migration(self):
        """query-migrate."""
        return self.call('query-migrate')

    def migration_state(self):
        return self.migration().get('status', 'none')

    def wait_migration(self, *states, seconds=60):
        """Waits until the migration is in one of @states (default: it is over); the query-migrate result."""
        wanted = states or FINAL_STATES
        last = {}

        def reached():
            nonlocal last
            last = self.migration()
            status = last.get('status')
            if status in wanted:
                return last
            if status in FINAL_STATES:
                raise AssertionError(f'{self}: migration is {status}, not {"/".join(wanted)}: '
                                     f'{last.get("error-desc")}; stderr: {self.stderr.strip()}')
            return None
        try:
            return poll(reached, seconds, f'{self}: migration {"/".join(wanted)}')
        except Timeout as error:
            raise Timeout(f'{error}; last seen {last}') from None
        except QmpClosed as error:
            status = self.process.wait(30)
            raise VmDied(f'{self} ended with status {status}: {error}; '
                         f'stderr: {self.stderr.strip()}') from None

    def wait_run_state(self, *states, seconds=30):
        return poll(lambda: self.run_state in states, seconds, f'{self}: run state {"/".join(states)}')

    def incoming_verdict(self, seconds=60):
        """
        How an incoming migration ended: "completed" or "failed", whether the process is still there or
        has ended with status 1; anything else (a signal, another status) is an error.
        """
        try:
            return self.wait_migration('completed', 'failed', seconds=seconds)['status']
        except (VmDied, QmpClosed):
            status = self.wait_exit()
            if status != 1:
                raise VmDied(f'{self} ended with status {status}: {self.stderr.strip()}') from None
            return 'failed'

    def has_capability(self, name):
        return any(c['capability'] == name for c in self.call('query-migrate-capabilities'))

    def try_call(self, command, **arguments):
        """The error text of a command that must fail."""
        try:
            self.call(command, **arguments)
        except QmpError as error:
            return error.desc
        raise AssertionError(f'{command} {arguments} succeeded')

# SPDX-License-Identifier: BSD-2-Clause
"""The test guest of machine pico (tests/guest), as a test starts it and reads what it reports."""
import functools
import os
import subprocess

from .deadline import poll
from .programs import Missing

# tests/guest/layout.h and guest.c
REPORT = 0x8000
MAGIC = 0x7469776474736574
HEAD_WORDS = 0x100 // 8
PROCESSOR_WORDS = 16
FIELDS = ('steps', 'written', 'checked', 'errors', 'sweeps', 'error_kind', 'error_where', 'error_expected',
          'error_found', 'longest_gap', 'pages')


@functools.lru_cache
def image(build_dir):
    """The ELF file; Missing if it was not built or does not run here."""
    path = os.path.join(build_dir, 'tests', 'guest', 'test-guest.elf')
    if not os.path.exists(path):
        raise Missing('the test guest is built on x86-64 only')
    if not os.access('/dev/kvm', os.R_OK | os.W_OK):
        raise Missing('/dev/kvm is not there or not ours to use')
    words = [os.path.join(build_dir, 'vmm', 'godwit'), '-M', 'pico', '-m', '16', '-smp', '2', '-kernel', path,
             '-append', 'exit status=21', '-nodefaults', '-display', 'none', '-monitor', 'none']
    try:
        result = subprocess.run(words, capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        raise Missing('/dev/kvm does not run the test guest: it has not ended within 60 s') from None
    if result.returncode != 2 * 21 + 1:
        raise Missing(f'/dev/kvm does not run the test guest: {result.stderr.strip()}')
    return path


def options(path, mode, cpus=1, accel='kvm', memory=16, **values):
    """Words of the command line for a guest in @mode with the further options @values."""
    text = ' '.join([mode, f'cpus={cpus}'] + [f'{name}={value}' for name, value in values.items()])
    return ['-accel', accel, '-m', str(memory), '-smp', str(cpus), '-kernel', path, '-append', text]


class Report:
    """One look at the report page."""

    def __init__(self, words):
        self.alive = words[0] == MAGIC
        self.ticks = words[3]
        self.fatal = words[4]
        self.trap = words[5:8]
        self.cpus = []
        for n in range(HEAD_WORDS, len(words), PROCESSOR_WORDS):
            self.cpus.append(dict(zip(FIELDS, words[n:n + PROCESSOR_WORDS])))

    @property
    def errors(self):
        return sum(cpu['errors'] for cpu in self.cpus)


def report(vm, cpus=1):
    words = []
    text = vm.hmp(f'xp /{HEAD_WORDS + PROCESSOR_WORDS * cpus}gx {REPORT:#x}')
    for line in text.splitlines():
        words += [int(word, 16) for word in line.partition(':')[2].split()]
    return Report(words)


def check(vm, cpus=1):
    """The report; no processor has found anything wrong."""
    seen = report(vm, cpus)
    assert seen.fatal == 0, f'{vm}: the guest took exception {seen.trap[0]}: {[hex(n) for n in seen.trap]}'
    assert seen.errors == 0, f'{vm}: {[cpu for cpu in seen.cpus if cpu["errors"]]}'
    return seen


def wait_for(vm, what, condition, cpus=1, seconds=60):
    """Until @condition of the report holds; the report."""
    def attempt():
        seen = check(vm, cpus)
        return seen if seen.alive and condition(seen) else None
    return poll(attempt, seconds, f'{vm}: {what}', interval=0.02)


def wait_steps(vm, steps, cpus=1, seconds=60):
    """Until every processor has made so many more steps: it runs."""
    before = wait_for(vm, 'the guest has started', lambda r: all(c['steps'] for c in r.cpus), cpus, seconds)
    return wait_for(vm, f'{steps} steps', lambda r: all(
        now['steps'] >= then['steps'] + steps for now, then in zip(r.cpus, before.cpus)), cpus, seconds)


def wait_sweeps(vm, sweeps, cpus=1, seconds=120):
    """Until every processor has checked all its pages (or registers) so many more times."""
    before = check(vm, cpus)
    return wait_for(vm, f'{sweeps} sweeps', lambda r: all(
        now['sweeps'] >= then['sweeps'] + sweeps for now, then in zip(r.cpus, before.cpus)), cpus, seconds)

# SPDX-License-Identifier: BSD-2-Clause
"""The program godwit-migrate between real QEMUs and, where it is built, godwit."""
import json
import os
import pty
import signal
import subprocess
import sys

import pytest
from godwit.deadline import Deadline, poll
from godwit.programs import compat_options
from godwit.ram import MIB

TOOL = os.path.normpath(
    os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'tools', 'godwit-migrate'))
SIZE = 32 * MIB


class Pair:
    """Two VMs whose monitors are free for the tool."""

    def __init__(self, make_vm, make_ram, source, destination):
        self.src = make_vm(source,
                           'src',
                           ram=make_ram(SIZE).fill_mixed(),
                           options=compat_options(source, destination))
        self.dst = make_vm(destination, 'dst', ram=make_ram(SIZE), incoming='defer')
        for vm in (self.src, self.dst):
            vm.qmp.close()
        self.words = [sys.executable, TOOL, self.src.qmp_path, self.dst.qmp_path]

    def run(self, *words):
        return subprocess.run([*self.words, *words], capture_output=True, text=True, timeout=120, check=False)

    def start(self, *words, **options):
        return subprocess.Popen([*self.words, *words], text=True, **options)

    def monitors_back(self):
        for vm in (self.src, self.dst):
            if vm.alive:
                vm.connect()


@pytest.fixture(params=[('7.2', '7.2'), ('11.1', '7.2'), ('godwit', 'godwit')], ids='->'.join)
def pair(request, find_program, make_vm, make_ram):
    return Pair(make_vm, make_ram, *(find_program(name) for name in request.param))


@pytest.fixture
def old_pair(find_program, make_vm, make_ram):
    return Pair(make_vm, make_ram, find_program('7.2'), find_program('7.2'))


def test_completes_with_summary(pair):
    result = pair.run('tcp:127.0.0.1:0', '-p', 'max-bandwidth=1G')
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert any(line.startswith('completed: tcp:127.0.0.1:') for line in lines)
    rows = {line[2:22].strip(): line[23:] for line in lines if line.startswith('  ')}
    assert rows['memory'] == '32.0 MiB'
    assert int(rows['pages with data']) + int(rows['zero pages']) >= SIZE // 4096
    pair.dst.ram.assert_same(pair.src.ram)
    pair.monitors_back()
    assert pair.dst.run_state == 'running' and pair.src.run_state == 'postmigrate'
    assert phases(rows) == expected_phases(pair)


def phases(rows):
    names = ('stop', 'pause', 'last sync', 'transfer', 'device state', 'hand-over', 'load, there',
             'start, there')
    return {name: rows[name] for name in names if name in rows}


def expected_phases(pair):
    """As the two ends tell, in milliseconds; QEMU does not tell."""
    source = pair.src.migration().get('x-downtime', {})
    destination = pair.dst.migration().get('x-downtime', {})
    if source:
        assert sum(us for name, us in source.items() if name != 'total') == source['total']
        assert source['total'] // 1000 == pair.src.migration()['downtime']
        assert destination['receive'] + destination['load'] + destination['start'] == destination['total']
    names = {'stop': source.get('stop'), 'last sync': source.get('sync'),
             'transfer': source.get('transfer'), 'device state': source.get('device-state'),
             'hand-over': source.get('hand-over'), 'load, there': destination.get('load'),
             'start, there': destination.get('start')}
    return {name: f'{us / 1000:.3f} ms' for name, us in names.items() if us is not None}


def test_lines_of_progress(pair, folder):
    result = pair.run(f'unix:{folder}/mig', '-p', 'max-bandwidth=8M', '--interval', '0.05')
    assert result.returncode == 0, result.stderr
    progress = [line for line in result.stdout.splitlines() if 'MiB/s' in line and 'round' in line]
    assert len(progress) >= 2 and '\r' not in result.stdout
    assert progress[-1].startswith('completed') and '100%' in progress[-1]


def test_bar_on_a_terminal(pair, folder):
    leader, follower = pty.openpty()
    tool = pair.start(f'unix:{folder}/mig', '-p', 'max-bandwidth=4M', '--interval', '0.05', stdout=follower,
                      stderr=subprocess.STDOUT)
    os.close(follower)
    shown = b''
    deadline = Deadline(60)
    while not deadline.expired():
        try:
            data = os.read(leader, 65536)
        except OSError:
            break
        if not data:
            break
        shown += data
    os.close(leader)
    assert tool.wait(60) == 0, shown
    bars = [part for part in shown.decode().split('\r\x1b[K') if '[' in part]
    assert len(bars) >= 3 and '100%' in bars[-1] and '#' in bars[-1]


def test_capability_and_json(pair, folder):
    result = pair.run(f'unix:{folder}/mig', '-c', 'return-path', '--json', '-q')
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)['status'] == 'completed'


def test_interrupt_cancels(pair, folder):
    tool = pair.start(f'unix:{folder}/mig',
                      '-p',
                      'max-bandwidth=1M',
                      stdout=subprocess.PIPE,
                      stderr=subprocess.PIPE)
    poll(lambda: 'active' in tool.stdout.readline(), 30, 'the migration is active')
    tool.send_signal(signal.SIGINT)
    _, errors = tool.communicate(timeout=60)
    assert tool.returncode == 130 and 'cancelled' in errors
    pair.monitors_back()
    assert pair.src.migration_state() == 'cancelled' and pair.src.run_state == 'running'


def test_failure_is_told(pair, folder):
    result = pair.run(f'unix:{folder}/nosuch/mig')
    assert result.returncode == 2 and 'destination: migrate-incoming: ' in result.stderr


def test_destination_dies(pair, folder):
    tool = pair.start(f'unix:{folder}/mig',
                      '-p',
                      'max-bandwidth=1M',
                      stdout=subprocess.PIPE,
                      stderr=subprocess.PIPE)
    poll(lambda: 'active' in tool.stdout.readline(), 30, 'the migration is active')
    pair.dst.expect_signal = signal.SIGKILL
    pair.dst.kill()
    _, errors = tool.communicate(timeout=60)
    assert tool.returncode == 1 and errors.startswith('failed: ')


@pytest.mark.parametrize('words, text', (
    (['-p', 'nosuch=1'], 'there is no parameter nosuch'),
    (['-p', 'max-bandwidth'], 'NAME=VALUE is expected'),
    (['-p', 'max-bandwidth=fast'], 'a number is expected'),
    (['-c', 'nosuch'], 'there is no capability nosuch'),
))
def test_bad_options(words, text, old_pair, folder):
    result = old_pair.run(f'unix:{folder}/mig', *words)
    assert result.returncode == 2 and text in result.stderr


def test_no_monitor(folder):
    result = subprocess.run([sys.executable, TOOL, f'{folder}/nosuch', f'{folder}/nosuch', 'tcp:127.0.0.1:0'],
                            capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 2 and 'cannot connect' in result.stderr


def test_pre_switchover_is_passed(pair, folder):
    result = pair.run(f'unix:{folder}/mig', '-c', 'pause-before-switchover', '-q')
    assert result.returncode == 0, result.stderr

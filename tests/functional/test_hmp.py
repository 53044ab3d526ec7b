# SPDX-License-Identifier: BSD-2-Clause
"""HMP on a socket, through QMP and on a terminal; where it can be, the same questions to QEMU 11.1."""
import os
import pty
import re
import select
import signal
import socket
import subprocess

import pytest
from godwit.deadline import Deadline, poll
from godwit.hmp import Hmp
from godwit.ram import MIB

pytestmark = pytest.mark.quick

LEFT = b'\x1b[D'
CLEAR = b'\x1b[K'


@pytest.fixture(params=('godwit', '11.1'))
def vm(request, find_program, make_vm, make_ram):
    return make_vm(find_program(request.param), 'vm', ram=make_ram(16 * MIB), options=('-S',))


@pytest.fixture
def hmp_path(folder):
    return os.path.join(folder, 'hmp')


@pytest.fixture(params=('godwit', '11.1'))
def hmp_vm(request, find_program, make_vm, make_ram, hmp_path):
    options = ('-S', '-monitor', f'unix:{hmp_path},server=on,wait=off')
    return make_vm(find_program(request.param), 'vm', ram=make_ram(16 * MIB), options=options)


def test_what_cannot_be_understood(vm):
    for line, output in (
            ('', ''),
            ('nosuch', "unknown command: 'nosuch'"),
            ('stop;cont', "unknown command: 'stop;cont'"),
            ('info nosuch', "unknown command: 'info nosuch'"),
            ('help nosuch', "unknown command: 'nosuch'"),
            ('migrate', 'migrate: string expected|Try "help migrate" for more information'),
            ('migrate -z', 'migrate: unsupported option -z|Try "help migrate" for more information'),
            ('migrate -dr x',
             'migrate: extraneous characters at the end of line|Try "help migrate" for more information'),
            ('info version extra', 'version: extraneous characters at the end of line|'
                                   'Try "help info version" for more information'),
            ('migrate_set_capability xbzrle 1',
             "Expected 'on' or 'off'|Try \"help migrate_set_capability\" for more information"),
            ('logfile', 'logfile: filename expected|Try "help logfile" for more information'),
            ('xp/4xw', 'unexpected end of expression|Try "help xp" for more information'),
            ('xp/4zw 0', "invalid char in format: 'z'|Try \"help xp\" for more information"),
            ('xp $eip', 'unknown register|Try "help xp" for more information'),
            ('xp (1', '\')\' expected|Try "help xp" for more information'),
            ('p 1/0', 'division by zero|Try "help p" for more information'),
            ('trace-event nosuch on', 'unknown event "nosuch"')):
        assert vm.hmp(line) == ''.join(f'{part}\r\n' for part in output.split('|') if part), line


def test_errors(vm):
    for line, text in (
            ('migrate -d foo:', 'unknown migration protocol: foo:'),
            ('migrate -d tcp:localhost', "error parsing address 'localhost'"),
            ('migrate_continue active', 'Migration not in expected state: none'),
            ('migrate_continue nosuch', 'invalid parameter value: nosuch'),
            ('migrate_incoming tcp:0:0', "'-incoming' was not specified on the command line"),
            ('migrate_start_postcopy',
             'Enable postcopy with migrate_set_capability before the start of migration'),
            ('migrate_set_capability nosuch on', 'invalid parameter value: nosuch'),
            ('migrate_set_parameter nosuch 1', 'invalid parameter value: nosuch'),
            ('migrate_set_parameter max-bandwidth abc', 'Invalid size abc'),
            ('migrate_set_parameter downtime-limit -1',
             "Value '-1' is out of range for parameter 'downtime-limit'"),
            ('migrate_set_parameter downtime-limit 3000000',
             'Option downtime-limit expects an integer in the range of 0 to (2000 * 1000) ms'),
            ('object_del nosuch', "object 'nosuch' not found"),
            ('object_add foo', "Parameter 'qom-type' does not accept value 'foo'")):
        assert vm.hmp(line) == f'Error: {text}\r\n', line


def test_run_state(vm):
    for line, status in (('', 'paused (prelaunch)'), ('c', 'running'), ('s', 'paused'), ('cont', 'running'),
                         ('stop', 'paused'), ('system_reset', 'paused (prelaunch)')):
        assert vm.hmp(line) == ''
        assert vm.hmp('info status') == f'VM status: {status}\r\n'


def test_parameters(vm):
    before = vm.call('query-migrate-parameters')
    assert vm.hmp('migrate_set_parameter max-bandwidth 32') == ''
    assert vm.hmp('migrate_set_parameter downtime-limit 0x10') == ''
    assert vm.hmp('migrate_set_parameter announce-rounds 7') == ''
    after = vm.call('query-migrate-parameters')
    changed = {k: v for k, v in after.items() if before[k] != v}
    assert changed == {'max-bandwidth': 32 * MIB, 'downtime-limit': 16, 'announce-rounds': 7}
    lines = vm.hmp('info migrate_parameters').split('\r\n')
    # The remark behind what is known by name only is ours.
    plain = [line.removesuffix(' (not supported yet)') for line in lines]
    assert plain[:27] == [
        'announce-initial: 50 ms', 'announce-max: 550 ms', 'announce-rounds: 7', 'announce-step: 100 ms',
        'throttle-trigger-threshold: 50', 'cpu-throttle-initial: 20', 'cpu-throttle-increment: 10',
        'cpu-throttle-tailslow: off', 'max-cpu-throttle: 99', "tls-creds: ''", "tls-hostname: ''",
        "tls-authz: ''", 'max-bandwidth: 33554432 bytes/second', 'avail-switchover-bandwidth: 0 bytes/second',
        'max-postcopy-bandwidth: 0 bytes/second', 'downtime-limit: 16 ms', 'x-checkpoint-delay: 20000 ms',
        'multifd-channels: 2', 'multifd-compression: none', 'zero-page-detection: multifd',
        'xbzrle-cache-size: 67108864 bytes', 'x-vcpu-dirty-limit-period: 1000 ms', 'vcpu-dirty-limit: 1 MB/s',
        'mode: normal', 'direct-io: off', 'x-rdma-chunk-size: 1048576 bytes', 'cpr-exec-command:']


def test_capabilities(vm):
    assert vm.hmp('migrate_set_capability xbzrle on') == ''
    states = {c['capability']: c['state'] for c in vm.call('query-migrate-capabilities')}
    assert states['xbzrle'] and sum(states.values()) == 1
    lines = vm.hmp('info migrate_capabilities').replace(' (not supported yet)', '').split('\r\n')
    assert lines[:-1] == [f'{name}: {"on" if state else "off"}' for name, state in states.items()]


def test_memory(vm):
    ram = vm.ram
    ram.write(0x100, bytes([1, 2, 3, 0x84, 0x41, 10, 0x27, 0x7f]) + b'\xff' * 8)
    for line, output in (
            ('xp/8xw 0x100', '00000100: 0x84030201 0x7f270a41 0xffffffff 0xffffffff|'
                             '00000110: 0x00000000 0x00000000 0x00000000 0x00000000'),
            ('xp/10xb 0x100', '00000100: 0x01 0x02 0x03 0x84 0x41 0x0a 0x27 0x7f|00000108: 0xff 0xff'),
            ('xp /2xg 0x80*2', '00000100: 0x7f270a4184030201 0xffffffffffffffff'),
            ('xp/3db 0x100', '00000100:   1   2   3'),
            ('xp/2uw 0x104', '00000104: 2133264961 4294967295'),
            ('xp/4ob 0x100', '00000100: 0  1 0  2 0  3 0204'),
            ('xp/8cb 0x100', "00000100: '\\x01' '\\x02' '\\x03' '\\x84' 'A' '\\n' '\\'' '\\x7f'"),
            ('xp/0x 0', ''),
            ('xp/9xb 0xfffff8', '00fffff8: 0x00 0x00 0x00 0x00 0x00 0x00 0x00 0x00|'
                                '01000000: Cannot access memory'),
            ('x/4xw 0', 'Can not dump without CPU'),
            ('gpa2hva 0x180000000', 'No memory is mapped at address 0x180000000'),
            ('p/x 1+2', '0x3'), ('p/d 0x10', '16'), ('p/o 8', '010'), ('p/c 65', "'A'"), ('p/d 0-1', '-1'),
            ('p/x 4|3+1', '0x8')):
        assert vm.hmp(line) == ''.join(f'{part}\r\n' for part in output.split('|') if part), line


def test_pmemsave(vm, folder):
    vm.ram.fill(5)
    path = os.path.join(folder, 'saved')
    assert vm.hmp(f'pmemsave 0x10000 0x20000 "{path}"') == ''
    with open(path, 'rb') as saved:
        assert saved.read() == vm.ram.copy()[0x10000:0x30000]


def test_lists(vm):
    block = vm.ram.block
    text = vm.hmp('info ramblock').split('\r\n')
    assert text[0] == (f'{"Block Name":>24} {"PSize":>8}  {"Offset":>18} {"Used":>18} {"Total":>18} '
                       f'{"HVA":>18}  RO')
    assert re.fullmatch(rf' *{block}    4 KiB  0x[0-9a-f]{{16}} 0x0000000001000000 0x0000000001000000 '
                        r'0x[0-9a-f]{16}  rw', text[1])
    assert vm.hmp('info memory_size_summary') == 'base memory: 16777216\r\nplugged memory: 0\r\n'
    assert (f'    0000000000000000-0000000000ffffff (prio 0, ram): {block}\r\n' in vm.hmp('info mtree'))
    assert vm.hmp('info name') == 'vm\r\n'
    assert vm.hmp('info uuid') == '00000000-0000-0000-0000-000000000000\r\n'
    assert vm.hmp('info cpus') == ''


# ---- migration ----

def test_info_migrate(vm, folder):
    assert vm.hmp('info migrate') == ''
    path = os.path.join(folder, 'out')
    vm.hmp(f'migrate -d file:{path}')
    vm.wait_migration('completed')
    text = vm.hmp('info migrate')
    assert re.fullmatch(
        r'Status: \t\tcompleted\r\n'
        r'Time \(ms\): \t\ttotal=\d+, setup=\d+, down=\d+\r\n'
        r'RAM info:\r\n'
        r'  Throughput \(Mbps\): \t[\d.]+\r\n'
        r'  Sizes: \t\tpagesize=4 KiB, total=16 MiB\r\n'
        r'  Transfers: \t\ttransferred=[\d.]+ [KM]iB, remain=0 B\r\n'
        r'    Channels: \t\tprecopy=[\d.]+ [KM]?i?B, multifd=0 B, postcopy=0 B\r\n'
        r'    Page Types: \tnormal=\d+, zero=\d+\r\n'
        r'  Page Rates \(pps\): \ttransfer=\d+(, dirty=\d+)?\r\n'
        r'  Others: \t\tdirty_syncs=\d+(, postcopy_req=\d+)?(, downtime_bytes=\d+)?\r\n', text), text
    everything = vm.hmp('info migrate -a')
    assert everything.startswith(text)
    assert '\r\nGlobals:\r\n  store-global-state: on\r\n  only-migratable: off\r\n' in everything


def test_info_migrate_details(godwit, make_vm, make_ram, folder):
    """What QEMU does not have."""
    vm = make_vm(godwit, 'vm', ram=make_ram(16 * MIB))
    vm.hmp(f'migrate -d file:{folder}/out')
    vm.wait_migration('completed')
    text = vm.hmp('info migrate -a')
    assert re.search(r'\r\nDowntime \(us\): \t\ttotal=\d+, stop=\d+, sync=\d+, transfer=\d+, '
                     r'device-state=\d+, hand-over=\d+\r\n', text), text
    assert re.search(r'\r\nDirty log:\r\n  software: syncs=\d+ in \d+ us, clears=\d+ in \d+ us, '
                     r'pages/clear=[\d.]+, requests=0\r\n', text), text
    assert re.search(r'\r\nRounds:\r\n  round  dirty pages  sync \(us\)  clears  pages/clear  clear \(us\)  '
                     r'send \(us\)  pages  bytes\r\n +1 +4096 ', text), text


def test_failed_migration_says_why(vm):
    vm.hmp('migrate -d tcp:127.0.0.1:1')
    vm.wait_migration('failed')
    assert vm.hmp('info migrate') == \
        "Status: \t\tfailed (Failed to connect to '127.0.0.1:1': Connection refused)\r\n"


def test_prompt_waits_for_migration(hmp_vm, hmp_path, folder):
    hmp = Hmp(hmp_path)
    out = os.path.join(folder, 'out')
    assert hmp.command(f'migrate file:{out}') == ''
    assert hmp.command('info status') == 'VM status: paused (postmigrate)\n'


def test_prompt_waits_while_nothing_moves(godwit, make_vm, make_ram, hmp_path):
    """The monitor of a migration that hangs is busy; the others are not."""
    options = ('-monitor', f'unix:{hmp_path},server=on,wait=off')
    # More than the kernel takes for a peer that does not read.
    vm = make_vm(godwit, 'vm', ram=make_ram(64 * MIB).fill(0xa5), options=options)
    hmp = Hmp(hmp_path)
    with socket.create_server(('127.0.0.1', 0)) as listener:
        hmp.sock.sendall(f'migrate tcp:127.0.0.1:{listener.getsockname()[1]}\ninfo status\n'.encode())
        vm.wait_migration('setup', 'active')
        assert vm.call('query-status')['running']
        vm.call('migrate_cancel')
        text = b''
        deadline = Deadline(30)
        while b'VM status: running' not in text:
            hmp.sock.settimeout(max(deadline.left(), 0.001))
            text += hmp.sock.recv(65536)


# ---- sessions ----

def receive_until(sock, end):
    data = b''
    deadline = Deadline(30)
    while not data.endswith(end):
        sock.settimeout(max(deadline.left(), 0.001))
        piece = sock.recv(65536)
        assert piece, f'end of file after {data!r}'
        data += piece
    return data


def connect(path):
    def attempt():
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.connect(path)
            return sock
        except (FileNotFoundError, ConnectionRefusedError):
            sock.close()
            return None
    return poll(attempt, 30, path)


def test_echo(hmp_vm, hmp_path):
    sock = connect(hmp_path)
    greeting = receive_until(sock, b'(qemu) ')
    assert re.fullmatch(rb"\w+ [\d.]+ monitor - type 'help' for more information\r\n\(qemu\) ", greeting)
    for keys, echo in (
            (b'i', b'i' + CLEAR),
            (b'n', LEFT + b'in' + CLEAR),
            (b'f', LEFT * 2 + b'inf' + CLEAR),
            (b'\x1b[D', LEFT),
            (b'x', LEFT * 2 + b'inxf' + CLEAR + LEFT),
            (b'\x7f', LEFT * 3 + b'inf' + CLEAR + LEFT),
            (b'\x05', b'\x1b[C'),
            (b'\t', LEFT * 3 + b'info ' + CLEAR),
            (b'\x15', LEFT * 5 + CLEAR),
            (b'\r', b'\r\n(qemu) '),
            (b'\x03', b''),
            (b's', b's' + CLEAR),
            (b'\x0c', b'\x1b[2J\x1b[1;1H(qemu) s' + CLEAR),
            (b'\x17', LEFT + CLEAR)):
        sock.sendall(keys)
        if echo:
            assert receive_until(sock, echo[-1:] if len(echo) < 3 else echo[-3:]) == echo, keys
    sock.sendall(b'info status\n')
    text = receive_until(sock, b'\r\n(qemu) ')
    assert text.endswith(b'info status' + CLEAR + b'\r\nVM status: paused (prelaunch)\r\n(qemu) ')
    sock.sendall(b'\x1b[A')
    assert receive_until(sock, CLEAR) == b'info status' + CLEAR
    sock.close()


def test_next_client(hmp_vm, hmp_path):
    first = Hmp(hmp_path)
    first.sock.sendall(b'half a li')
    first.close()
    second = Hmp(hmp_path)
    assert second.command('info status') == 'VM status: paused (prelaunch)\n'
    assert "0: 'info status'\n1: 'info history'\n" in second.command('info history')


def test_quit(hmp_vm, hmp_path):
    hmp = Hmp(hmp_path)
    hmp.sock.sendall(b'quit\n')
    assert hmp_vm.wait_exit() == 0
    assert receive_until(hmp.sock, b'\r\n').endswith(CLEAR + b'\r\n')


# ---- terminal ----

class Terminal:
    """A godwit whose monitor is on a terminal of its own."""

    def __init__(self, godwit):
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [godwit.path, '-M', 'none', '-m', '16', '-nodefaults', '-display', 'none', '-monitor', 'stdio'],
            stdin=slave, stdout=slave, stderr=slave, env=dict(os.environ, TERM='xterm', HOME='/nonexistent'),
            start_new_session=True)
        os.close(slave)

    def type(self, keys, end):
        """Types @keys; what is printed until @end has come."""
        os.write(self.master, keys)
        data = b''
        deadline = Deadline(30)
        while not data.endswith(end):
            ready, _, _ = select.select([self.master], [], [], max(deadline.left(), 0))
            assert ready, f'no {end!r} in {data!r}'
            data += os.read(self.master, 65536)
        return data

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)


@pytest.fixture
def terminal(godwit):
    if not os.path.exists('/dev/ptmx'):
        pytest.skip('no /dev/ptmx: there are no terminals here')
    try:
        made = Terminal(godwit)
    except OSError as error:
        pytest.skip(f'no terminal: {error}')
    yield made
    made.close()


def test_terminal(terminal):
    assert b"type 'help' for more information" in terminal.type(b'', b'(qemu) ')
    assert b'VM status: running' in terminal.type(b'info status\r', b'(qemu) ')
    # Completion, once with one and once with several ends.
    assert b'VM status: running' in terminal.type(b'info stat\t\r', b'(qemu) ')
    assert b'migrate_cancel' in terminal.type(b'migr\t', b'(qemu) migrate')
    terminal.type(b'\x15stop\r', b'(qemu) ')
    assert b'VM status: paused' in terminal.type(b'\x1b[A\x1b[A\x1b[A\r', b'(qemu) ')
    assert b'stop' in terminal.type(b'info history\r', b'(qemu) ')
    # No end of file by ^D.
    terminal.type(b'\x04', b'(qemu) ')
    os.write(terminal.master, b'quit\r')
    assert terminal.process.wait(30) == 0


def test_terminal_interrupt(terminal):
    terminal.type(b'', b'(qemu) ')
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.process.wait(30) == 0

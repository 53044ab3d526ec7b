# SPDX-License-Identifier: BSD-2-Clause
"""The program as a process: messages, exit statuses, start-up order, background, pid file, signals, ends."""
import fcntl
import os
import pty
import re
import signal
import socket
import subprocess
import time

import pytest
from godwit.deadline import poll
from godwit.hmp import Hmp
from godwit.qmp import Qmp
from godwit.vm import die_with_parent

pytestmark = pytest.mark.quick

SIZE_HINT = ('Optional suffix k, M, G, T, P or E means kilo-, mega-, giga-, tera-, peta-\n'
             'and exabytes, respectively.\n')

# Words after -M none -display none, and what stands on standard error after "PROG: "; the exit status is 1.
REFUSED = [
    (['-M', 'none,foo=1'], "Property 'none-machine.foo' not found\n"),
    (['-M', 'none,foo'], "-M none,foo: Expected '=' after parameter 'foo'\n"),
    (['-M', 'none,accel=foo'], 'invalid accelerator foo\n'),
    (['-accel', 'foo'], '-accel foo: invalid accelerator foo\n'),
    (['-accel', 'tcg,foo=1'], "-accel tcg,foo=1: Property 'tcg-accel.foo' not found\n"),
    (['-M', 'none,accel='], 'no accelerator found\n'),
    (['-M', 'none,memory-backend=x'], "Memory backend 'x' not found\n"),
    (['-object', 'memory-backend-ram,id=x,size=1M', '-M', 'none,memory-backend=x', '-m', '2M'],
     'Machine memory size does not match the size of the memory backend\n'),
    (['-object', 'memory-backend-ram,id=x,size=1M', '-M', 'none,memory-backend=x', '-mem-path', '/tmp'],
     "'-mem-path' can't be used together with'-machine memory-backend'\n"),
    (['-mem-path', '/nonexistent/x', '-m', '1'],
     "can't open backing store /nonexistent/x for guest RAM: No such file or directory\n"),
    (['-m', 'foo'], "-m foo: Parameter 'size' expects a non-negative number below 2^64\n" + SIZE_HINT),
    (['-m', '8192E'], "-m 8192E: Value '8192E' is out of range for parameter 'size'\n"),
    (['-m', '-1'], "-m -1: Value '-1' is out of range for parameter 'size'\n"),
    (['-m', '16,maxmem=8'],
     'invalid value of maxmem: maximum memory size (0x8) must be at least the initial memory size '
     '(0x1000000)\n'),
    (['-m', '16,slots=2'], 'slots specified but no max-size\n'),
    (['-smp', '2'], "Invalid SMP CPUs 2. The max CPUs supported by machine 'none' is 1\n"),
    (['-smp', 'foo'], "Parameter 'smp.cpus' expects integer\n"),
    (['-smp', 'foo=1'], "Parameter 'smp.foo' is unexpected\n"),
    (['-smp', '0'], 'Invalid CPU topology: CPU topology parameters must be greater than zero\n'),
    (['-uuid', 'foo'], '-uuid foo: failed to parse UUID string: wrong format\n'),
    (['-name', 'foo,bar=1'], "-name foo,bar=1: Invalid parameter 'bar'\n"),
    (['-nosuchthing'], '-nosuchthing: invalid option\n'),
    (['-'], '-: invalid option\n'),
    (['-m'], '-m: requires an argument\n'),
    (['-qmp', 'foo'], "-qmp foo: 'foo' is not a valid char driver\nPROG: -qmp foo: parse error: foo\n"),
    (['-qmp', 'unix:/x,server=maybe'],
     "-qmp unix:/x,server=maybe: Parameter 'server' expects 'on' or 'off'\n"
     'PROG: -qmp unix:/x,server=maybe: parse error: unix:/x,server=maybe\n'),
    (['-qmp', 'unix:/nonexistent/u'],
     "-qmp unix:/nonexistent/u: Failed to connect to '/nonexistent/u': No such file or directory\n"),
    (['-qmp', 'unix:/nonexistent/u,server=on,wait=off'],
     '-qmp unix:/nonexistent/u,server=on,wait=off: Failed to bind socket to /nonexistent/u: '
     'No such file or directory\n'),
    (['-qmp', 'chardev:x'], '-qmp chardev:x: chardev "x" not found\n'),
    (['-qmp', 'stdio', '-monitor', 'stdio'],
     '-monitor stdio: cannot use stdio by multiple character devices\n'),
    (['-daemonize', '-qmp', 'stdio'], '-qmp stdio: cannot use stdio with -daemonize\n'),
    (['-serial', 'foo'], "-serial foo: 'foo' is not a valid char driver\n"
                         "PROG: -serial foo: could not connect serial device to character backend 'foo'\n"),
    (['-serial', 'chardev:x'],
     "-serial chardev:x: could not connect serial device to character backend 'chardev:x'\n"),
    (['-qtest', 'foo'], "'foo' is not a valid char driver\n"
                        'PROG: Failed to initialize device for qtest: "foo"\n'),
    (['-chardev', 'socket,id=x,fd=99'], "-chardev socket,id=x,fd=99: File descriptor '99' is not a socket\n"),
    (['-chardev', 'null,id=x', '-chardev', 'null,id=x'],
     "-chardev null,id=x: Duplicate ID 'x' for chardev\n"),
    (['-object', 'foo'], "-object foo: Parameter 'qom-type' does not accept value 'foo'\n"),
    (['-object', 'memory-backend-ram,id=m'],
     "-object memory-backend-ram,id=m: Parameter 'size' is missing\n"),
    (['-object', 'memory-backend-file,id=m,size=1M,mem-path=/nonexistent/x'],
     "can't open backing store /nonexistent/x for guest RAM: No such file or directory\n"),
    (['-incoming', 'foo'],
     "-incoming foo: Parameter 'channel-type' does not accept value 'foo'\n"),
    (['-incoming', ''], "-incoming : Parameter 'channel-type' is missing\n"),
    (['-incoming', 'foo:bar'], '-incoming foo:bar: unknown migration protocol: foo:bar\n'),
    (['-incoming', 'tcp:'], "-incoming tcp:: error parsing address ''\n"),
    (['-incoming', 'fd:foo'], "-incoming fd:foo: Invalid file descriptor number 'foo'\n"),
    (['-incoming', 'fd:99'],
     '-incoming fd:99: fd: migration to a file is not supported. Use file: instead.\n'),
    (['-incoming', 'unix:/nonexistent/u'],
     '-incoming unix:/nonexistent/u: Failed to bind socket to /nonexistent/u: No such file or directory\n'),
    (['-incoming', '{"channel-type":"main"}'],
     '-incoming {"channel-type":"main"}: Parameter \'addr\' is missing\n'),
    (['-incoming', '{"channel-type":'],
     '-incoming {"channel-type":: 1:17: JSON parse error, premature end of input\n'),
    (['-incoming', 'channel-type=main,addr.transport=socket'],
     "-incoming channel-type=main,addr.transport=socket: Parameter 'addr.type' is missing\n"),
    (['-incoming', 'defer', '-loadvm', 'x'], "'incoming' and 'loadvm' options are mutually exclusive\n"),
    (['-loadvm', 'x'], 'no block device can store vmstate for snapshot\n'),
    (['-global', 'migration.nosuch=1'],
     "can't apply global migration.nosuch=1: Property 'migration.nosuch' not found\n"),
    (['-global', 'driver=migration,property=x-multifd,value=maybe'],
     "can't apply global migration.x-multifd=maybe: Parameter 'x-multifd' expects 'on' or 'off'\n"),
    (['-global', 'driver=migration'],
     "-global driver=migration: options 'driver', 'property', and 'value' are required\n"),
    (['-D', '/nonexistent/x'], 'Error opening logfile /nonexistent/x: No such file or directory\n'),
    (['-pidfile', '/nonexistent/x'],
     "cannot create PID file: Could not create '/nonexistent/x': No such file or directory\n"),
    (['-add-fd', 'fd=99,set=1'], '-add-fd fd=99,set=1: fd is not valid or already in use\n'),
    (['-add-fd', 'fd=1,set=1'], '-add-fd fd=1,set=1: fd cannot be a standard I/O stream\n'),
    (['-sandbox', 'on,obsolete=foo'], '-sandbox on,obsolete=foo: invalid argument for obsolete\n'),
    (['-display', 'foo'], "-display foo: Parameter 'type' does not accept value 'foo'\n"),
    (['-readconfig', '/nonexistent'],
     "-readconfig /nonexistent: Could not open '/nonexistent': No such file or directory\n"),
]

# The same, in our own words.
REFUSED_HERE = [
    (['-global', 'migration.multifd-channels=300'],
     "can't apply global migration.multifd-channels=300: "
     "Option multifd-channels expects a value between 1 and 255\n"),
    (['-M', 'workload,patern=hot'], "Property 'workload-machine.patern' not found\nDid you mean pattern?\n"),
    (['-incomming', 'defer'], '-incomming: invalid option\nDid you mean -incoming?\n'),
    (['-M', 'worklod'], 'unsupported machine type: "worklod"\nDid you mean workload?\n'
                        'Use -machine help to list supported machines\n'),
    (['-cpu', 'host'], "machine 'none' has no CPUs: -cpu cannot be used\n"),
    (['-sandbox', 'on'], "-sandbox on: system call filtering is not supported: only 'off' is accepted\n"),
    (['-netdev', 'x'], '-netdev: not supported: there is no such device or feature here\n'),
    (['-device', 'x'], "-device x: not supported by machine 'none': only pico has devices\n"),
    (['-drive', 'x'], "-drive x: not supported by machine 'none': only pico has devices\n"),
    (['-M', 'none,suppress-vmdesc=on'],
     '-machine suppress-vmdesc=on is not supported: the description is always sent\n'),
    (['-fault', 'nosuch'], None),
]


def words_id(row):
    return ' '.join(row) if isinstance(row, list) else ''


def run(program, *words, stdin=subprocess.DEVNULL, **kind):
    """Runs @program to its end."""
    return subprocess.run([program.path, *words], stdin=stdin, capture_output=True, text=True, timeout=60,
                          check=False, **kind)


def own_messages(program, stderr):
    """What @program said, with its name as PROG; a peer in a foreign root complains about its modules too."""
    lines = [line for line in stderr.splitlines(True)
             if 'failed to initialize module' not in line and 'Only modules from the same' not in line and
             'is deprecated' not in line]
    name = os.path.basename(program.path)
    return ''.join(re.sub(rf'^{re.escape(name)}(?=:)', 'PROG', line) for line in lines)


@pytest.mark.parametrize('words, text', REFUSED, ids=words_id)
@pytest.mark.parametrize('name', ['godwit', '11.1'])
def test_refused(find_program, name, words, text):
    """Words that both programs refuse, with the same text."""
    program = find_program(name)
    result = run(program, '-M', 'none', '-display', 'none', *words)
    assert own_messages(program, result.stderr) == 'PROG: ' + text
    assert result.returncode == 1


@pytest.mark.parametrize('words, text', REFUSED_HERE, ids=words_id)
def test_refused_here(godwit, words, text):
    result = run(godwit, '-M', 'none', *words)
    assert result.returncode == 1
    if text is None:
        assert result.stderr.startswith('godwit: ')
    else:
        assert result.stderr == 'godwit: ' + text


# ---- things that are printed ----

@pytest.mark.parametrize('words, status, text', [
    (['--help'], 0, 'usage: godwit [options]'),
    (['-h'], 0, '-incoming URI|defer|CHANNEL'),
    (['-version'], 0, 'QEMU emulator version 11.1.0'),
    (['--check'], 0, 'userfaultfd'),
    (['-M', 'help'], 0, 'none '),
    (['-M', 'none,help'], 0, 'memory-backend='),
    (['-accel', 'help'], 0, 'kvm'),
    (['-object', 'help'], 0, 'memory-backend-file'),
    (['-object', 'memory-backend-file,help'], 0, 'mem-path='),
    (['-chardev', 'help'], 0, 'socket'),
    (['-trace', 'help'], 0, 'ram_'),
    (['-d', 'trace:help'], 0, 'ram_'),
    (['-d', 'help'], 1, 'trace:PATTERN'),
    (['-d', 'foo'], 1, 'trace:PATTERN'),
    (['-fault', 'help'], 0, ''),
    (['-L', 'help'], 0, ''),
], ids=words_id)
def test_printed(godwit, words, status, text):
    result = run(godwit, *words)
    assert result.returncode == status
    assert text in result.stdout
    assert result.stderr == ''


# ---- run states ----

@pytest.mark.parametrize('words, state', [
    ([], 'running'), (['-S'], 'prelaunch'), (['-incoming', 'defer'], 'inmigrate'),
    (['-incoming', 'tcp:127.0.0.1:0'], 'inmigrate'), (['-S', '-incoming', 'defer'], 'inmigrate'),
])
def test_first_run_state(godwit, make_vm, words, state):
    vm = make_vm(godwit, 'vm', options=words)
    assert vm.run_state == state
    vm.quit()


@pytest.mark.parametrize('words, size', [
    ([], 0), (['-m', '0'], 0), (['-m', '16'], 16 << 20), (['-m', '4097b'], 8192), (['-m', '1.5M'], 3 << 19),
    (['-m', '8', '-m', 'size=16'], 16 << 20),
])
def test_memory_size(godwit, make_vm, words, size):
    vm = make_vm(godwit, 'vm', options=words)
    assert vm.call('query-memory-size-summary')['base-memory'] == size
    assert [m['id'] for m in vm.call('query-memdev')] == (['ram'] if size else [])
    vm.quit()


def test_dotted_incoming(godwit, make_vm):
    """A channel as dotted keys, with the members that are not strings."""
    vm = make_vm(godwit, 'vm', incoming='channel-type=main,addr.transport=socket,addr.type=inet,'
                                        'addr.host=127.0.0.1,addr.port=0,addr.ipv4=on,addr.numeric=on')
    address = vm.migration()['socket-address'][0]
    assert address['host'] == '127.0.0.1' and int(address['port']) > 0
    vm.quit()


def test_json_incoming(godwit, make_vm, folder):
    path = os.path.join(folder, 'mig')
    vm = make_vm(godwit, 'vm', incoming='{"channel-type": "main", "addr": {"transport": "socket", '
                                        f'"type": "unix", "path": "{path}"}}}}')
    assert vm.migration()['status'] == 'setup'
    assert os.path.exists(path)
    vm.quit()
    assert not os.path.exists(path)


def test_last_incoming_counts(godwit, make_vm):
    vm = make_vm(godwit, 'vm', options=['-incoming', 'tcp:127.0.0.1:0'], incoming='defer')
    assert 'status' not in vm.migration()
    vm.quit()


def test_globals_apply_in_order(godwit, make_vm):
    vm = make_vm(godwit, 'vm', options=['-global', 'migration.x-max-bandwidth=10', '-global',
                                        'driver=migration,property=x-max-bandwidth,value=20'])
    assert vm.call('query-migrate-parameters')['max-bandwidth'] == 20
    vm.quit()


def test_foreign_global_is_a_warning(godwit, make_vm):
    vm = make_vm(godwit, 'vm', options=['-global', 'nosuch.prop=1'])
    vm.quit()
    assert vm.stderr == 'godwit: warning: global nosuch.prop has invalid class name\n'


# ---- monitors ----

def test_several_monitors(godwit, make_vm, folder):
    hmp_path, second_path = os.path.join(folder, 'hmp'), os.path.join(folder, 'second')
    vm = make_vm(godwit, 'vm', options=[
        '-monitor', f'unix:{hmp_path},server=on,wait=off',
        '-chardev', f'socket,id=mon1,path={second_path},server=on,wait=off',
        '-mon', 'chardev=mon1,mode=control'])
    labels = {c['label'] for c in vm.call('query-chardev')}
    assert labels == {'compat_monitor0', 'compat_monitor1', 'mon1'}
    second = Qmp.connect(second_path)
    assert second.call('query-status')['running']
    hmp = Hmp(hmp_path)
    second.close()
    assert 'running' in hmp.command('info status')
    vm.quit()
    for path in (hmp_path, second_path, vm.qmp_path):
        assert not os.path.exists(path)


def talk(program, option, requests):
    """One run with a monitor on standard input, which holds @requests and ends."""
    return subprocess.run([program.path, '-M', 'none', option, 'stdio'], input=requests, text=True,
                          capture_output=True, timeout=60, check=False)


def test_pretty_monitor(godwit):
    result = talk(godwit, '-qmp-pretty', '{"execute":"qmp_capabilities"}{"execute":"quit"}')
    assert result.returncode == 0
    assert result.stdout.startswith('{\n    "QMP": {\n        "version": {\n')


def test_monitor_on_inherited_listener(godwit, make_vm, folder):
    """What management software does: it makes the socket, and connects before the program has even begun."""
    path = os.path.join(folder, 'early')
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(1)
    early = socket.socket(socket.AF_UNIX)
    early.connect(path)
    vm = make_vm(godwit, 'vm', pass_fds=[listener.fileno()], options=[
        '-chardev', f'socket,id=charmonitor,fd={listener.fileno()},server=on,wait=off',
        '-mon', 'chardev=charmonitor,id=monitor,mode=control'])
    listener.close()
    client = Qmp(early)
    client.call('qmp_capabilities')
    assert client.call('query-status')['running']
    vm.quit()


def test_stdio_answers_after_end_of_input(godwit):
    result = talk(godwit, '-qmp', '{"execute":"qmp_capabilities"}{"execute":"query-status"}'
                                  '{"execute":"quit"}')
    assert result.returncode == 0
    lines = result.stdout.splitlines()
    assert '"QMP"' in lines[0] and '"running": true' in lines[2]
    assert [line for line in lines if 'host-qmp-quit' in line]


def test_stdio_end_of_input_is_not_the_end(godwit, folder):
    path = os.path.join(folder, 'q')
    process = subprocess.Popen([godwit.path, '-M', 'none', '-monitor', 'stdio', '-qmp',
                                f'unix:{path},server=on,wait=off'], stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, preexec_fn=die_with_parent)
    client = Qmp.connect(path)
    assert client.call('query-status')['running']
    client.call('quit')
    assert process.wait(30) == 0


def test_server_waits_for_its_client(godwit, folder):
    """Nothing happens until the client is there; the words tell the user why."""
    path = os.path.join(folder, 'w')
    process = subprocess.Popen([godwit.path, '-M', 'none', '-qmp', f'unix:{path},server=on'],
                               stderr=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
    assert process.stderr.readline() == (f'godwit: -qmp unix:{path},server=on: info: QEMU waiting for '
                                         f'connection on: disconnected:unix:{path},server=on\n')
    assert process.poll() is None
    client = Qmp.connect(path)
    client.call('quit')
    assert process.wait(30) == 0
    process.stderr.close()


def test_signal_while_waiting_for_the_client_kills(godwit, folder):
    process = subprocess.Popen([godwit.path, '-M', 'none', '-qmp', f'unix:{folder}/w,server=on'],
                               stderr=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
    assert 'waiting for connection' in process.stderr.readline()
    process.terminate()
    assert process.wait(30) == -signal.SIGTERM
    process.stderr.close()


class Terminal:
    """godwit with a pseudo-terminal as its standard input and output."""

    def __init__(self, program, *words):
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen([program.path, *words], stdin=slave, stdout=slave, stderr=slave,
                                        preexec_fn=self._own_terminal)
        os.close(slave)
        self.text = ''

    @staticmethod
    def _own_terminal():
        os.setsid()
        fcntl.ioctl(0, 0x540e, 0)       # TIOCSCTTY: ^C of this terminal is for us
        die_with_parent()

    def expect(self, text):
        os.set_blocking(self.master, False)

        def seen():
            try:
                self.text += os.read(self.master, 65536).decode(errors='replace')
            except (BlockingIOError, OSError):
                pass
            return text in self.text
        poll(seen, 30, f'{text!r} on the terminal')

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.master)


@pytest.fixture
def terminal():
    made = []

    def make(*args):
        made.append(Terminal(*args))
        return made[-1]
    yield make
    for t in made:
        t.close()


def test_nographic_is_a_monitor_on_the_terminal(godwit, terminal):
    t = terminal(godwit, '-M', 'none', '-nographic')
    t.expect(') ')
    os.write(t.master, b'\x03')         # not a signal here: only a key
    os.write(t.master, b'info stat\t\r')
    t.expect('VM status: running')
    os.write(t.master, b'quit\r')
    assert t.process.wait(30) == 0


def test_interrupt_on_the_terminal(godwit, terminal):
    t = terminal(godwit, '-M', 'none', '-monitor', 'stdio')
    t.expect(') ')
    os.write(t.master, b'\x03')
    assert t.process.wait(30) == 0
    t.expect('godwit: terminating on signal 2\r\n')


# ---- signals ----

@pytest.mark.parametrize('signum', [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_ends_in_order(godwit, make_vm, signum):
    vm = make_vm(godwit, 'vm')
    vm.kill(signum)
    event = vm.qmp.wait_event('SHUTDOWN')
    assert event.data == {'guest': False, 'reason': 'host-signal'}
    assert vm.wait_exit() == 0
    sender = open('/proc/self/cmdline', encoding='utf-8').read().split('\0')[0]
    assert vm.stderr == f'godwit: terminating on signal {signum.value} from pid {os.getpid()} ({sender})\n'
    assert not os.path.exists(vm.qmp_path)


def test_closed_pipe_does_not_kill(godwit, make_vm, folder):
    """SIGPIPE is ignored: a client that goes away while it is written to is only a client less."""
    vm = make_vm(godwit, 'vm')
    vm.qmp.sock.close()
    for _ in range(20):
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(vm.qmp_path)
        sock.close()
    client = Qmp.connect(vm.qmp_path)
    assert client.call('query-status')['running']
    client.call('quit')
    assert vm.wait_exit() == 0


# ---- background and pid file ----

def test_daemonize(godwit, folder):
    """When the command returns everything is there, and its process is in the background."""
    path, pid_file, log = (os.path.join(folder, name) for name in ('q', 'pid', 'log'))
    result = run(godwit, '-M', 'none', '-qmp', f'unix:{path},server=on,wait=off', '-pidfile', pid_file,
                 '-daemonize', '-D', log)
    assert (result.returncode, result.stderr) == (0, '')
    pid = int(open(pid_file, encoding='ascii').read())
    try:
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(path)              # without waiting
        client = Qmp(sock)
        client.call('qmp_capabilities')
        assert client.call('query-status')['running']
        assert os.getsid(pid) != os.getsid(0)
        assert os.readlink(f'/proc/{pid}/cwd') == '/'
        assert [os.readlink(f'/proc/{pid}/fd/{fd}') for fd in range(3)] == ['/dev/null', '/dev/null', log]
    finally:
        os.kill(pid, signal.SIGTERM)
    poll(lambda: not os.path.exists(f'/proc/{pid}'), 30, 'end of the process in the background')
    assert not os.path.exists(pid_file) and not os.path.exists(path)
    assert 'terminating on signal 15' in open(log, encoding='utf-8').read()


def test_daemonize_failure(godwit, folder):
    pid_file = os.path.join(folder, 'pid')
    result = run(godwit, '-M', 'none', '-daemonize', '-pidfile', pid_file, '-incoming', 'unix:/nonexistent/u')
    assert result.returncode == 1
    assert result.stderr == ('godwit: -incoming unix:/nonexistent/u: Failed to bind socket to '
                             '/nonexistent/u: No such file or directory\n')
    assert not os.path.exists(pid_file)


def test_pid_file(godwit, make_vm, folder):
    path = os.path.join(folder, 'pid')
    vm = make_vm(godwit, 'vm', options=['-pidfile', path])
    assert open(path, encoding='ascii').read() == f'{vm.pid}\n'
    second = run(godwit, '-M', 'none', '-pidfile', path)
    assert second.returncode == 1
    assert second.stderr == ('godwit: cannot create PID file: Cannot lock pid file: '
                             'Resource temporarily unavailable\n')
    assert open(path, encoding='ascii').read() == f'{vm.pid}\n'
    vm.quit()
    assert not os.path.exists(path)


def test_stale_pid_file(godwit, make_vm, folder):
    path = os.path.join(folder, 'pid')
    with open(path, 'w', encoding='ascii') as f:
        f.write('99999999999 left behind\n')
    vm = make_vm(godwit, 'vm', options=['-pidfile', path])
    assert open(path, encoding='ascii').read() == f'{vm.pid}\n'
    vm.quit()


# ---- names, messages, traces ----

def test_names(godwit, make_vm):
    uuid = '12345678-9abc-def0-0123-456789abcdef'
    vm = make_vm(godwit, 'vm', options=['-name', 'guest=g,,1,process=proc', '-uuid', uuid])
    assert vm.call('query-name') == {'name': 'g,1'}
    assert vm.call('query-uuid') == {'UUID': uuid}
    assert open(f'/proc/{vm.pid}/comm', encoding='ascii').read() == 'proc\n'
    vm.quit()


def test_message_prefix(godwit):
    result = run(godwit, '-msg', 'timestamp=on,guest-name=on', '-name', 'g', '-M', 'none,foo=1')
    stamp, text = result.stderr.split(' ', 1)
    assert re.fullmatch(r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z', stamp)
    assert text == "g godwit: Property 'none-machine.foo' not found\n"


def test_log_file(godwit, make_vm, folder):
    vm = make_vm(godwit, 'vm', options=['-trace', 'monitor_*', '-D', os.path.join(folder, 'log-%d')])
    vm.quit()
    text = open(os.path.join(folder, f'log-{vm.pid}'), encoding='utf-8').read()
    assert text and all(line.startswith('monitor_') for line in text.splitlines())
    assert vm.stderr == ''


def test_trace_event_files(godwit, make_vm, folder):
    path = os.path.join(folder, 'events')
    with open(path, 'w', encoding='ascii') as f:
        f.write('# comment\nnosuch\nmonitor_*\n')
    vm = make_vm(godwit, 'vm', options=['-trace', f'events={path}', '-trace', 'nosuch2', '-trace', 'nosuch*'])
    vm.quit()
    lines = vm.stderr.splitlines()
    assert f"godwit:{path}:2: warning: trace event 'nosuch' does not exist" in lines
    assert "godwit: -trace nosuch2: warning: trace event 'nosuch2' does not exist" in lines
    assert [line for line in lines if line.startswith('monitor_')]
    assert not [line for line in lines if 'nosuch*' in line]


def test_config_file(godwit, make_vm, folder):
    path = os.path.join(folder, 'config')
    with open(path, 'w', encoding='ascii') as f:
        f.write('[object "m0"]\n  qom-type = "memory-backend-ram"\n  size = "8M"\n'
                '[machine]\n  type = "none"\n  memory-backend = "m0"\n'
                '[global]\n driver = "migration"\n property = "x-max-bandwidth"\n value = "7"\n'
                '[chardev "c"]\n backend = "null"\n')
    vm = make_vm(godwit, 'vm', options=['-readconfig', path])
    assert vm.call('query-memory-size-summary')['base-memory'] == 8 << 20
    assert vm.call('query-migrate-parameters')['max-bandwidth'] == 7
    assert 'c' in [c['label'] for c in vm.call('query-chardev')]
    vm.quit()


def test_descriptor_sets(godwit, make_vm, folder):
    path = os.path.join(folder, 'file')
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    vm = make_vm(godwit, 'vm', pass_fds=[fd], options=['-add-fd', f'fd={fd},set=7,opaque=words'])
    os.close(fd)
    sets = vm.call('query-fdsets')
    assert [s['fdset-id'] for s in sets] == [7]
    assert [f['opaque'] for f in sets[0]['fds']] == ['words']
    vm.quit()


def test_qtest_log(godwit, make_vm, folder):
    path = os.path.join(folder, 'log')
    vm = make_vm(godwit, 'vm', qtest=True, options=['-m', '1M', '-qtest-log', path])
    vm.qtest.write(0, b'\x12\x34')
    assert vm.qtest.read(0, 2) == b'\x12\x34'
    vm.quit()
    lines = [line.split('] ') for line in open(path, encoding='ascii').read().splitlines()]
    assert ['OK EjQ='] == [text for kind, text in lines if kind.startswith('[S +')][-1:]
    assert 'b64read 0x0 0x2' in [text for kind, text in lines if kind.startswith('[R +')]


def test_command_line_options(godwit, make_vm):
    """What management software asks before it writes a command line."""
    vm = make_vm(godwit, 'vm')
    options = {o['option']: {p['name']: p['type'] for p in o['parameters']}
               for o in vm.call('query-command-line-options')}
    assert options['memory'] == {'size': 'size', 'slots': 'number', 'maxmem': 'size'}
    assert options['name'] == {'guest': 'string', 'process': 'string', 'debug-threads': 'boolean'}
    assert 'sandbox' not in options
    assert vm.try_call('query-command-line-options', option='nosuch') == 'invalid option name: nosuch'
    vm.quit()


# ---- ends ----

def test_failed_incoming_ends_with_status_1(godwit, make_vm):
    vm = make_vm(godwit, 'vm', connect=False, incoming='exec:echo GET / HTTP/1.0')
    assert vm.wait_exit() == 1
    assert vm.stderr == ('godwit: load of migration failed: Invalid argument: Not a migration stream, magic: '
                         '47455420 != 5145564d\n')
    assert not os.path.exists(vm.qmp_path)


def test_failed_incoming_is_told_before_the_end(godwit, make_vm, folder):
    path = os.path.join(folder, 'garbage')
    with open(path, 'wb') as f:
        f.write(b'QEVM' + bytes(100))
    vm = make_vm(godwit, 'vm', incoming='defer')
    vm.set_capabilities('events')
    vm.call('migrate-incoming', uri=f'file:{path}')
    assert vm.wait_exit() == 1
    assert vm.stderr.startswith('godwit: load of migration failed: ')
    assert vm.qmp.migration_states()[-1] == 'failed'


def test_failed_incoming_may_live_on(godwit, make_vm, folder):
    path = os.path.join(folder, 'garbage')
    with open(path, 'wb') as f:
        f.write(b'QEVM' + bytes(100))
    vm = make_vm(godwit, 'vm', incoming='defer')
    vm.call('migrate-incoming', **{'uri': f'file:{path}', 'exit-on-error': False})
    assert vm.wait_migration('failed')['error-desc']
    assert vm.run_state == 'inmigrate'
    vm.quit()


def test_quit_during_outgoing_migration(godwit, make_vm, folder):
    """SHUTDOWN, then the migration's end, then the connection's; status 0."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.path.join(folder, 'silent'))
    listener.listen(1)
    vm = make_vm(godwit, 'vm', machine='workload', options=['-m', '64M'])
    vm.set_capabilities('events')
    vm.set_parameters(**{'max-bandwidth': 1 << 20})
    vm.call('migrate', uri=f'unix:{folder}/silent')
    vm.wait_migration('active', 'setup')
    begin = time.monotonic()
    vm.quit()
    listener.close()
    assert 'SHUTDOWN' in [e.name for e in vm.qmp.pending_events()]
    assert vm.qmp.migration_states()[-1] == 'cancelled'
    assert time.monotonic() - begin < 60

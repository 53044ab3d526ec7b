# SPDX-License-Identifier: BSD-2-Clause
"""The QMP protocol on a real socket, the same questions to godwit and to QEMU 11.1."""
import array
import json
import os
import re
import select
import socket

import pytest
from godwit.deadline import Deadline, poll

pytestmark = pytest.mark.quick

GENERIC = 'GenericError'
NOT_FOUND = 'CommandNotFound'


class Raw:
    """A QMP connection of bytes and lines."""

    def __init__(self, path, negotiate=True):
        def attempt():
            sock = socket.socket(socket.AF_UNIX)
            try:
                sock.connect(path)
                return sock
            except (FileNotFoundError, ConnectionRefusedError):
                sock.close()
                return None
        self.sock = poll(attempt, 30, f'QMP socket {path}')
        self.buffer = b''
        if negotiate:
            self.line()
            self.send(b'{"execute": "qmp_capabilities"}\n')
            assert self.line() == b'{"return": {}}'

    def send(self, data):
        self.sock.sendall(data)

    def send_fd(self, data, fd):
        self.sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [fd]))])

    def line(self):
        """The next line, without its end."""
        deadline = Deadline(30)
        while b'\r\n' not in self.buffer:
            self.sock.settimeout(max(deadline.left(), 0.001))
            data = self.sock.recv(65536)
            assert data, f'end of file after {self.buffer!r}'
            self.buffer += data
        line, self.buffer = self.buffer.split(b'\r\n', 1)
        return line

    def reply(self):
        return json.loads(self.line())

    def silent(self, seconds=0.3):
        return not self.buffer and not select.select([self.sock], [], [], seconds)[0]

    def at_end(self):
        self.sock.settimeout(30)
        try:
            return not self.buffer and self.sock.recv(1) == b''
        except ConnectionResetError:    # the server had not read all when it closed
            return not self.buffer

    def close(self):
        self.sock.close()


@pytest.fixture(params=('godwit', '11.1'))
def server(request, find_program, make_vm):
    return make_vm(find_program(request.param), 'vm', connect=False, options=('-S',))


@pytest.fixture
def only_godwit(godwit, make_vm):
    return make_vm(godwit, 'vm', connect=False, options=('-S',))


def request(command, **more):
    return json.dumps({'execute': command, **more}).encode() + b'\n'


# ---- session ----

def test_greeting(server):
    client = Raw(server.qmp_path, negotiate=False)
    line = client.line()
    assert line.isascii()
    greeting = json.loads(line)['QMP']
    assert greeting['capabilities'] == ['oob']
    assert greeting['version']['qemu'].keys() == {'major', 'minor', 'micro'}
    assert (greeting['version']['qemu']['major'], greeting['version']['qemu']['minor']) == (11, 1)
    assert isinstance(greeting['version']['package'], str)
    client.send(request('qmp_capabilities') + request('query-version'))
    client.line()
    assert client.reply() == {'return': greeting['version']}


def test_negotiation(server):
    client = Raw(server.qmp_path, negotiate=False)
    client.line()
    expecting = "Expecting capabilities negotiation with 'qmp_capabilities'"
    for data, error_class, desc in (
            (request('query-name'), NOT_FOUND, expecting),
            (request('nosuch'), NOT_FOUND, expecting),
            (request('qmp_capabilities', arguments={'enable': 1}), GENERIC,
             "Invalid parameter type for 'enable', expected: array"),
            (request('qmp_capabilities', arguments={'enable': ['foo']}), GENERIC,
             "Parameter 'null' does not accept value 'foo'"),
            (request('qmp_capabilities', arguments={'zip': 1}), GENERIC, "Parameter 'zip' is unexpected")):
        client.send(data)
        assert client.reply() == {'error': {'class': error_class, 'desc': desc}}
    client.send(request('qmp_capabilities'))
    assert client.reply() == {'return': {}}
    client.send(request('qmp_capabilities'))
    assert client.reply() == {'error': {
        'class': NOT_FOUND, 'desc': 'Capabilities negotiation is already complete, command ignored'}}


def test_next_client_begins_anew(server):
    first = Raw(server.qmp_path)
    second = Raw(server.qmp_path, negotiate=False)
    assert second.silent()
    first.send(b'{"execute": "query-na')
    first.close()
    assert b'"QMP"' in second.line()
    second.send(b'@\n')
    assert second.reply()['error']['desc'] == "1:1: JSON parse error, stray '@'"
    second.send(request('query-name'))
    assert second.reply()['error']['class'] == NOT_FOUND


# ---- requests ----

REQUESTS = (
    (b'[]', GENERIC, 'QMP input must be a JSON object'),
    (b'"x"', GENERIC, 'QMP input must be a JSON object'),
    (b'true ', GENERIC, 'QMP input must be a JSON object'),
    (b'{}', GENERIC, "QMP input lacks member 'execute'"),
    (b'{"execute": 1}', GENERIC, "QMP input member 'execute' must be a string"),
    (b'{"execute": "query-name", "arguments": null}', GENERIC,
     "QMP input member 'arguments' must be an object"),
    (b'{"execute": "query-name", "foo": 1}', GENERIC, "QMP input member 'foo' is unexpected"),
    (b'{"exec-oob": "query-name"}', GENERIC, "QMP input member 'exec-oob' is unexpected"),
    (b'{"execute": "nosuch"}', NOT_FOUND, 'The command nosuch has not been found'),
    (b'{"execute": "query-events"}', NOT_FOUND, 'The command query-events has not been found'),
    (b'{"execute": "stop", "arguments": {"a": 1}}', GENERIC, "Parameter 'a' is unexpected"),
    (b'{"execute": "object-del"}', GENERIC, "Parameter 'id' is missing"),
    (b'{"execute": "object-del", "arguments": {"id": 1}}', GENERIC,
     "Invalid parameter type for 'id', expected: string"),
    (b'{"execute": "object-del", "arguments": {"id": "nosuch"}}', GENERIC, "object 'nosuch' not found"),
    (b'{"execute": "migrate-set-capabilities"}', GENERIC, "Parameter 'capabilities' is missing"),
    (b'{"execute": "migrate-set-capabilities", "arguments": {"capabilities": 1}}', GENERIC,
     "Invalid parameter type for 'capabilities', expected: array"),
    (b'{"execute": "migrate-set-capabilities", "arguments": {"capabilities": [1]}}', GENERIC,
     "Invalid parameter type for 'capabilities[0]', expected: object"),
    (b'{"execute": "migrate-set-capabilities", "arguments": {"capabilities": [{"capability": "xbzrle"}]}}',
     GENERIC, "Parameter 'capabilities[0].state' is missing"),
    (b'{"execute": "migrate-set-capabilities", "arguments": {"capabilities": '
     b'[{"capability": "foo", "state": true}]}}', GENERIC,
     "Parameter 'capability' does not accept value 'foo'"),
    (b'{"execute": "migrate-set-parameters", "arguments": {"multifd-channels": 0}}', GENERIC,
     "Option multifd-channels expects a value between 1 and 255"),
    (b'{"execute": "migrate-set-parameters", "arguments": {"max-bandwidth": "1"}}', GENERIC,
     "Parameter 'max-bandwidth' expects uint64"),
    (b'{"execute": "migrate-set-parameters", "arguments": {"max-bandwidth": 1.0}}', GENERIC,
     "Parameter 'max-bandwidth' expects uint64"),
    (b'{"execute": "migrate"}', GENERIC, "need either 'uri' or 'channels' argument"),
    (b'{"execute": "migrate", "arguments": {"uri": "x:", "channels": []}}', GENERIC,
     'unknown migration protocol: x:'),
    (b'{"execute": "migrate", "arguments": {"channels": [{"channel-type": "main", "addr": '
     b'{"transport": "socket", "type": "inet", "host": "h"}}]}}', GENERIC,
     "Parameter 'channels[0].addr.port' is missing"),
    (b'{"execute": "migrate-incoming", "arguments": {}}', GENERIC,
     "'-incoming' was not specified on the command line"),
    (b'{"execute": "migrate-continue", "arguments": {"state": "pre-switchover"}}', GENERIC,
     'Migration not in expected state: none'),
    (b'{"execute": "getfd", "arguments": {"fdname": "a"}}', GENERIC,
     'No file descriptor supplied via SCM_RIGHTS'),
    (b'{"execute": "closefd", "arguments": {"fdname": "a"}}', GENERIC, "File descriptor named 'a' not found"),
    (b'{"execute": "remove-fd", "arguments": {"fdset-id": 5}}', GENERIC,
     "File descriptor named 'fdset-id:5' not found"),
    (b'{"execute": "yank", "arguments": {"instances": [{"type": "migration"}]}}', 'DeviceNotFound',
     'Instance not found'),
    (b'{"execute": "qom-list", "arguments": {"path": "/nosuch"}}', 'DeviceNotFound',
     "Device '/nosuch' not found"),
    (b'{"execute": "trace-event-get-state", "arguments": {"name": "nosuch"}}', GENERIC,
     'unknown event "nosuch"'),
    (b'{"execute": "system_wakeup"}', GENERIC, 'wake-up from suspend is not supported by this guest'),
    (b'{"execute": "human-monitor-command", "arguments": {"command-line": "", "cpu-index": 3}}', GENERIC,
     "Parameter 'cpu-index' expects a CPU number"),
)


def test_refusals(server):
    client = Raw(server.qmp_path)
    for data, error_class, desc in REQUESTS:
        client.send(data)
        assert client.reply() == {'error': {'class': error_class, 'desc': desc}}, data


def test_ids_are_echoed(server):
    client = Raw(server.qmp_path)
    for value in (0, 'x', None, True, [], {}, [1, {'a': [None]}], 2**64 - 1, -2**63, '\0\u00e9\U0001f600'):
        client.send(request('stop', id=value))
        assert client.reply() == {'return': {}, 'id': value}
        client.send(request('nosuch', id=value))
        assert client.reply()['id'] == value


def test_plain_answers(server):
    """Those that do not depend on what the program can do."""
    client = Raw(server.qmp_path)
    for command, answer in (
            ('query-status', {'status': 'prelaunch', 'running': False}),
            ('query-name', {'name': 'vm'}),
            ('query-uuid', {'UUID': '00000000-0000-0000-0000-000000000000'}),
            ('query-memory-size-summary', {'base-memory': 0, 'plugged-memory': 0}),
            ('query-memdev', []),
            ('query-migrate', {}),
            ('query-fdsets', []),
            ('query-block', []),
            ('query-current-machine', {'wakeup-suspend-support': False}),
            ('query-target', {'arch': 'x86_64'}),
            ('migrate_cancel', {})):
        client.send(request(command))
        assert client.reply() == {'return': answer}, command


def test_negative_means_modulo(server):
    client = Raw(server.qmp_path)
    client.send(request('migrate-set-parameters', arguments={'max-bandwidth': -1}))
    assert client.reply() == {'return': {}}
    client.send(request('query-migrate-parameters'))
    assert client.reply()['return']['max-bandwidth'] == 2**64 - 1


def test_pipelining(server):
    client = Raw(server.qmp_path)
    client.send(b''.join(request('query-version', id=i) for i in range(500)))
    assert [client.reply()['id'] for _ in range(500)] == list(range(500))
    assert client.silent()


def test_strings_on_the_wire(server):
    client = Raw(server.qmp_path)
    client.send(b'{"execute":"stop","id":"\\u0000 \\ud83d\\ude00 / \\/ \x7f \xc3\xa9 '
                b'\\b\\f\\n\\r\\t\\"\\\\ \\u001f"}')
    assert (rb'"id": "\u0000 \uD83D\uDE00 / / \u007F \u00E9 \b\f\n\r\t\"\\ \u001F"' in client.line())
    client.send(b'{"execute":"stop","id":[0.1,1.0,1e3,18446744073709551616]}')
    assert b'"id": [0.10000000000000001, 1, 1000, 1.8446744073709552e+19]' in client.line()


# ---- parse errors ----

PARSE_ERRORS = (
    (b'@@@\n', "stray '@'"),
    (b'"abc\x01\n', "stray '\"abc\x01'"),
    (b'"ab\x80"', 'invalid UTF-8 sequence in string'),
    (b'garbage\n', "invalid keyword 'garbage'"),
    (b'"\\q"', 'invalid escape sequence in string'),
    (b'"\\ud800"', '\\ud800 is not a valid Unicode character'),
    (b'}', 'expecting value'),
    (b'[1,]', 'expecting value'),
    (b'{"a":1,}', 'expecting key'),
    (b'{1:2}', 'expecting key'),
    (b'{"a" 1}', "expecting ':'"),
    (b'{"a":1 "b":2}', "expected ',' or '}'"),
    (b'[1 2]', "expected ',' or ']'"),
    (b'{"a":1,"a":2}', 'duplicate key'),
    (b'01 \n', "stray '01'"),
    (b'\xff', "stray '\ufffd'"),
    (b'{"execute": "query-st\xff', "stray '\"query-st\ufffd'"),
    (b'\0\n', "stray ''"),
)


def test_parse_errors(server):
    client = Raw(server.qmp_path)
    for data, desc in PARSE_ERRORS:
        client.send(data + request('stop', id=1))
        error = client.reply()
        assert error.keys() == {'error'} and error['error']['class'] == GENERIC
        assert re.sub(r'^\d+:\d+: JSON parse error, ', '', error['error']['desc']) == desc, data
        assert client.reply() == {'return': {}, 'id': 1}, data


def test_places_of_parse_errors(server):
    client = Raw(server.qmp_path)
    client.send(b'\r\n\t@\n{"a": [1,\n  "x" : 2]}\n')
    assert client.reply()['error']['desc'] == "3:2: JSON parse error, stray '@'"
    assert client.reply()['error']['desc'] == "5:7: JSON parse error, expected ',' or ']'"


def test_nesting(server):
    client = Raw(server.qmp_path)
    client.send(b'[' * 1024 + b']' * 1024)
    assert client.reply()['error']['desc'] == 'QMP input must be a JSON object'
    client.send(b'[' * 1025 + b']' * 1025 + request('stop', id=1))
    assert client.reply()['error']['desc'] == 'JSON nesting depth limit exceeded'
    assert client.reply() == {'return': {}, 'id': 1}


# ---- out of band ----

def test_oob(server):
    client = Raw(server.qmp_path, negotiate=False)
    client.line()
    client.send(request('qmp_capabilities', arguments={'enable': ['oob']}))
    assert client.reply() == {'return': {}}
    client.send(b'{"exec-oob": "query-yank", "id": 1}\n')
    reply = client.reply()
    assert reply['id'] == 1 and all(entry['type'] == 'chardev' for entry in reply['return'])
    for data, error_class, desc in (
            (b'{"exec-oob": "query-name"}', GENERIC, 'The command query-name does not support OOB'),
            (b'{"exec-oob": "nosuch"}', NOT_FOUND, 'The command nosuch has not been found'),
            (b'{"exec-oob": "stop", "execute": "stop"}', GENERIC,
             "QMP input member 'execute' clashes with 'exec-oob'")):
        client.send(data)
        assert client.reply() == {'error': {'class': error_class, 'desc': desc}}
    client.send(b''.join(request('query-version', id=i) for i in range(100)))
    assert [client.reply()['id'] for _ in range(100)] == list(range(100))


def test_schema_marks_oob(server):
    client = Raw(server.qmp_path)
    client.send(request('query-qmp-schema'))
    entities = client.reply()['return']
    oob = {e['name'] for e in entities if e.get('allow-oob')}
    assert {'migrate-pause', 'migrate-recover', 'yank', 'query-yank'} <= oob
    client.send(request('query-commands'))
    commands = {c['name'] for c in client.reply()['return']}
    assert commands == {e['name'] for e in entities if e['meta-type'] == 'command'}
    assert entities[0]['name'] == 'query-status'


# ---- events ----

def names(messages):
    return [m.get('event', 'reply') for m in messages]


def test_events_come_before_the_reply(server):
    client = Raw(server.qmp_path)
    for command, expected in (('cont', ['RESUME', 'reply']), ('cont', ['reply']), ('stop', ['STOP', 'reply']),
                              ('stop', ['reply'])):
        client.send(request(command))
        assert names(client.reply() for _ in expected) == expected
    client.send(request('system_powerdown'))
    assert sorted(names(client.reply() for _ in range(2))) == ['POWERDOWN', 'reply']


def test_stop_of_an_incoming_guest(godwit, make_vm):
    vm = make_vm(godwit, 'vm', incoming='defer')
    assert vm.run_state == 'inmigrate'
    vm.call('stop')
    vm.call('cont')
    assert vm.run_state == 'inmigrate'
    assert vm.qmp.pending_events() == []


def test_quit(server):
    client = Raw(server.qmp_path)
    client.send(request('quit', id=7))
    event = client.reply()
    assert event['event'] == 'SHUTDOWN'
    assert event['data'] == {'guest': False, 'reason': 'host-qmp-quit'}
    assert client.reply() == {'return': {}, 'id': 7}
    assert client.at_end()
    assert server.wait_exit() == 0


def test_events_for_every_monitor(godwit, make_vm, folder):
    other = os.path.join(folder, 'other')
    vm = make_vm(godwit, 'vm', options=('-S', '-qmp', f'unix:{other},server=on,wait=off'))
    second = Raw(other)
    vm.call('cont')
    assert second.reply()['event'] == 'RESUME'
    vm.quit()
    assert second.reply()['event'] == 'SHUTDOWN'
    assert second.at_end()


# ---- clients that misbehave ----

def resident(vm):
    with open(f'/proc/{vm.pid}/status') as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith('VmRSS'))


def test_client_that_does_not_read(only_godwit, folder, godwit, make_vm):
    other = os.path.join(folder, 'other')
    vm = make_vm(godwit, 'busy', options=('-qmp', f'unix:{other},server=on,wait=off'))
    deaf = Raw(other)
    before = resident(vm)
    flood = request('query-qmp-schema') * 2000       # some 100 MB of replies
    deaf.sock.setblocking(False)
    sent = 0
    try:
        while sent < len(flood):
            sent += deaf.sock.send(flood[sent:])
    except BlockingIOError:
        pass
    for _ in range(20):
        vm.call('query-status')
        assert vm.qmp.latency < 10
    assert resident(vm) - before < 16 << 20
    deaf.close()
    again = Raw(other)
    again.send(request('query-status'))
    assert again.reply()['return']['status'] == 'running'


def test_fragments(server):
    client = Raw(server.qmp_path)
    for byte in request('query-name', id='slow'):
        client.send(bytes([byte]))
    assert client.reply() == {'return': {'name': 'vm'}, 'id': 'slow'}


# ---- descriptors ----

def test_getfd(server):
    client = Raw(server.qmp_path)
    with open(os.devnull, 'rb') as file:
        client.send_fd(request('getfd', arguments={'fdname': 'a'}), file.fileno())
        assert client.reply() == {'return': {}}
        client.send_fd(b' ', file.fileno())
        client.send(request('getfd', arguments={'fdname': 'b'}))
        assert client.reply() == {'return': {}}
        client.send_fd(request('add-fd', arguments={'fdset-id': 3, 'opaque': 'null'}), file.fileno())
        assert client.reply()['return']['fdset-id'] == 3
    client.send(request('closefd', arguments={'fdname': 'a'}) + request('query-fdsets'))
    assert client.reply() == {'return': {}}
    sets = client.reply()['return']
    assert [s['fdset-id'] for s in sets] == [3]
    assert sets[0]['fds'][0]['opaque'] == 'null'
    client.send(request('remove-fd', arguments={'fdset-id': 3}) + request('query-fdsets'))
    assert client.reply() == {'return': {}}
    assert client.reply() == {'return': []}

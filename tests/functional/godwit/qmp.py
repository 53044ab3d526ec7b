# SPDX-License-Identifier: BSD-2-Clause
"""A QMP client: requests with a deadline, and a queue of the events that came meanwhile."""
import array
import json
import socket
import time

from .deadline import Deadline, Timeout, poll


class QmpError(Exception):
    """The server's error reply."""

    def __init__(self, command, error):
        super().__init__(f'{command}: {error["class"]}: {error["desc"]}')
        self.command = command
        self.error_class = error['class']
        self.desc = error['desc']


class QmpClosed(Exception):
    """The server closed the connection."""


class Event:
    """One event as it came in; @received is this process's monotonic clock."""

    def __init__(self, message):
        self.name = message['event']
        self.data = message.get('data', {})
        stamp = message['timestamp']
        self.timestamp = stamp['seconds'] + stamp['microseconds'] / 1e6
        self.received = time.monotonic()

    def __repr__(self):
        return f'{self.name}{self.data or ""}'


class Qmp:
    """One QMP session over a connected stream socket; not for use by several threads."""

    def __init__(self, sock, name='qmp', seconds=30):
        self.sock = sock
        self.name = name
        self.seconds = seconds
        self.buffer = b''
        self.events = []
        self.unseen = []            # events that no wait_event() has taken yet
        self.next_id = 0
        self.latency = 0.0          # of the last call(), in seconds
        self.greeting = self.read_message(Deadline(seconds))

    @classmethod
    def connect(cls, path, check_alive=None, seconds=30, negotiate=True):
        """Connects to the server socket @path as soon as it exists; @check_alive may raise meanwhile."""
        def attempt():
            sock = socket.socket(socket.AF_UNIX)
            try:
                sock.connect(path)
                return sock
            except (FileNotFoundError, ConnectionRefusedError):
                sock.close()
                if check_alive:
                    check_alive()
                return None
        client = cls(poll(attempt, seconds, f'QMP socket {path}'), path, seconds)
        if negotiate:
            client.call('qmp_capabilities')
        return client

    def close(self):
        self.sock.close()

    # ---- messages ----

    def read_message(self, deadline):
        """The next JSON object from the server."""
        while b'\n' not in self.buffer:
            self.sock.settimeout(max(deadline.left(), 0.001))
            try:
                data = self.sock.recv(65536)
            except TimeoutError:
                raise Timeout(f'{self.name}: no answer within {deadline.seconds:g} s') from None
            except ConnectionError as error:
                raise QmpClosed(f'{self.name}: {error}') from None
            if not data:
                raise QmpClosed(f'{self.name}: end of file')
            self.buffer += data
        line, self.buffer = self.buffer.split(b'\n', 1)
        return json.loads(line)

    def _note_event(self, message):
        event = Event(message)
        self.events.append(event)
        self.unseen.append(event)

    def read_reply(self, deadline):
        """The next message that is no event; events are queued."""
        while True:
            message = self.read_message(deadline)
            if 'event' in message:
                self._note_event(message)
            elif 'QMP' not in message:      # QEMU 11.1 greets twice if it is slow to start
                return message

    def send_bytes(self, data):
        """Raw bytes to the server, for tests of the protocol itself."""
        self.sock.settimeout(self.seconds)
        try:
            self.sock.sendall(data)
        except ConnectionError as error:
            raise QmpClosed(f'{self.name}: {error}') from None

    # ---- commands ----

    def execute(self, command, arguments=None, fds=(), seconds=None):
        """Sends one command and returns its result; descriptors @fds travel with it."""
        self.next_id += 1
        request = {'execute': command, 'id': self.next_id}
        if arguments is not None:
            request['arguments'] = arguments
        data = json.dumps(request).encode() + b'\n'
        deadline = Deadline(seconds or self.seconds)
        started = time.monotonic()
        if fds:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', fds))]
            self.sock.sendmsg([data], rights)
        else:
            self.send_bytes(data)
        reply = self.read_reply(deadline)
        self.latency = time.monotonic() - started
        if 'error' in reply:
            raise QmpError(command, reply['error'])
        assert reply.get('id') == self.next_id, f'{command}: reply to another request: {reply}'
        return reply['return']

    def call(self, command, **arguments):
        """execute() with arguments as keywords; an underscore in a keyword is a dash in the protocol."""
        named = {key.replace('_', '-'): value for key, value in arguments.items()}
        return self.execute(command, named if named else None)

    def hmp(self, line):
        """One HMP command through human-monitor-command; its output."""
        return self.execute('human-monitor-command', {'command-line': line})

    def getfd(self, name, fd):
        self.execute('getfd', {'fdname': name}, fds=[fd])

    # ---- events ----

    def pending_events(self):
        """Takes in what has arrived, without waiting; returns all events so far."""
        self.sock.setblocking(False)
        try:
            while True:
                data = self.sock.recv(65536)
                if not data:
                    break
                self.buffer += data
        except (BlockingIOError, ConnectionError):
            pass
        while b'\n' in self.buffer:
            line, self.buffer = self.buffer.split(b'\n', 1)
            self._note_event(json.loads(line))
        return self.events

    def wait_events(self, count, seconds=None):
        """
        Until @count events have come since the beginning; all of them.  The event of a step may come after
        an answer that shows the new state.
        """
        deadline = Deadline(seconds or self.seconds)
        while len(self.events) < count:
            self._note_event(self.read_message(deadline))
        return self.pending_events()

    def wait_event(self, name, seconds=None, **data):
        """
        The first event @name whose data has these members, among those not waited for yet;
        events before it are passed over.
        """
        deadline = Deadline(seconds or self.seconds)
        wanted = {key.replace('_', '-'): value for key, value in data.items()}
        while True:
            while self.unseen:
                event = self.unseen.pop(0)
                if event.name == name and all(event.data.get(k) == v for k, v in wanted.items()):
                    return event
            self._note_event(self.read_message(deadline))

    def migration_states(self):
        """States in the MIGRATION events so far, in order."""
        return [e.data['status'] for e in self.pending_events() if e.name == 'MIGRATION']

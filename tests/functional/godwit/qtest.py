# SPDX-License-Identifier: BSD-2-Clause
"""A client of the qtest text protocol: reads and writes guest memory, with dirty tracking."""
import base64
import socket

from .deadline import Deadline, Timeout, poll


class QtestError(Exception):
    """The server answered FAIL or ERR."""


class Qtest:
    def __init__(self, path, check_alive=None, seconds=30):
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
        self.sock = poll(attempt, seconds, f'qtest socket {path}')
        self.seconds = seconds
        self.buffer = b''

    def command(self, line):
        """One command; the words after OK."""
        self.sock.settimeout(self.seconds)
        self.sock.sendall(line.encode() + b'\n')
        deadline = Deadline(self.seconds)
        while True:
            reply = self._read_line(deadline)
            word, _, rest = reply.partition(' ')
            if word == 'OK':
                return rest
            if word in ('FAIL', 'ERR'):
                raise QtestError(f'{line[:60]}: {reply}')

    def commands(self, lines):
        """Many commands at once, whose answers are all OK."""
        deadline = Deadline(self.seconds)
        for start in range(0, len(lines), 64):
            some = lines[start:start + 64]
            self.sock.settimeout(self.seconds)
            self.sock.sendall(''.join(line + '\n' for line in some).encode())
            for line in some:
                reply = self._read_line(deadline)
                if not reply.startswith('OK'):
                    raise QtestError(f'{line[:60]}: {reply}')

    def _read_line(self, deadline):
        while b'\n' not in self.buffer:
            self.sock.settimeout(max(deadline.left(), 0.001))
            try:
                data = self.sock.recv(1 << 20)
            except TimeoutError:
                raise Timeout(f'qtest: no answer within {deadline.seconds:g} s') from None
            if not data:
                raise EOFError('qtest: closed')
            self.buffer += data
        line, self.buffer = self.buffer.split(b'\n', 1)
        return line.decode().rstrip('\r')

    def read(self, address, size):
        return base64.b64decode(self.command(f'b64read {address:#x} {size:#x}'))

    def write(self, address, data):
        text = base64.b64encode(data).decode()
        self.command(f'b64write {address:#x} {len(data):#x} {text}')

    def memset(self, address, size, value):
        self.command(f'memset {address:#x} {size:#x} {value:#x}')

    def close(self):
        self.sock.close()

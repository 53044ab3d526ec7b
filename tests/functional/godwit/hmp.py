# SPDX-License-Identifier: BSD-2-Clause
"""A client of an HMP monitor on a socket: sends lines, returns what is printed before the next prompt."""
import re
import socket

from .deadline import Deadline, Timeout, poll

# What a line editor sends to draw: CSI sequences and carriage returns.
CONTROL = re.compile(rb'\x1b\[[0-9;?]*[A-Za-z]|\r')


class Hmp:
    """One HMP session; the prompt is "(qemu) " or "(godwit) "."""

    PROMPT = re.compile(rb'\((?:qemu|godwit)\) ')

    def __init__(self, path, seconds=30):
        def attempt():
            sock = socket.socket(socket.AF_UNIX)
            try:
                sock.connect(path)
                return sock
            except (FileNotFoundError, ConnectionRefusedError):
                sock.close()
                return None
        self.sock = poll(attempt, seconds, f'HMP socket {path}')
        self.seconds = seconds
        self.greeting = self._until_prompt()

    def _until_prompt(self):
        deadline = Deadline(self.seconds)
        text = b''
        while True:
            plain = CONTROL.sub(b'', text)
            ends = list(self.PROMPT.finditer(plain))
            if ends and ends[-1].end() == len(plain):
                return plain[:ends[-1].start()].decode()
            self.sock.settimeout(max(deadline.left(), 0.001))
            try:
                data = self.sock.recv(65536)
            except TimeoutError:
                raise Timeout(f'HMP: no prompt within {deadline.seconds:g} s, only {text!r}') from None
            if not data:
                raise EOFError(f'HMP: closed after {text!r}')
            text += data

    def command(self, line):
        """The output of one command; the echo of a line editor is removed."""
        self.sock.sendall(line.encode() + b'\n')
        text = self._until_prompt()
        first, newline, rest = text.partition('\n')
        return rest if newline and first.endswith(line) else text

    def close(self):
        self.sock.close()

# SPDX-License-Identifier: BSD-2-Clause
"""Plays a destination: takes a stream on a unix socket and answers on the return path as a test wants."""
import os
import struct
import threading

from .deadline import poll
from .relay import listen_unix

SHUT, PONG, REQ_PAGES_ID, REQ_PAGES, RECV_BITMAP, RESUME_ACK, SWITCHOVER_ACK = range(1, 8)


def message(kind, payload=b'', length=None):
    return struct.pack('>HH', kind, len(payload) if length is None else length) + payload


def shut(value):
    return message(SHUT, struct.pack('>I', value))


def pong(value=1):
    return message(PONG, struct.pack('>I', value))


class Sink:
    """
    One connection.  @on_open is sent as soon as OPEN_RETURN_PATH and PING 1 have come, @at_end when the
    stream's description is complete; @close says whether the connection is then closed.
    """

    def __init__(self, folder, on_open=b'', at_end=b'', close=True, read_until=None):
        self.path = os.path.join(folder, 'sink')
        self.on_open, self.at_end, self.close_at_end = on_open, at_end, close
        self.read_until = read_until            # stop reading after so many bytes, and close
        self.received = bytearray()
        self.sock = None
        self.complete = False
        self.listener = listen_unix(self.path)
        self.uri = f'unix:{self.path}'
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        try:
            self.sock, _ = self.listener.accept()
            self._serve()
        except OSError:
            pass

    def _serve(self):
        opened = False
        while data := self.sock.recv(1 << 18):
            self.received += data
            if not opened and self.received.find(b'\x08\0\1\0\0\x08\0\2\0\4') >= 0:
                opened = True
                self.sock.sendall(self.on_open)
            if self.read_until is not None and len(self.received) >= self.read_until:
                self.sock.close()
                return
            if self._has_ended():
                self.complete = True
                self.sock.sendall(self.at_end)
                if self.close_at_end:
                    self.sock.close()
                    return

    def _has_ended(self):
        """Is the description there to its last byte?"""
        tail = self.received[-(1 << 16):]
        at = tail.rfind(b'\0\6\0\0')
        return at >= 0 and len(tail) == at + 6 + struct.unpack('>I', tail[at + 2:at + 6])[0]

    def wait_complete(self, seconds=30):
        poll(lambda: self.complete, seconds, 'the sink has the whole stream')

    def close(self):
        for sock in (self.sock, self.listener):
            if sock is not None:
                try:
                    sock.shutdown(2)
                except OSError:
                    pass
                sock.close()
        self.thread.join(10)

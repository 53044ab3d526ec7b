# SPDX-License-Identifier: BSD-2-Clause
"""Plays the source: sends given bytes to a destination, and reads what comes back."""
import os
import socket

from .deadline import Deadline
from .relay import connect_unix


def connect(dst, folder):
    """Makes @dst (started with -incoming defer) listen on a unix socket and connects to it."""
    path = os.path.join(folder, f'{dst.name}.incoming')
    dst.call('migrate-incoming', uri=f'unix:{path}')
    return connect_unix(path)


def send(sock, data, seconds=30):
    """All of @data, or less if the other side closes before; the count sent."""
    sock.settimeout(seconds)
    sent = 0
    try:
        while sent < len(data):
            sent += sock.send(data[sent:sent + (1 << 16)])
    except ConnectionError:
        pass
    return sent


def read_to_end(sock, seconds=30):
    """What the other side sends until it closes."""
    deadline = Deadline(seconds)
    received = b''
    try:
        while True:
            sock.settimeout(max(deadline.left(), 0.001))
            data = sock.recv(65536)
            if not data:
                break
            received += data
    except ConnectionError:
        pass
    return received


def stream(dst, data, folder):
    """Sends a whole stream, closes our side for writing, and returns what the destination sent back."""
    with connect(dst, folder) as sock:
        send(sock, data)
        try:
            sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        return read_to_end(sock)

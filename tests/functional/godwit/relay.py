# SPDX-License-Identifier: BSD-2-Clause
"""
A relay between the two ends of a migration: records the bytes, and spoils them where a test asks for it.
"""
import os
import selectors
import socket
import struct
import threading
import time
from dataclasses import dataclass, field

from .deadline import poll

CHUNK = 1 << 18


@dataclass
class Faults:
    """
    What a relay does to a connection.  Offsets count the bytes from the source to the destination of the
    first connection.
    """
    record: bool = False
    cut_after: int = None           # pass this many bytes, then do what `how` says
    how: str = 'close'              # "close" both ends, "reset" (TCP RST), "stall" (open, but nothing passes)
    corrupt: dict = field(default_factory=dict)     # {offset: bytes put in their place}
    delay: float = 0.0              # seconds before the first byte passes
    rate: int = None                # at most so many bytes per second towards the destination


class Direction:
    """One way of a connection: what was read from @source and is not yet written to @sink."""

    def __init__(self, source, sink, upward):
        self.source = source
        self.sink = sink
        self.upward = upward
        self.pending = bytearray()
        self.passed = 0
        self.recorded = bytearray()
        self.eof = False
        self.done = False


class Link:
    """A pair of connected sockets: @near is the source's side, @far the destination's."""

    def __init__(self, near, far):
        self.near = near
        self.far = far
        self.up = Direction(near, far, True)
        self.down = Direction(far, near, False)
        self.started = time.monotonic()
        self.stalled = False
        self.closed = False
        for sock in (near, far):
            sock.setblocking(False)

    def direction_from(self, sock):
        return self.up if sock is self.near else self.down

    def direction_to(self, sock):
        return self.up if sock is self.far else self.down


class Relay:
    """
    Passes bytes between pairs of sockets, in a thread of its own.  Pairs come from add_link(), or from a
    listening socket: each connection accepted there is joined to a new one made by @connect.
    """

    def __init__(self, faults=None, listener=None, connect=None):
        self.faults = faults or Faults()
        self.listener = listener
        self.connect = connect
        self.links = []
        self.error = None
        self.lock = threading.Lock()
        self.new_links = []
        self.selector = selectors.DefaultSelector()
        self.wake_read, self.wake_write = socket.socketpair()
        self.wake_read.setblocking(False)
        self.stopping = False
        self.cut_now = None
        self.thread = threading.Thread(target=self._run, name='relay', daemon=True)
        self.thread.start()

    def add_link(self, near, far):
        with self.lock:
            self.new_links.append(Link(near, far))
        self._wake()

    @property
    def up(self):
        """Recorded bytes from the source to the destination, first connection, when it has ended."""
        return bytes(self._ended_link().up.recorded)

    @property
    def down(self):
        """Recorded bytes of the return path, first connection, when it has ended."""
        return bytes(self._ended_link().down.recorded)

    def _ended_link(self):
        """A VM may have all its bytes before this thread has noted the last of them."""
        poll(lambda: self.links and self.links[0].closed or self.error, 30, 'relay: end of the connection')
        assert not self.error, self.error
        return self.links[0]

    @property
    def passed(self):
        return self.links[0].up.passed if self.links else 0

    def wait_passed(self, count, seconds=30):
        """Until @count bytes have gone to the destination."""
        poll(lambda: self.passed >= count or self.error, seconds, f'relay: {count} bytes')
        assert not self.error, self.error

    def cut(self, how='close'):
        """Does to all connections what Faults.how describes, now."""
        with self.lock:
            self.cut_now = how
        self._wake()

    def close(self):
        self.stopping = True
        self._wake()
        self.thread.join(10)
        if self.listener:
            self.listener.close()

    def _wake(self):
        try:
            self.wake_write.send(b'x')
        except OSError:
            pass

    # ---- in the relay's thread ----

    def _run(self):
        try:
            self.selector.register(self.wake_read, selectors.EVENT_READ)
            if self.listener:
                self.listener.setblocking(False)
                self.selector.register(self.listener, selectors.EVENT_READ)
            while not self.stopping:
                self._turn()
        except Exception as error:          # shown by the test that waits for the relay
            self.error = error
        finally:
            for link in self.links:
                self._end(link)
            for sock in (self.wake_read, self.wake_write):
                sock.close()
            self.selector.close()

    def _turn(self):
        with self.lock:
            fresh, self.new_links = self.new_links, []
            cut, self.cut_now = self.cut_now, None
        self.links += fresh
        for link in self.links:
            if cut and not link.closed:
                self._spoil(link, cut)
            self._update(link)
        wait = 0.01 if self.faults.rate or self.faults.delay else 1.0
        for key, mask in self.selector.select(wait):
            if key.fileobj is self.wake_read:
                self._drain_wake()
            elif key.fileobj is self.listener:
                self._accept()
            elif not key.data.closed:
                self._serve(key.data, key.fileobj, mask)

    def _drain_wake(self):
        try:
            self.wake_read.recv(4096)
        except BlockingIOError:
            pass

    def _accept(self):
        near, _ = self.listener.accept()
        try:
            far = self.connect()
        except OSError:
            near.close()
            return
        self.links.append(Link(near, far))

    def _allowance(self, link):
        """Bytes that may pass to the destination now."""
        faults = self.faults
        age = time.monotonic() - link.started
        if link.stalled or age < faults.delay:
            return 0
        allowed = CHUNK
        if faults.rate:
            allowed = min(allowed, int(faults.rate * (age - faults.delay)) - link.up.passed)
        if faults.cut_after is not None:
            allowed = min(allowed, faults.cut_after - link.up.passed)
        return max(allowed, 0)

    def _update(self, link):
        """Registers each socket for what it is wanted for."""
        if link.closed:
            return
        for sock in (link.near, link.far):
            mask = 0
            inward, outward = link.direction_from(sock), link.direction_to(sock)
            if not inward.eof and len(inward.pending) < 4 * CHUNK and not link.stalled:
                mask |= selectors.EVENT_READ
            if outward.pending and (not outward.upward or self._allowance(link)):
                mask |= selectors.EVENT_WRITE
            self._register(sock, mask, link)

    def _register(self, sock, mask, link):
        registered = sock in self.selector.get_map()
        if not mask:
            if registered:
                self.selector.unregister(sock)
        elif registered:
            self.selector.modify(sock, mask, link)
        else:
            self.selector.register(sock, mask, link)

    def _serve(self, link, sock, mask):
        if mask & selectors.EVENT_READ:
            self._read(link, link.direction_from(sock))
        if mask & selectors.EVENT_WRITE and not link.closed:
            self._write(link, link.direction_to(sock))
        if not link.closed:
            self._finish(link)

    def _read(self, link, direction):
        try:
            data = direction.source.recv(CHUNK)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b''
        if not data:
            direction.eof = True
            return
        if direction.upward:
            data = self._corrupted(data, direction.passed + len(direction.pending))
        direction.pending += data

    def _corrupted(self, data, offset):
        spoiled = bytearray(data)
        for where, bad in self.faults.corrupt.items():
            for i, byte in enumerate(bad):
                if 0 <= where + i - offset < len(spoiled):
                    spoiled[where + i - offset] = byte
        return bytes(spoiled)

    def _write(self, link, direction):
        limit = self._allowance(link) if direction.upward else CHUNK
        if not limit:
            return
        try:
            count = direction.sink.send(direction.pending[:limit])
        except BlockingIOError:
            return
        except ConnectionError:
            # The receiver has gone: pass that on, after what it had sent.
            direction.pending.clear()
            direction.eof = True
            self._shut(direction.source, socket.SHUT_RD)
            return
        if self.faults.record:
            direction.recorded += direction.pending[:count]
        del direction.pending[:count]
        direction.passed += count
        if direction.upward and direction.passed == self.faults.cut_after:
            self._spoil(link, self.faults.how)

    def _finish(self, link):
        """Passes on the end of each direction when all before it has been written."""
        for direction in (link.up, link.down):
            if direction.eof and not direction.pending and not direction.done:
                direction.done = True
                self._shut(direction.sink, socket.SHUT_WR)
        if link.up.done and link.down.done:
            self._end(link)

    def _shut(self, sock, how):
        try:
            sock.shutdown(how)
        except OSError:
            pass

    def _spoil(self, link, how):
        if how == 'stall':
            link.stalled = True
            return
        if how == 'reset':
            for sock in (link.near, link.far):
                if sock.family != socket.AF_UNIX:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
        self._end(link)

    def _end(self, link):
        if link.closed:
            return
        link.closed = True
        for sock in (link.near, link.far):
            self._register(sock, 0, link)
            sock.close()


def listen_unix(path):
    """A listening unix socket at @path."""
    if os.path.exists(path):
        os.unlink(path)
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(path)
    sock.listen(16)
    return sock


def listen_tcp():
    """A listening socket on some free port of the loopback interface."""
    sock = socket.socket()
    sock.bind(('127.0.0.1', 0))
    sock.listen(16)
    return sock


def connect_unix(path):
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(path)
    return sock

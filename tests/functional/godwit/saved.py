# SPDX-License-Identifier: BSD-2-Clause
"""A file in which a guest is saved and from which one is started: by path or descriptor set, at an offset."""
import contextlib
import errno
import os

from . import mapped_ram

TAIL = 3 << 20              # stale bytes behind the offset, of a larger file that was there before
FDSET = 11


class NoDirectIo(Exception):
    """The file system of this file refuses O_DIRECT; the text is the reason for a skip."""


class Saved:
    """
    Before the guest is saved the file is full of other bytes: those before @offset must stay, those behind
    must go. With @direct a descriptor set has a second member with O_DIRECT, as multifd + direct-io wants it.
    """

    def __init__(self, folder, offset=0, by_fdset=False, direct=False, name='saved'):
        self.path = os.path.join(folder, name)
        self.offset = offset
        self.by_fdset = by_fdset
        self.direct = direct
        with open(self.path, 'wb') as f:
            f.write(self.head())
            f.write(b'\xee' * TAIL)
        if direct:
            self.check_direct_io()

    def head(self):
        return (b'header of somebody else; ' * (self.offset // 25 + 1))[:self.offset]

    def check_direct_io(self):
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_DIRECT))
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            raise NoDirectIo(f'no direct I/O in {os.path.dirname(self.path)}') from None

    @property
    def uri(self):
        path = f'/dev/fdset/{FDSET}' if self.by_fdset else self.path
        return f'file:{path}' + (f',offset={self.offset:#x}' if self.offset else '')

    @contextlib.contextmanager
    def _members(self, vm, mode):
        """The descriptor set in @vm, as long as the block runs."""
        if not self.by_fdset:
            yield
            return
        for flags in (mode, mode | os.O_DIRECT) if self.direct else (mode,):
            fd = os.open(self.path, flags)
            vm.qmp.execute('add-fd', {'fdset-id': FDSET}, fds=[fd])
            os.close(fd)
        yield
        vm.call('remove-fd', fdset_id=FDSET)

    # ---- as a route, for routes.perform() and writer.run(); not by a descriptor set ----

    stored = True

    def listen(self, dst):
        pass

    def connect(self, src):
        src.call('migrate', uri=self.uri)

    # ---- in one go ----

    def save(self, src, seconds=120):
        with self._members(src, os.O_WRONLY):
            src.call('migrate', uri=self.uri)
            return src.wait_migration('completed', seconds=seconds)

    def load(self, dst, seconds=120):
        with self._members(dst, os.O_RDONLY):
            dst.call('migrate-incoming', uri=self.uri)
            return dst.wait_migration('completed', seconds=seconds)

    @contextlib.contextmanager
    def opened(self):
        """The file's structure, by the independent parser."""
        with open(self.path, 'rb') as f:
            yield mapped_ram.File(f, self.offset)

    def assert_only_the_guest(self):
        """Nothing was done to what is before the offset, and nothing old is behind the end."""
        with open(self.path, 'rb') as f:
            assert f.read(self.offset) == self.head(), 'bytes before the offset have changed'
            size = f.seek(0, os.SEEK_END)
            f.seek(max(self.offset, size - 4096))
            tail = f.read()
        brace = tail.find(b'{', tail.rfind(b'\0') + 1)
        assert brace >= 5 and tail[brace - 5] == 6, 'no description at the end'
        length = int.from_bytes(tail[brace - 4:brace], 'big')
        assert len(tail) == brace + length, f'{len(tail) - brace - length} bytes behind the end'

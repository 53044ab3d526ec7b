# SPDX-License-Identifier: BSD-2-Clause
"""
Guest memory that a test can see: files that back RAM blocks, images to put in, and comparison byte for
byte.
"""
import mmap
import os
import random
import tempfile

PAGE = 4096
MIB = 1 << 20
HUGE_PAGE = 2 * MIB
CHUNK = 1 * MIB


def folder_for(size):
    """The folder where a RAM file of @size bytes goes: memory if there is room for several, else the disk."""
    shared = '/dev/shm'
    try:
        room = os.statvfs(shared)
        if os.access(shared, os.W_OK) and room.f_bavail * room.f_frsize > 4 * size:
            return shared
    except OSError:
        pass
    return tempfile.gettempdir()


def compressible_page(rng, number):
    """Text-like content: repeats, with a number in it."""
    line = f'page {number} of guest memory, line %04d; '
    text = ''.join(line % (rng.randrange(64)) for _ in range(PAGE // len(line) + 2))
    return text.encode()[:PAGE]


def one_byte_page(rng, where):
    """All zero but for one byte: what a zero test must not miss."""
    page = bytearray(PAGE)
    page[where] = rng.randrange(1, 256)
    return bytes(page)


def mixed_chunk(rng, first, count):
    """
    @count pages of guest memory from page @first on: runs of zero, random, compressible and nearly zero
    pages.
    """
    pages = []
    while len(pages) < count:
        kind = rng.choice(('zero', 'zero', 'random', 'random', 'text', 'edges'))
        run = rng.choice((1, 2, 3, 7, 63, 64, 65))
        for _ in range(min(run, count - len(pages))):
            number = first + len(pages)
            if kind == 'zero':
                pages.append(bytes(PAGE))
            elif kind == 'random':
                pages.append(number.to_bytes(8, 'little') + rng.randbytes(PAGE - 8))
            elif kind == 'text':
                pages.append(compressible_page(rng, number))
            else:
                where = (0, 1, 63, 64, PAGE // 2, PAGE - 64, PAGE - 1)[number % 7]
                pages.append(one_byte_page(rng, where))
    return b''.join(pages)


class Ram:
    """One RAM block backed by a file (memory-backend-file, share=on)."""

    def __init__(self, size, block='m0', share=True, properties=''):
        assert size % PAGE == 0
        self.size = size
        self.block = block
        self.share = share
        self.properties = properties        # further ones of the backend, "prealloc=on"
        handle, self.path = tempfile.mkstemp(prefix='godwit-ram-', dir=folder_for(size))
        os.truncate(handle, size)
        os.close(handle)

    def remove(self):
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            pass

    def arguments(self):
        """Command line of the backend, for godwit and for QEMU."""
        share = 'on' if self.share else 'off'
        return ['-object', f'memory-backend-file,id={self.block},size={self.size},'
                           f'mem-path={self.path},share={share}' +
                           (f',{self.properties}' if self.properties else '')]

    def open(self):
        return open(self.path, 'r+b')

    def reader(self):
        """A file that stands at the first byte of the block."""
        return open(self.path, 'rb')

    # ---- content ----

    def fill_mixed(self, seed=1):
        """An image as of a guest that has lived: see mixed_chunk()."""
        rng = random.Random(seed)
        with self.open() as f:
            for start in range(0, self.size, CHUNK):
                f.write(mixed_chunk(rng, start // PAGE, min(CHUNK, self.size - start) // PAGE))
        return self

    def fill_bulk(self, zero_share=0.25, seed=1):
        """
        A large image made fast, for measurements: of every 4 MiB the first @zero_share is zero, the
        rest random bytes with the page's address in each page.
        """
        template = random.Random(seed).randbytes(4 * CHUNK)
        with self.open() as f:
            for start in range(0, self.size, CHUNK):
                if (start // CHUNK) % 4 < 4 * zero_share:
                    continue
                chunk = bytearray(template[start % len(template):][:min(CHUNK, self.size - start)])
                for offset in range(0, len(chunk), PAGE):
                    chunk[offset:offset + 8] = (start + offset).to_bytes(8, 'little')
                f.seek(start)
                f.write(chunk)
        return self

    def fill(self, byte):
        """Garbage: every byte is @byte."""
        with self.open() as f:
            for start in range(0, self.size, CHUNK):
                f.write(bytes([byte]) * min(CHUNK, self.size - start))
        return self

    def write(self, offset, data):
        with self.open() as f:
            f.seek(offset)
            f.write(data)

    def read(self, offset=0, size=None):
        with open(self.path, 'rb') as f:
            f.seek(offset)
            return f.read(self.size if size is None else size)

    def copy(self):
        """A copy of the present content."""
        return self.read()

    def remove_content(self):
        """Back to a hole: all zero, nothing allocated."""
        os.truncate(self.path, 0)
        os.truncate(self.path, self.size)

    def allocated(self):
        """Bytes that the file really takes."""
        return os.stat(self.path).st_blocks * 512

    # ---- comparison ----

    def difference(self, other):
        """None if @other (a Ram or bytes) holds the same, else a text that tells the first differing byte."""
        theirs = other if isinstance(other, bytes) else None
        if self.size != (len(theirs) if theirs is not None else other.size):
            return 'sizes differ'
        with self.reader() as a:
            b = None if theirs is not None else other.reader()
            try:
                for start in range(0, self.size, CHUNK):
                    mine = a.read(CHUNK)
                    yours = theirs[start:start + CHUNK] if b is None else b.read(CHUNK)
                    if mine != yours:
                        return describe_difference(start, mine, yours, self.size)
            finally:
                if b is not None:
                    b.close()
        return None

    def assert_same(self, other):
        difference = self.difference(other)
        assert difference is None, f'guest memory differs: {difference}'


def describe_difference(start, a, b, size):
    """Where two chunks differ first, and in how many pages of the chunk."""
    pages = [p for p in range(0, len(a), PAGE) if a[p:p + PAGE] != b[p:p + PAGE]]
    first = next(i for i in range(pages[0], pages[0] + PAGE) if a[i] != b[i])
    return (f'byte {start + first:#x} (page {(start + first) // PAGE} of {size // PAGE}): '
            f'{a[first]:#04x} != {b[first]:#04x}; {len(pages)} pages differ in that MiB')


class Memfd:
    """One RAM block in a memfd (memory-backend-memfd), seen through /proc of the process that has it."""

    def __init__(self, size, block='m0', share=True):
        self.size = size
        self.block = block
        self.share = share
        self.path = None

    def remove(self):
        pass

    def arguments(self):
        share = 'on' if self.share else 'off'
        return ['-object', f'memory-backend-memfd,id={self.block},size={self.size},share={share}']

    def attach(self, pid):
        """Finds the memfd of process @pid; the content can then be read while that process lives."""
        folder = f'/proc/{pid}/fd'
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            try:
                if 'memfd:' in os.readlink(path) and os.stat(path).st_size == self.size:
                    self.path = path
                    return self
            except OSError:
                continue
        raise AssertionError(f'process {pid} has no memfd of {self.size} bytes')

    open = Ram.open
    reader = Ram.reader
    read = Ram.read
    write = Ram.write
    copy = Ram.copy
    fill = Ram.fill
    fill_mixed = Ram.fill_mixed
    difference = Ram.difference
    assert_same = Ram.assert_same


class HugeMemfd(Memfd):
    """One RAM block in a memfd of huge pages, which cannot be written to but through a mapping."""

    def arguments(self):
        option, value = super().arguments()
        return [option, f'{value},hugetlb=on,hugetlbsize={HUGE_PAGE}']

    def attach(self, pid):
        super().attach(pid)
        size = os.stat(self.path).st_blksize
        assert size == HUGE_PAGE, f'{self.path} has pages of {size} bytes'
        return self

    def open(self):
        """A mapping, which has a file's methods."""
        with open(self.path, 'r+b') as f:
            return mmap.mmap(f.fileno(), self.size)


class HugePages:
    """Huge pages that are added to the kernel's, and taken away again by give_back()."""
    FOLDER = f'/sys/kernel/mm/hugepages/hugepages-{HUGE_PAGE >> 10}kB'

    def __init__(self):
        self.added = 0

    def _get(self, name):
        with open(os.path.join(self.FOLDER, name)) as f:
            return int(f.read())

    def _change(self, difference):
        number = max(self._get('nr_hugepages') + difference, 0)
        with open(os.path.join(self.FOLDER, 'nr_hugepages'), 'w') as f:
            f.write(str(number))

    def free(self):
        """Bytes that nobody uses or is promised."""
        return (self._get('free_hugepages') - self._get('resv_hugepages')) * HUGE_PAGE

    def reserve(self, size):
        """Sees to @size free bytes; None, or the reason why there are not so many."""
        try:
            missing = -(-(size - self.free()) // HUGE_PAGE)
            if missing > 0:
                before = self._get('nr_hugepages')
                self._change(missing)
                self.added += self._get('nr_hugepages') - before
            return None if self.free() >= size else f'the kernel has only {self.free()} bytes of huge pages'
        except OSError as error:
            return f'no huge pages: {error}'

    def give_back(self):
        if self.added:
            self._change(-self.added)
            self.added = 0


class AnonymousRam:
    """One RAM block without a file behind it (memory-backend-ram), seen through /proc of its process."""

    def __init__(self, size, block='m0', properties=''):
        self.size = size
        self.block = block
        self.properties = properties
        self.pid = None
        self.address = None

    def remove(self):
        pass

    def remove_content(self):
        """Each process has fresh memory."""

    def arguments(self):
        return ['-object', f'memory-backend-ram,id={self.block},size={self.size}' +
                           (f',{self.properties}' if self.properties else '')]

    def attach(self, pid):
        """Finds the memory in process @pid; it can then be read while that process lives."""
        with open(f'/proc/{pid}/maps', encoding='ascii', errors='replace') as f:
            for line in f:
                start, end = (int(number, 16) for number in line.split()[0].split('-'))
                if end - start == self.size:
                    self.pid, self.address = pid, start
                    return self
        raise AssertionError(f'process {pid} has no mapping of {self.size} bytes')

    def reader(self):
        f = open(f'/proc/{self.pid}/mem', 'rb')
        f.seek(self.address)
        return f

    difference = Ram.difference
    assert_same = Ram.assert_same

# SPDX-License-Identifier: BSD-2-Clause
"""mapped-ram files taken apart, as docs/files.md describes them: for tests that look into what was saved."""
import struct
from dataclasses import dataclass

from .ram import PAGE

HEADER = struct.Struct('>IQQQ')
PAGES_ALIGN = 1 << 20


@dataclass
class Block:
    name: str
    length: int
    entry: int                  # offset in the file where the block's entry begins
    header: int                 # and where its header does
    bitmap_offset: int
    pages_offset: int
    absent: bool

    @property
    def pages(self):
        return self.length // PAGE

    @property
    def bitmap_size(self):
        return (self.pages + 63) // 64 * 8


class File:
    """A file's bytes, or the file itself opened for reading, with the stream at @offset."""

    def __init__(self, source, offset=0):
        self.source = source
        self.offset = offset
        self.capabilities = []
        self.ram_start = None
        self.blocks = []
        self.end_of_blocks = None
        self._parse()

    def bytes(self, offset, size):
        if isinstance(self.source, (bytes, bytearray)):
            data = bytes(self.source[offset:offset + size])
        else:
            self.source.seek(offset)
            data = self.source.read(size)
        assert len(data) == size, f'the file ends before {offset + size:#x}'
        return data

    def _parse(self):
        at = self.offset

        def number(size):
            nonlocal at
            at += size
            return int.from_bytes(self.bytes(at - size, size), 'big')

        def string(prefix):
            nonlocal at
            size = number(prefix)
            at += size
            return self.bytes(at - size, size).decode()

        assert number(8) == 0x5145564d00000003
        assert number(1) == 7
        string(4)
        while self.bytes(at, 1) == b'\5':
            at += 1
            name = string(1)
            number(4)
            if name == 'configuration/capabilities':
                self.capabilities = [string(1) for _ in range(number(4))]
            else:
                at += 16
        assert 'mapped-ram' in self.capabilities
        self.ram_start = at
        assert number(1) == 1 and number(4) >= 0 and string(1) == 'ram' and number(8) == 4
        left = number(8)
        assert left & 0xfff == 4
        left -= 4
        while left:
            entry = at
            name, length = string(1), number(8)
            left -= length
            if 'x-ignore-shared' in self.capabilities:
                number(8)
            header = at
            version, page_size, bitmap_offset, pages_offset = HEADER.unpack(self.bytes(at, HEADER.size))
            assert version == 1 and page_size == PAGE
            at += HEADER.size
            absent = bitmap_offset == pages_offset == 0
            self.blocks.append(Block(name, length, entry, header, bitmap_offset, pages_offset, absent))
            if not absent:
                at = pages_offset + length
        self.end_of_blocks = at

    def block(self, name):
        return next(b for b in self.blocks if b.name == name)

    def bits(self, block):
        """Of each page: is it in the file?"""
        number = int.from_bytes(self.bytes(block.bitmap_offset, block.bitmap_size), 'little')
        return [bool(number >> page & 1) for page in range(block.pages)]

    def page(self, block, page):
        """What lies at the place of a page, whatever its bit."""
        return self.bytes(block.pages_offset + page * PAGE, PAGE)

    def memory(self, block):
        """The block as a restore must make it."""
        zero = bytes(PAGE)
        return b''.join(self.page(block, n) if data else zero for n, data in enumerate(self.bits(block)))

    def stale_pages(self, block):
        """Pages that are zero by their bit, but with old bytes in their place."""
        return [n for n, data in enumerate(self.bits(block)) if not data and any(self.page(block, n))]

    def size_limit(self, tail):
        """The size that the file may have at most, with @tail bytes behind the pages."""
        size = self.offset
        for block in self.blocks:
            size = -(-(size + block.bitmap_size + 300) // PAGES_ALIGN) * PAGES_ALIGN + block.length
        return size + tail

# SPDX-License-Identifier: BSD-2-Clause
"""Builds migration streams by hand, good and bad, piece by piece; knows the format, not the programs."""
import json
import struct

PAGE = 4096

EOF, START, PART, END, FULL, SUBSECTION, VMDESC, CONFIG, COMMAND, FOOTER = 0, 1, 2, 3, 4, 5, 6, 7, 8, 0x7e
ZERO, MEM_SIZE, DATA, EOS, CONTINUE, XBZRLE, HOOK, OLD_COMPRESS, FLUSH = (
    0x002, 0x004, 0x008, 0x010, 0x020, 0x040, 0x080, 0x100, 0x200)

RAM_ID, TIMER_ID, GLOBALSTATE_ID = 2, 0, 4


def u8(value):
    return struct.pack('>B', value)


def u16(value):
    return struct.pack('>H', value)


def u32(value):
    return struct.pack('>I', value)


def u64(value):
    return struct.pack('>Q', value)


def counted(text):
    raw = text if isinstance(text, bytes) else text.encode()
    return u8(len(raw)) + raw


# ---- elements ----

def header(magic=b'QEVM', version=3):
    return magic + u32(version)


def configuration(name='none', subsections=b''):
    return u8(CONFIG) + u32(len(name)) + name.encode() + subsections


def subsection(name, payload, version=1):
    return u8(SUBSECTION) + counted(name) + u32(version) + payload


def capabilities(*names):
    return subsection('configuration/capabilities', u32(len(names)) + b''.join(counted(n) for n in names))


def footer(number):
    return u8(FOOTER) + u32(number)


def long_section(kind, number, name, version, payload, instance=0, end=None):
    return (u8(kind) + u32(number) + counted(name) + u32(instance) + u32(version) + payload
            + (footer(number) if end is None else end))


def short_section(kind, number, payload, end=None):
    return u8(kind) + u32(number) + payload + (footer(number) if end is None else end)


def command(number, payload=b'', length=None):
    return u8(COMMAND) + u16(number) + u16(len(payload) if length is None else length) + payload


# ---- the ram section ----

def eos(word=EOS):
    return u64(word)


def block_list(blocks, total=None):
    """@blocks: (name, length) pairs."""
    total = sum(length for _, length in blocks) if total is None else total
    return u64(total | MEM_SIZE) + b''.join(counted(name) + u64(length) for name, length in blocks)


def record(offset, flags, name, payload):
    """A page record; @name None means CONTINUE."""
    word = offset | flags | (CONTINUE if name is None else 0)
    return u64(word) + (b'' if name is None else counted(name)) + payload


def zero_page(page, name=None, fill=0):
    return record(page * PAGE, ZERO, name, u8(fill))


def data_page(page, content, name=None):
    assert len(content) == PAGE
    return record(page * PAGE, DATA, name, content)


def xbzrle_page(page, encoded, name=None, encoding=1, length=None):
    return record(page * PAGE, XBZRLE, name,
                  u8(encoding) + u16(len(encoded) if length is None else length) + encoded)


def ram_start(blocks=(('m0', 64 * PAGE),), number=RAM_ID, version=4, payload=None, **rest):
    return long_section(START, number, 'ram', version,
                        block_list(blocks) + eos() if payload is None else payload, **rest)


def ram_part(payload=b'', number=RAM_ID, kind=PART, last=None, end=None):
    return short_section(kind, number, payload + (eos() if last is None else last), end)


def ram_end(payload=b'', **rest):
    return ram_part(payload, kind=END, **rest)


# ---- device sections and the end ----

def timer(version=2, number=TIMER_ID, instance=0, name='timer'):
    return long_section(FULL, number, name, version, bytes(24 if version >= 2 else 16), instance)


def globalstate(state='running', number=GLOBALSTATE_ID, size=None):
    area = state.encode().ljust(100, b'\0')
    return long_section(FULL, number, 'globalstate', 1, u32(len(state) + 1 if size is None else size) + area)


DEVICES = (
    {'name': 'timer', 'instance_id': 0, 'vmsd_name': 'timer', 'version': 2,
     'fields': [{'name': 'cpu_ticks_offset', 'type': 'int64', 'size': 8},
                {'name': 'unused', 'type': 'unused_buffer', 'size': 8},
                {'name': 'cpu_clock_offset', 'type': 'int64', 'size': 8}]},
    {'name': 'globalstate', 'instance_id': 0, 'vmsd_name': 'globalstate', 'version': 1,
     'fields': [{'name': 'size', 'type': 'uint32', 'size': 4},
                {'name': 'runstate', 'type': 'buffer', 'size': 100}]},
)


def description(devices=DEVICES, text=None):
    raw = json.dumps({'page_size': PAGE, 'devices': list(devices)}).encode() if text is None else text
    return u8(VMDESC) + u32(len(raw)) + raw


def end_of_stream():
    return u8(EOF)


def stream(**parts):
    """
    A whole good stream, in which any part can be replaced (bytes, or "" to leave it out); the keys are
    those of GOOD, in the order of the stream.
    """
    unknown = set(parts) - set(GOOD)
    assert not unknown, unknown
    return b''.join(parts.get(key, value) or b'' for key, value in GOOD.items())


def sample_page(number):
    return (b'%08d' % number) * (PAGE // 8)


PAGES = 64
GOOD = {
    'header': header(),
    'configuration': configuration(),
    'opening': b'',
    'start': ram_start(),
    'part': ram_part(zero_page(0, 'm0') + data_page(1, sample_page(1))
                     + b''.join(zero_page(page) for page in range(2, PAGES))),
    'before_end': b'',
    'end': ram_end(),
    'timer': timer(),
    'globalstate': globalstate(),
    'more': b'',
    'eof': end_of_stream(),
    'description': description(),
    'tail': b'',
}


def good_memory():
    """The memory that GOOD describes."""
    return bytes(PAGE) + sample_page(1) + bytes(PAGE * (PAGES - 2))

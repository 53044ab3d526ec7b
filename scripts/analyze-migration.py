#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""
Shows what is in a migration stream kept in a file (exec:cat > FILE, file:FILE), mapped-ram included: device
state decoded by the description at its end, RAM blocks with their pages counted by kind, or the description
itself.
"""
import argparse
import json
import os
import struct
import sys

PAGE_FLAGS = 0xfff
ZERO, MEM_SIZE, DATA, EOS, CONTINUE, XBZRLE, FLUSH = 0x002, 0x004, 0x008, 0x010, 0x020, 0x040, 0x200
EOF, START, PART, END, FULL, SUBSECTION, VMDESC, CONFIG, COMMAND, FOOTER = 0, 1, 2, 3, 4, 5, 6, 7, 8, 0x7e
# Commands that may stand in a file, by number; a file has no return path, but a recorded stream may.
COMMANDS = {1: 'OPEN_RETURN_PATH', 2: 'PING', 3: 'POSTCOPY_ADVISE', 8: 'ENABLE_COLO', 11: 'SWITCHOVER_START'}
DESCRIPTION_LIMIT = 10 << 20


class StreamError(Exception):
    """The file is no stream, or one that this program cannot read."""


class StreamFile:
    """The file, read in big-endian pieces."""

    def __init__(self, path, offset=0):
        self.file = open(path, 'rb')
        self.size = os.fstat(self.file.fileno()).st_size
        self.offset = offset            # the stream begins there; positions are those in the file

    def read(self, size):
        data = self.file.read(size)
        if len(data) != size:
            raise StreamError(f'the file ends at {self.tell():#x} where {size} more bytes must stand')
        return data

    def number(self, size, signed=False):
        return int.from_bytes(self.read(size), 'big', signed=signed)

    def string(self):
        return self.read(self.number(1)).decode(errors='replace')

    def peek(self):
        data = self.file.read(1)
        self.file.seek(-len(data), os.SEEK_CUR)
        return data[0] if data else None

    def tell(self):
        return self.file.tell()

    def seek(self, position):
        self.file.seek(position)

    def description(self):
        """The description: the first brace after the last NUL, with its element head before it."""
        self.seek(max(self.offset, self.size - DESCRIPTION_LIMIT))
        tail = self.file.read()
        brace = tail.find(b'{', tail.rfind(b'\0') + 1)
        self.seek(self.offset)
        if brace < 5 or tail[brace - 5] != VMDESC:
            raise StreamError('no description at the end of the file')
        length = struct.unpack('>I', tail[brace - 4:brace])[0]
        try:
            return json.loads(tail[brace:brace + length])
        except ValueError as error:
            raise StreamError(f'the description is no JSON: {error}') from None


# ---- device state by its description ----

def hex_bytes(data):
    return ' '.join(f'{byte:02x}' for byte in data)


def show_unsigned(stream, size):
    return f'0x{stream.number(size):0{2 * size}x}'


def show_signed(stream, size):
    value = stream.number(size, signed=True)
    text = f'0x{value & (1 << 8 * size) - 1:0{2 * size}x}'
    return f'{text} ({value})' if value < 0 else text


def show_bool(stream, size):
    return stream.number(size) != 0


def show_capability(stream, size):
    return stream.string()


def show_null(stream, size):
    mark = stream.read(size)
    if mark != b'0':
        raise StreamError(f'a null pointer is marked by {mark!r}')
    return 'nullptr'


def show_buffer(stream, size):
    return hex_bytes(stream.read(size))


FIELD_TYPES = {
    **{name: show_unsigned for name in ('uint8', 'uint16', 'uint32', 'uint64', 'uint32 equal')},
    **{name: show_signed for name in ('int8', 'int16', 'int32', 'int64', 'int32 equal', 'int32 le',
                                      'uint8 equal', 'uint16 equal', 'int64 equal')},
    'bool': show_bool,
    'capability': show_capability,
    'nullptr': show_null,
}


def show_structure(stream, description):
    """The fields of one structure as {name: value}; a name that repeats makes a list."""
    shown = {}
    for field in description.get('fields', []):
        for _ in range(field.get('array_len', 1)):
            add_value(shown, field['name'], show_field(stream, field), 'array_len' in field)
    for subsection in description.get('subsections', []):
        show_subsection(stream, subsection, shown)
    return shown


def show_field(stream, field):
    if 'struct' in field:
        return show_structure(stream, field['struct'])
    return FIELD_TYPES.get(field['type'], show_buffer)(stream, field['size'])


def add_value(shown, name, value, listed):
    if name not in shown:
        shown[name] = [value] if listed else value
    elif isinstance(shown[name], list):
        shown[name].append(value)
    else:
        shown[name] = [shown[name], value]


def show_subsection(stream, description, shown):
    name = description['vmsd_name']
    if stream.peek() != SUBSECTION:
        raise StreamError(f'subsection {name} must stand at {stream.tell():#x}')
    stream.read(1)
    found = stream.string()
    if found != name:
        raise StreamError(f'subsection {found} stands at {stream.tell():#x}, described is {name}')
    stream.number(4)
    shown[name] = show_structure(stream, description)


# ---- memory ----

class Block:
    """One RAM block of a plain stream: pages counted by kind, and their content if it is wanted."""

    def __init__(self, name, size, page_size, keep):
        self.name, self.size, self.page_size = name, size, page_size
        self.counts = {'data': 0, 'zero': 0, 'xbzrle': 0}
        self.memory = bytearray(size) if keep else None
        self.kinds = bytearray(size // page_size) if keep else None     # 0 not seen, 1 zero, 2 data

    def write_to(self, file):
        file.write(self.memory)

    def store(self, offset, data, kind):
        self.counts[kind] += 1
        if self.memory is not None:
            if data is not None:
                self.memory[offset:offset + len(data)] = data
            self.kinds[offset // self.page_size] = 1 if kind == 'zero' else 2

    def shown_memory(self):
        pages = {}
        for page, kind in enumerate(self.kinds):
            if kind:
                offset = page * self.page_size
                content = self.memory[offset:offset + self.page_size]
                text = 'Filled with 0x00' if kind == 1 else hex_bytes(content)
                pages[f'{self.name} (0x{offset:016x})'] = text
        return pages


class MappedBlock:
    """
    One RAM block of mapped-ram: its bitmap, and where its pages are. They stay in the file until they are
    wanted.
    """

    def __init__(self, name, size, page_size, stream):
        self.name, self.size, self.page_size, self.stream = name, size, page_size, stream
        self.counts = {'data': 0, 'zero': 0, 'xbzrle': 0}
        self.bitmap, self.pages_offset = b'', 0

    def load(self, bitmap_offset, pages_offset):
        pages = self.size // self.page_size
        self.stream.seek(bitmap_offset)
        self.bitmap = self.stream.read((pages + 63) // 64 * 8)
        bits = int.from_bytes(self.bitmap, 'little')
        if bits >> pages:
            raise StreamError(
                f'block {self.name}: the bitmap at {bitmap_offset:#x} has bits behind the last page')
        if pages_offset + self.size > self.stream.size:
            raise StreamError(f'block {self.name}: the pages at {pages_offset:#x} end behind the file')
        self.pages_offset = pages_offset
        self.counts['data'] = bits.bit_count()
        self.counts['zero'] = pages - self.counts['data']

    def data_pages(self):
        """The numbers of the pages that are in the file."""
        for index, byte in enumerate(self.bitmap):
            if byte:
                yield from (8 * index + bit for bit in range(8) if byte >> bit & 1)

    def page(self, number):
        self.stream.seek(self.pages_offset + number * self.page_size)
        return self.stream.read(self.page_size)

    def shown_memory(self):
        data = set(self.data_pages())
        return {f'{self.name} (0x{number * self.page_size:016x})':
                hex_bytes(self.page(number)) if number in data else 'Filled with 0x00'
                for number in range(self.size // self.page_size if self.bitmap else 0)}

    def write_to(self, file):
        """Zero pages become holes."""
        file.truncate(self.size)
        for number in self.data_pages():
            file.seek(number * self.page_size)
            file.write(self.page(number))


class Ram:
    """The section "ram"."""

    def __init__(self, stream, page_size, capabilities, keep):
        self.stream, self.page_size, self.keep = stream, page_size, keep
        self.mapped = 'mapped-ram' in capabilities
        self.ignore_shared = 'x-ignore-shared' in capabilities
        self.blocks = {}
        self.block = None

    def load(self):
        """One payload, up to its end word."""
        while True:
            where = self.stream.tell()
            word = self.stream.number(8)
            flags, offset = word & PAGE_FLAGS, word & ~PAGE_FLAGS
            if flags & EOS:
                return
            if flags & MEM_SIZE:
                self.load_blocks(offset)
            elif flags & (ZERO | DATA | XBZRLE):
                self.load_page(flags, offset)
            elif not flags & FLUSH:
                raise StreamError(f'unknown RAM flags {flags:#x} at {where:#x}')

    def load_blocks(self, left):
        while left > 0:
            name, size = self.stream.string(), self.stream.number(8)
            if size == 0 or size > left:
                raise StreamError(f'block {name} of {size} bytes where {left} are left')
            left -= size
            if self.ignore_shared:
                self.stream.read(8)
            if self.mapped:
                self.blocks[name] = MappedBlock(name, size, self.page_size, self.stream)
                self.load_mapped(self.blocks[name])
            else:
                self.blocks[name] = Block(name, size, self.page_size, self.keep)

    def load_page(self, flags, offset):
        if not flags & CONTINUE:
            name = self.stream.string()
            if name not in self.blocks:
                raise StreamError(f'page of unknown block {name} before {self.stream.tell():#x}')
            self.block = self.blocks[name]
        if self.block is None or offset >= self.block.size:
            raise StreamError(f'page {offset:#x} before {self.stream.tell():#x} is in no block')
        if flags & ZERO:
            fill = self.stream.read(1)
            self.block.store(offset, fill * self.page_size, 'zero')
        elif flags & DATA:
            self.block.store(offset, self.stream.read(self.page_size), 'data')
        else:
            self.load_delta(offset)

    def load_delta(self, offset):
        """XBZRLE: pairs of a count of equal bytes and a counted run of new ones."""
        self.stream.read(1)
        data = self.stream.read(self.stream.number(2))
        self.block.store(offset, None, 'xbzrle')
        position = 0

        def count():
            nonlocal position
            value = data[position]
            position += 1
            if value & 0x80:
                value = value & 0x7f | data[position] << 7
                position += 1
            return value

        at = offset
        while position < len(data):
            at += count()
            length = count()
            if at + length > offset + self.page_size:
                raise StreamError(f'the delta of page {offset:#x} leaves the page')
            if self.block.memory is not None:
                self.block.memory[at:at + length] = data[position:position + length]
            at += length
            position += length

    def load_mapped(self, block):
        where = self.stream.tell()
        version, page_size, bitmap_offset, pages_offset = struct.unpack('>IQQQ', self.stream.read(28))
        if version > 1:
            raise StreamError(f'block {block.name}: mapped-ram header version {version} at {where:#x}')
        if page_size != self.page_size:
            raise StreamError(
                f'block {block.name}: page size {page_size} in the header, {self.page_size} described')
        if bitmap_offset == pages_offset == 0 and self.ignore_shared:
            return
        block.load(bitmap_offset, pages_offset)
        self.stream.seek(pages_offset + block.size)

    def shown(self, with_memory):
        shown = {'section sizes': {b.name: f'0x{b.size:016x}' for b in self.blocks.values()},
                 'pages': {b.name: b.counts for b in self.blocks.values()}}
        if with_memory:
            shown['memory'] = {}
            for block in self.blocks.values():
                shown['memory'].update(block.shown_memory())
        return shown


# ---- the stream ----

class Migration:
    """A stream read from beginning to end."""

    def __init__(self, stream, keep_memory=False):
        self.stream = stream
        self.keep_memory = keep_memory
        self.description = stream.description()
        self.devices = {(d['name'], d['instance_id']): d for d in self.description.get('devices', [])}
        self.sections = {}              # id -> (name, instance)
        self.shown = {}                 # key -> value, in order of appearance
        self.ram = None

    def read(self):
        stream = self.stream
        if stream.read(4) != b'QEVM':
            raise StreamError('the file does not begin with a migration stream')
        version = stream.number(4)
        if version != 3:
            raise StreamError(f'stream version {version}, only 3 is known')
        capabilities = self.read_configuration() if stream.peek() == CONFIG else []
        self.ram = Ram(stream, self.description.get('page_size', 4096), capabilities, self.keep_memory)
        while (kind := stream.number(1)) != EOF:
            self.read_element(kind)

    def read_configuration(self):
        stream = self.stream
        stream.read(1)
        stream.read(stream.number(4))
        capabilities = []
        while stream.peek() == SUBSECTION:
            stream.read(1)
            name = stream.string()
            stream.number(4)
            if name == 'configuration/capabilities':
                capabilities = [stream.string() for _ in range(stream.number(4))]
            elif name == 'configuration/target-page-bits':
                stream.number(4)
            elif name == 'configuration/uuid':
                stream.read(16)
            else:
                raise StreamError(f'unknown subsection {name}')
        return capabilities

    def read_element(self, kind):
        stream = self.stream
        where = stream.tell() - 1
        if kind == COMMAND:
            number = stream.number(2)
            if number not in COMMANDS:
                raise StreamError(f'command {number:#x} at {where:#x} is not known')
            stream.read(stream.number(2))
            return
        if kind not in (START, PART, END, FULL):
            raise StreamError(f'unknown section type {kind:#x} at {where:#x}')
        number = stream.number(4)
        if kind in (START, FULL):
            self.sections[number] = (stream.string(), stream.number(4))
            stream.number(4)
        elif number not in self.sections:
            raise StreamError(f'section id {number} at {where:#x} was never announced')
        self.read_payload(number, where)
        if stream.peek() == FOOTER:
            stream.read(1)
            if stream.number(4) != number:
                raise StreamError(f'the footer before {stream.tell():#x} is not that of section {number}')

    def read_payload(self, number, where):
        name, instance = self.sections[number]
        key = f'{name} ({number})'
        if name == 'ram':
            self.ram.load()
            self.shown[key] = None
        elif name == 'dirty-bitmap':
            self.shown.setdefault(key, {})
            self.stream.read(1)
        elif (name, instance) in self.devices:
            self.shown[key] = show_structure(self.stream, self.devices[name, instance])
        else:
            raise StreamError(f'section {name} at {where:#x} is not in the description')

    def state(self, with_memory):
        shown = dict(self.shown)
        for key, value in shown.items():
            if value is None:
                shown[key] = self.ram.shown(with_memory)
        return shown

    def extract(self):
        """Writes everything to files here; their names."""
        names = []
        for name, value in (('desc.json', self.description), ('state.json', self.state(False))):
            with open(name, 'w', encoding='utf-8') as f:
                json.dump(value, f, indent=4)
            names.append(name)
        for block in self.ram.blocks.values():
            path = block.name.lstrip('/')
            if not path or '..' in path.split('/'):
                raise StreamError(f'block name {block.name!r} makes no file name')
            os.makedirs(os.path.dirname(path) or '.', exist_ok=True)
            with open(path, 'wb') as f:
                block.write_to(f)
            names.append(path)
        return names


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.strip())
    parser.add_argument('path', metavar='FILE', nargs='?', help='the stream')
    parser.add_argument('-f', '--file', help='the same, as QEMU users know it')
    parser.add_argument('-m',
                        '--memory',
                        action='store_true',
                        help='with -d state: the content of memory too')
    parser.add_argument('-d', '--dump', default='state', help='"state" (default) or "desc"')
    parser.add_argument('-x', '--extract', action='store_true',
                        help='write desc.json, state.json and each RAM block to a file of its own here')
    parser.add_argument('--offset', type=lambda text: int(text, 0), default=0, metavar='N',
                        help='the stream begins at byte N, as with file:FILE,offset=N')
    args = parser.parse_args(argv)
    if (args.path is None) == (args.file is None):
        parser.error('one FILE is required, with or without -f')
    if not args.extract and args.dump not in ('state', 'desc'):
        parser.error('-d takes "state" or "desc"')
    stream = StreamFile(args.path or args.file, args.offset)
    migration = Migration(stream, keep_memory=args.memory or args.extract)
    if args.extract:
        migration.read()
        print('\n'.join(migration.extract()))
    elif args.dump == 'desc':
        print(json.dumps(migration.description, indent=4, separators=(',', ': ')))
    else:
        migration.read()
        print(json.dumps(migration.state(args.memory), indent=4, separators=(',', ': ')))
    return 0


if __name__ == '__main__':
    try:
        sys.exit(main(sys.argv[1:]))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (StreamError, OSError, KeyError, IndexError) as error:
        sys.exit(f'analyze-migration: {error}')

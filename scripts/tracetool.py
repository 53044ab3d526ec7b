#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Makes trace-FOLDER.h and trace-FOLDER.c from a folder's trace-events file."""
import argparse
import re
import sys

EVENT = re.compile(r'([a-z][a-z0-9_]*)\((.*?)\)\s+(".*)$')
ARGUMENT = re.compile(r'(.*?[\s*])([A-Za-z_][A-Za-z0-9_]*)$')
FORMAT = re.compile(r'("([^"\\]|\\.)*"|\s+|PRI[diouxX](8|16|32|64|MAX|PTR))+$')
TYPES = {
    'bool', 'char', 'int', 'unsigned', 'unsigned int', 'long', 'unsigned long', 'long long',
    'unsigned long long', 'size_t', 'ssize_t', 'off_t', 'double', 'uintptr_t',
    'int8_t', 'int16_t', 'int32_t', 'int64_t', 'uint8_t', 'uint16_t', 'uint32_t', 'uint64_t',
    'const char *', 'void *', 'const void *',
}
MAX_ARGUMENTS = 12      # what <sys/sdt.h> can do


class BadEvent(Exception):
    pass


class Event:
    def __init__(self, name, arguments, fmt):
        self.name = name
        self.arguments = arguments      # [(type, name)]
        self.format = fmt

    def parameters(self):
        if not self.arguments:
            return 'void'
        return ', '.join(t + ('' if t.endswith('*') else ' ') + n for t, n in self.arguments)

    def names(self):
        return [n for _, n in self.arguments]


def parse_arguments(text):
    if text.strip() == 'void':
        return []
    arguments = []
    for part in text.split(','):
        match = ARGUMENT.match(part.strip())
        if not match:
            raise BadEvent(f"'{part.strip()}' is not TYPE NAME")
        kind = re.sub(r'\s*\*$', ' *', ' '.join(match.group(1).split()))
        if kind not in TYPES:
            raise BadEvent(f"type '{kind}' cannot be traced; use one of: {', '.join(sorted(TYPES))}")
        arguments.append((kind, match.group(2)))
    if len(arguments) > MAX_ARGUMENTS:
        raise BadEvent(f'{len(arguments)} arguments are more than {MAX_ARGUMENTS}')
    return arguments


def parse_event(line):
    match = EVENT.match(line)
    if not match:
        raise BadEvent('expected: name(type arg, ...) "format"')
    name, arguments, fmt = match.groups()
    if not FORMAT.match(fmt):
        raise BadEvent('the format may hold strings and PRI macros only')
    if '\\n' in fmt:
        raise BadEvent('the format ends the line by itself: no \\n')
    return Event(name, parse_arguments(arguments), fmt)


def parse_file(path):
    """The events of a trace-events file; raises BadEvent with FILE:LINE: message."""
    events = []
    with open(path, encoding='utf-8') as f:
        for number, line in enumerate(f, 1):
            line = line.strip()
            if not line or line.startswith('#'):
                continue
            try:
                event = parse_event(line)
                if event.name in (e.name for e in events):
                    raise BadEvent(f"event '{event.name}' appears twice")
            except BadEvent as e:
                raise BadEvent(f'{path}:{number}: {e}') from None
            events.append(event)
    if not events:
        raise BadEvent(f'{path}: no events')
    return events


def header(folder, events):
    guard = f'TRACE_{folder.upper()}_H'
    yield '/* SPDX-License-Identifier: BSD-2-Clause */'
    yield f'/* Trace events of {folder}/, made by scripts/tracetool.py from {folder}/trace-events. */'
    yield f'#ifndef {guard}\n#define {guard}\n'
    yield '#include "config.h"'
    yield '#include "util/trace.h"'
    yield '#include <inttypes.h>\n#include <sys/types.h>'
    yield '#ifdef CONFIG_USDT\n#include <sys/sdt.h>\n#endif\n'
    yield f'enum {{'
    for event in events:
        yield f'    TRACE_{folder.upper()}_{event.name.upper()},'
    yield f'    TRACE_{folder.upper()}__COUNT\n}};\n'
    yield f'extern TraceEvent trace_{folder}_events[];\n'
    for event in events:
        names = event.names()
        index = f'trace_{folder}_events[TRACE_{folder.upper()}_{event.name.upper()}]'
        probe = 'DTRACE_PROBE' + (str(len(names)) if names else '')
        yield f'void trace_log_{event.name}({event.parameters()}) __attribute__((cold));\n'
        yield f'static inline bool trace_{event.name}_enabled(void)\n{{'
        yield f'    return trace_event_is_enabled(&{index});\n}}\n'
        yield f'static inline void trace_{event.name}({event.parameters()})\n{{'
        yield '#ifdef CONFIG_USDT'
        yield f'    {probe}({", ".join(["godwit", event.name] + names)});'
        yield '#endif'
        yield f'    if (trace_{event.name}_enabled()) {{'
        yield f'        trace_log_{event.name}({", ".join(names)});\n    }}\n}}\n'
    yield '#endif'


def source(folder, events):
    yield '/* SPDX-License-Identifier: BSD-2-Clause */'
    yield f'/* Trace events of {folder}/, made by scripts/tracetool.py from {folder}/trace-events. */'
    yield f'#include "trace-{folder}.h"\n'
    yield f'TraceEvent trace_{folder}_events[] = {{'
    for event in events:
        yield f'    {{ "{event.name}", 0 }},'
    yield '};\n'
    yield f'static TraceGroup group = {{ trace_{folder}_events, TRACE_{folder.upper()}__COUNT, NULL }};\n'
    yield '__attribute__((constructor)) static void register_group(void)\n{\n    trace_register(&group);\n}'
    for event in events:
        values = ''.join(', ' + n for n in event.names())
        yield f'\nvoid trace_log_{event.name}({event.parameters()})\n{{'
        yield f'    trace_log("{event.name} " {event.format}{values});\n}}'


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('events', help='the trace-events file')
    parser.add_argument('folder', help='name of the folder')
    parser.add_argument('header', help='the header to write')
    parser.add_argument('source', help='the C file to write')
    args = parser.parse_args()
    try:
        events = parse_file(args.events)
    except (BadEvent, OSError) as e:
        print(f'tracetool: {e}', file=sys.stderr)
        return 1
    for path, make in ((args.header, header), (args.source, source)):
        with open(path, 'w', encoding='utf-8') as f:
            f.write('\n'.join(make(args.folder, events)) + '\n')
    return 0


if __name__ == '__main__':
    sys.exit(main())

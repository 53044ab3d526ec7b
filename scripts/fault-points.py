#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Makes the table of fault points from the calls of fault_point() in the source."""
import argparse
import pathlib
import re
import sys

CALL = re.compile(r'\bfault_point\(\s*([^,]*),')
NAME = re.compile(r'"([a-z][a-z0-9-]*)"$')
COMMENT = re.compile(r'/\*.*?\*/', re.S)


def scan(paths):
    """{name: "file:line"} of all points, and a list of messages about bad ones."""
    points, messages = {}, []
    for path in paths:
        # Comments go, but their line feeds stay so that line numbers hold.
        text = COMMENT.sub(lambda m: '\n' * m.group().count('\n'), path.read_text(encoding='utf-8'))
        for call in CALL.finditer(text):
            place = f'{path}:{text.count(chr(10), 0, call.start()) + 1}'
            name = NAME.match(call.group(1).strip())
            if call.group(1).startswith('const char *'):
                continue        # the definition
            if not name:
                messages.append(f'{place}: the name of a fault point must be a literal of a-z, 0-9 and -')
            elif name.group(1) in points:
                messages.append(f"{place}: fault point '{name.group(1)}' is also at {points[name.group(1)]}")
            else:
                points[name.group(1)] = place
    return points, messages


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('output', help='the header to write')
    parser.add_argument('--depfile', help='list of the files that were read, for ninja')
    parser.add_argument('--root', type=pathlib.Path, required=True)
    parser.add_argument('folders', nargs='+')
    args = parser.parse_args()

    sources, watched = [], []
    for folder in args.folders:
        sources += sorted((args.root / folder).rglob('*.c'))
        watched += sorted((args.root / folder).rglob('meson.build'))
    points, messages = scan(sources)
    if messages:
        print('\n'.join(messages), file=sys.stderr)
        return 1
    with open(args.output, 'w', encoding='utf-8') as f:
        f.write('/* SPDX-License-Identifier: BSD-2-Clause */\n'
                '/* All fault points, made by scripts/fault-points.py. */\n'
                'static const char *const fault_point_names[] = {\n')
        f.writelines(f'    "{name}",\n' for name in sorted(points))
        f.write('    0\n};\n')
    if args.depfile:
        with open(args.depfile, 'w', encoding='utf-8') as f:
            f.write(f'{args.output}: ' + ' '.join(str(p) for p in sources + watched) + '\n')
    return 0


if __name__ == '__main__':
    sys.exit(main())

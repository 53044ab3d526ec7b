#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Bad schemas: each NAME.json must be refused with exactly the message in NAME.err (good if there is none).

Also checks that every message which the generator can give is given by one of them.
"""

import pathlib
import re
import sys

HERE = pathlib.Path(__file__).parent
SCRIPTS = HERE.parent.parent / 'scripts'
sys.dont_write_bytecode = True
sys.path.insert(0, str(SCRIPTS))

# pylint: disable=wrong-import-position,import-error
from qapi.schema import Schema
from qapi.source import SchemaError

raised = set()      # (file name, line) of the raise statements that were reached


def check(path):
    """What the generator says about the schema, '' if it is good."""
    try:
        Schema(str(path), path.name)
        return ''
    except SchemaError as error:
        traceback = error.__traceback__
        while traceback.tb_next:
            traceback = traceback.tb_next
        raised.add((pathlib.Path(traceback.tb_frame.f_code.co_filename).name, traceback.tb_lineno))
        return f'{error}\n'


def raise_statements():
    """(file name, line) of every place that can refuse a schema."""
    for name in ('schema.py', 'source.py'):
        for number, line in enumerate((SCRIPTS / 'qapi' / name).read_text().split('\n'), 1):
            if re.match(r'\s+raise SchemaError\(', line):
                yield name, number


def main():
    failed = 0
    paths = sorted(HERE.glob('*.json'))
    print(f'1..{len(paths) + 1}')
    for number, path in enumerate(paths, 1):
        expected_file = path.with_suffix('.err')
        expected = expected_file.read_text() if expected_file.exists() else ''
        got = check(path)
        print(f'{"ok" if got == expected else "not ok"} {number} {path.stem}')
        if got != expected:
            failed += 1
            print(f'# expected: {expected}# got: {got}', end='')
    missing = [place for place in raise_statements() if place not in raised]
    print(f'{"not ok" if missing else "ok"} {len(paths) + 1} every message has a test')
    for name, line in missing:
        print(f'# no test reaches {name}:{line}')
    return 1 if failed or missing else 0


if __name__ == '__main__':
    sys.exit(main())

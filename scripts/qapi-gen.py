#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Generates C code and the reference page from the schema: qapi-gen.py SCHEMA -o DIR."""

import argparse
import sys

sys.dont_write_bytecode = True      # the source tree stays as it is

# pylint: disable=wrong-import-position
from qapi import commands, events, introspect, options, reference, types, visit
from qapi.schema import Schema
from qapi.source import SchemaError

GENERATORS = (types, visit, commands, events, introspect, options, reference)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('schema', help='the top schema file')
    parser.add_argument('-o', '--output', metavar='DIR', help='where to write (nothing is written without)')
    parser.add_argument('-n', '--name', help='how messages call the schema file')
    options = parser.parse_args()
    try:
        schema = Schema(options.schema, options.name)
    except SchemaError as error:
        print(error, file=sys.stderr)
        return 1
    if options.output:
        for generator in GENERATORS:
            generator.generate(schema, options.output)
    return 0


if __name__ == '__main__':
    sys.exit(main())

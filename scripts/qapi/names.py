# SPDX-License-Identifier: BSD-2-Clause
"""From schema names to C names."""

import re

# What a C compiler would not take as a member name: keywords, and macros that gcc predefines.
RESERVED = frozenset('''
    asm auto bool break case char const continue default do double else enum extern float for goto if inline
    int linux long register restrict return short signed sizeof static struct switch typedef typeof union
    unix unsigned void volatile while
'''.split())


def c_name(name):
    """'dirty-sync-count' -> dirty_sync_count; a reserved word gets the prefix q_."""
    result = re.sub(r'[^A-Za-z0-9_]', '_', name)
    if result in RESERVED or result[0].isdigit():
        return 'q_' + result
    return result


def upper_name(camel):
    """'MigrationStatus' -> MIGRATION_STATUS, 'OnOffAuto' -> ON_OFF_AUTO."""
    spaced = re.sub(r'(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])', '_', camel)
    return c_name(spaced).upper()


def enum_constant(prefix, value):
    return prefix + '_' + re.sub(r'[^A-Za-z0-9_]', '_', value).upper()

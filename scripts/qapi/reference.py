# SPDX-License-Identifier: BSD-2-Clause
"""qmp-reference.md: every command, event and type, from the doc comments."""

import os
import re

from .output import write_file
from .schema import Alternate, Command, Enum, Event, List, Struct, Union
from .source import Expression

INTRODUCTION = '''# QMP reference

Generated from the schema in `qapi/`. Commands are sent as
`{"execute": NAME, "arguments": {...}}`; types are JSON: a `size` or an `int8` .. `uint64` is a whole number
and LOW..HIGH its range. "Since" is the version of QEMU that first had the same. What QEMU does not
have is marked so.
'''


def _text(lines):
    """Doc lines as Markdown; @NAME becomes code."""
    joined = '\n'.join(lines).strip()
    return re.sub(r'@([A-Za-z][A-Za-z0-9_-]*)', r'`\1`', joined)


def _one_line(lines):
    return ' '.join(_text(lines).split())


def _anchor(name):
    return re.sub(r'[^a-z0-9_-]', '', name.lower())


class Reference:
    def __init__(self, schema):
        self._schema = schema
        self._lines = [INTRODUCTION]
        for made in schema.order:
            if isinstance(made, Expression):
                self._section(made)
            elif not (isinstance(made, Struct) and made.implicit):
                self._definition(made)

    def text(self):
        return '\n'.join(self._lines).rstrip() + '\n'

    def _section(self, expression):
        for line in expression.doc.text:
            match = re.fullmatch(r'(=+) (.*)', line)
            self._lines.append(f'\n{"#" * (len(match[1]) + 1)} {match[2]}\n' if match else line)

    # ---- one definition ----

    def _definition(self, made):
        kind = type(made).__name__.lower()
        kind = {'struct': 'object', 'union': 'object'}.get(kind, kind)
        doc = made.doc
        self._lines += [f'\n### {made.name}\n', f'*{kind}, since {doc.since}*{self._flags(made)}\n',
                        _text(doc.text) + '\n']
        if isinstance(made, (Command, Event)):
            self._arguments(made)
        elif isinstance(made, Enum):
            self._values(made)
        elif isinstance(made, Alternate):
            self._lines += [f'- {m.type.name}: {_one_line(doc.members[m.name])}' for m in made.members]
        else:
            self._object(made)
        if doc.returns:
            self._lines.append(f'\nReturns {self._type(made.returns)}: {_one_line(doc.returns)}.')
        for name, lines in doc.features.items():
            if name in made.features:
                self._lines.append(f'\nFeature `{name}`: {_one_line(lines)}')
        self._notes(doc)

    def _notes(self, doc):
        notes = '\n'.join(doc.notes).strip()
        if notes:
            first, _, rest = notes.partition('\n')
            self._lines += ['\n' + first + '\n', '```', rest.strip('\n'), '```']

    @staticmethod
    def _flags(made):
        flags = []
        if isinstance(made, Command):
            if 'allow-oob' in made.flags:
                flags.append('may be sent out of band')
            if 'allow-preconfig' in made.flags:
                flags.append('allowed before the machine exists')
        return ' · ' + ', '.join(flags) if flags else ''

    def _arguments(self, made):
        if made.arg is None:
            return
        if made.arg.implicit:
            self._members(made.arg.own, made.doc)
        else:
            self._lines.append(f'Arguments: the members of {self._type(made.arg)}')

    def _object(self, made):
        if made.base:
            self._lines.append(f'All members of {self._type(made.base)}, and:\n')
        self._members(made.own, made.doc)
        if isinstance(made, Union):
            for case, branch in made.branches.items():
                self._lines.append(f'- if `{made.tag.name}` is `{case}`: the members of {self._type(branch)}')

    def _members(self, members, doc):
        for m in members:
            details = [self._type(m.type)] + (['optional'] if m.optional else []) + self._keys(m)
            self._lines.append(f'- `{m.name}` ({", ".join(details)}): {_one_line(doc.members[m.name])}')

    def _values(self, made):
        for value in made.values:
            details = self._keys(value)
            shown = f' ({", ".join(details)})' if details else ''
            self._lines.append(f'- `{value.name}`{shown}: {_one_line(made.doc.members[value.name])}')

    @staticmethod
    def _keys(member):
        keys = member.keys
        details = []
        if 'range' in keys:
            details.append(f'{keys["range"][0]}..{keys["range"][1]}')
        if 'unit' in keys:
            details.append(keys['unit'])
        if 'default' in keys:
            default = keys['default']
            shown = str(default).lower() if isinstance(default, bool) else default if default != '' else '""'
            details.append(f'default {shown}')
        if 'global' in keys:
            details.append(f'`-global migration.{keys["global"]}`')
        details += member.features
        if 'unsupported' in keys:
            details.append('not supported yet')
        return details

    def _type(self, type_):
        if isinstance(type_, List):
            return f'array of {self._type(type_.element)}'
        if type_.module == 'builtin':
            return type_.name
        return f'[{type_.name}](#{_anchor(type_.name)})'


def generate(schema, directory):
    write_file(os.path.join(directory, 'qmp-reference.md'), Reference(schema).text())

# SPDX-License-Identifier: BSD-2-Clause
"""qapi-options.h/.c: tables of QapiOption for the types marked 'option-table'."""

from .output import Output
from .schema import Builtin, Enum, List, Struct

BY_C_TYPE = {'bool': 'BOOL', 'uint8_t': 'UINT8', 'uint32_t': 'UINT32', 'uint64_t': 'UINT64'}


def _option_type(type_):
    if isinstance(type_, Builtin):
        return 'SIZE' if type_.name == 'size' else BY_C_TYPE.get(type_.c_value, 'OTHER')
    if isinstance(type_, Enum):
        return 'ENUM'
    if isinstance(type_, List) and type_.element.name == 'str':
        return 'STR_LIST'
    return {'StrOrNull': 'STR_OR_NULL'}.get(type_.name, 'OTHER')


def _string(value):
    return 'NULL' if value is None else f'"{value}"'


def _number(value):
    return f'UINT64_C({int(value)})'


def _common(member):
    keys = member.keys
    return [f'.name = "{member.name}", .global = {_string(keys.get("global"))}, '
            f'.unit = {_string(keys.get("unit"))}, .since = {_string(keys.get("since"))},',
            f'.unstable = {str("unstable" in member.features).lower()}, '
            f'.unsupported = {str("unsupported" in keys).lower()},']


def _struct_rows(struct):
    for member in struct.members:
        keys = member.keys
        type_ = member.type
        has = f'offsetof({struct.name}, has_{member.c_name})' if member.has_flag else 'SIZE_MAX'
        lines = _common(member)
        hmp = keys.get('hmp', 'none').upper()
        lines += [f'.type = QAPI_OPTION_{_option_type(type_)}, .hmp = QAPI_HMP_{hmp},',
                  f'.offset = offsetof({struct.name}, {member.c_name}), .has_offset = {has},']
        limits = keys.get('range') or getattr(type_, 'limits', None)
        if limits:
            lines.append(f'.min = {_number(limits[0])}, .max = {_number(limits[1])},')
        default = keys.get('default')
        if isinstance(type_, Enum):
            lines.append(f'.enum_lookup = {type_.name}_lookup, .enum_max = {type_.prefix}__MAX,')
            if default is not None:
                lines.append(f'.default_number = {type_.constant(default)},')
        elif isinstance(default, str):
            lines.append(f'.default_str = "{default}",')
        elif default is not None:
            lines.append(f'.default_number = {_number(default)},')
        yield lines


def _enum_rows(enum):
    """An enum whose values are switches: offset is the value, the default is off."""
    for value in enum.values:
        yield _common(value) + [f'.type = QAPI_OPTION_BOOL, .hmp = QAPI_HMP_BOOL, '
                                f'.offset = {enum.constant(value.name)}, .has_offset = SIZE_MAX, .max = 1,']


def generate(schema, directory):
    tables = [d for d in schema.order if isinstance(d, (Enum, Struct)) and d.option_table]
    modules = [m for m in schema.modules if any(t.module == m for t in tables)]
    header = Output('qapi-options.h', 'Option tables.',
                    ['qapi/option.h'] + [f'qapi/qapi-types-{m}.h' for m in modules])
    source = Output('qapi-options.c', 'Option tables.', ['qapi/qapi-options.h'])
    header.blank()
    source.blank()
    for table in tables:
        rows = _struct_rows(table) if isinstance(table, Struct) else _enum_rows(table)
        header.add(f'extern const QapiOption {table.name}_options[];')
        source.add(f'const QapiOption {table.name}_options[] = {{')
        for lines in rows:
            source.add('    {', *(f'        {line}' for line in lines), '    },')
        source.add('    { .name = NULL },', '};', '')
    header.write(directory)
    source.write(directory)

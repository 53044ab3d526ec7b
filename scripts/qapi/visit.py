# SPDX-License-Identifier: BSD-2-Clause
"""qapi-visit-NAME.h/.c: each type to and from JSON; thin wrappers over qapi/visit.c."""

from .output import Output
from .types import TypesModule


def generate(schema, directory):
    for module in ['builtin'] + schema.modules:
        types = TypesModule(schema, module)
        _header(types, module).write(directory)
        _source(types, module).write(directory)


def _pointed(types):
    return [t for t in types.types if t.is_pointer] + types.lists


def _prototypes(type_):
    name = type_.name
    return (f'json_t *qapi_{name}_to_json(const {name} *value)',
            f'bool qapi_{name}_from_json(json_t *json, const char *path, {name} **out, GError **errp)')


def _header(types, module):
    out = Output(f'qapi-visit-{module}.h', f'JSON of the types of {module}.json.',
                 ['qapi/visit.h', f'qapi/qapi-types-{module}.h'])
    out.blank()
    for type_ in _pointed(types):
        out.add(*(p + ';' for p in _prototypes(type_)), '')
    return out


def _source(types, module):
    out = Output(f'qapi-visit-{module}.c', f'JSON of the types of {module}.json.',
                 [f'qapi/qapi-visit-{module}.h'])
    out.blank()
    for type_ in _pointed(types):
        to_json, from_json = _prototypes(type_)
        out.add(to_json, '{', f'    return qapi_to_json(&{type_.info}, value);', '}', '')
        out.add(from_json, '{', '    void *value;', '',
                f'    if (!qapi_from_json(&{type_.info}, json, path, &value, errp)) {{',
                '        return false;', '    }', '    *out = value;', '    return true;', '}', '')
    return out

# SPDX-License-Identifier: BSD-2-Clause
"""qapi-commands-NAME.h/.c: handlers' prototypes and their wrappers; qapi-dispatch.c: the command table."""

from .names import c_name
from .output import Output, comment, doc_text
from .schema import Command
from .types import declare

CONTEXT = 'MonitorContext *ctx'


def result_type(command):
    """The C type that the handler returns."""
    if command.returns is None:
        return 'bool'
    return 'json_t *' if command.returns.schema_only else command.returns.c_value


def handler_prototype(command):
    parameters = [CONTEXT]
    if 'monitor' in command.flags:
        parameters.append('Monitor *mon')
    if command.arg:
        parameters.append(f'const {command.arg.name} *arg')
    parameters.append('GError **errp')
    return f'{declare(result_type(command), command.handler)}({", ".join(parameters)})'


def wrapper_name(command):
    return 'qmp_marshal_' + c_name(command.name)


def wrapper_prototype(command):
    return f'json_t *{wrapper_name(command)}({CONTEXT}, Monitor *mon, json_t *args, GError **errp)'


def _call(command):
    arguments = ['ctx']
    if 'monitor' in command.flags:
        arguments.append('mon')
    if command.arg:
        arguments.append('arg')
    return f'{command.handler}({", ".join(arguments + ["errp"])})'


def _wrapper(command):
    """The lines of one wrapper."""
    lines = [wrapper_prototype(command), '{']
    returns = command.returns
    is_any = returns is not None and returns.schema_only
    if command.arg:
        lines.append(f'    g_autoptr({command.arg.name}) arg = NULL;')
    if returns and not is_any:
        auto = 'g_autofree char *' if returns.name == 'str' else f'g_autoptr({returns.name}) '
        lines.append(f'    {auto}result = NULL;')
    if len(lines) > 2:
        lines.append('')
    if command.arg:
        lines += [f'    if (!qapi_{command.arg.name}_from_json(args, "", &arg, errp)) {{',
                  '        return NULL;', '    }']
    else:
        lines += ['    if (!qapi_no_arguments(args, errp)) {', '        return NULL;', '    }']
    if is_any:
        lines.append(f'    return {_call(command)};')
    elif returns:
        lines += [f'    result = {_call(command)};',
                  f'    return result ? qapi_to_json(&{returns.info}, result) : NULL;']
    else:
        lines.append(f'    return {_call(command)} ? json_object() : NULL;')
    return lines + ['}', '']


def _header(module, commands, needs):
    out = Output(f'qapi-commands-{module}.h', f'Handlers of the commands of {module}.json, and wrappers.',
                 ['qapi/qmp-command.h'] + [f'qapi/qapi-types-{m}.h' for m in needs])
    out.blank()
    for command in commands:
        out.add(comment(doc_text(command.doc)), handler_prototype(command) + ';',
                wrapper_prototype(command) + ';', '')
    return out


def _source(module, commands, needs):
    out = Output(f'qapi-commands-{module}.c', f'Wrappers of the commands of {module}.json.',
                 [f'qapi/qapi-commands-{module}.h', 'qapi/visit.h']
                 + [f'qapi/qapi-visit-{m}.h' for m in needs])
    out.blank()
    for command in commands:
        out.add(*_wrapper(command))
    return out


def _needs(schema, commands):
    used = set()
    for command in commands:
        used |= {t.module for t in (command.arg, command.returns) if t is not None and not t.schema_only}
    return [m for m in ['builtin'] + schema.modules if m in used]


def _dispatch(schema):
    out = Output('qapi-dispatch.c', 'The table of QMP commands.',
                 ['qapi/qmp-command.h'] + [f'qapi/qapi-commands-{m}.h' for m in schema.modules]
                 + ['<string.h>'])
    out.add('', 'const QmpCommand qmp_commands[] = {')
    for command in schema.commands.values():
        flags = ''.join(f', .{f.replace("-", "_")} = true' for f in ('allow-oob', 'allow-preconfig')
                        if f in command.flags)
        out.add(f'    {{ "{command.name}", {wrapper_name(command)}{flags} }},')
    out.add('    { NULL },', '};', '',
            'const QmpCommand *qmp_command_find(const char *name)', '{',
            '    for (const QmpCommand *c = qmp_commands; c->name; c++) {',
            '        if (strcmp(c->name, name) == 0) {', '            return c;', '        }', '    }',
            '    return NULL;', '}')
    return out


def generate(schema, directory):
    for module in schema.modules:
        commands = schema.module_of(module, Command)
        needs = _needs(schema, commands)
        _header(module, commands, needs).write(directory)
        _source(module, commands, needs).write(directory)
    _dispatch(schema).write(directory)

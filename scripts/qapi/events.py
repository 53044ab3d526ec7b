# SPDX-License-Identifier: BSD-2-Clause
"""qapi-events-NAME.h/.c: a function per event that builds its data and hands it to the monitors."""

from .names import c_name
from .output import Output, comment, doc_text
from .schema import Event
from .types import const_value, declare


def _prototype(event):
    parameters = ['MonitorContext *ctx']
    if event.arg and not event.arg.implicit:
        parameters.append(f'const {event.arg.name} *arg')
    elif event.arg:
        for member in event.arg.members:
            if member.has_flag:
                parameters.append(f'bool has_{member.c_name}')
            parameters.append(declare(const_value(member.type), member.c_name))
    return f'void qapi_event_send_{c_name(event.name).lower()}({", ".join(parameters)})'


def _body(event):
    if event.arg is None:
        return [f'    monitor_event(ctx, "{event.name}", NULL);']
    if not event.arg.implicit:
        return [f'    monitor_event(ctx, "{event.name}", qapi_{event.arg.name}_to_json(arg));']
    lines = [f'    const {event.arg.name} arg = {{']
    for member in event.arg.members:
        if member.has_flag:
            lines.append(f'        .has_{member.c_name} = has_{member.c_name},')
        cast = f'({member.type.c_value})' if member.type.is_pointer else ''
        lines.append(f'        .{member.c_name} = {cast}{member.c_name},')
    return lines + ['    };', '',
                    f'    monitor_event(ctx, "{event.name}", qapi_{event.arg.name}_to_json(&arg));']


def generate(schema, directory):
    for module in schema.modules:
        events = schema.module_of(module, Event)
        used = {m.type.module for e in events if e.arg for m in e.arg.members}
        needs = [m for m in ['builtin'] + schema.modules if m in used]
        header = Output(f'qapi-events-{module}.h', f'Events of {module}.json.  Any thread.',
                        ['monitor/monitor.h'] + [f'qapi/qapi-types-{m}.h' for m in needs])
        source = Output(f'qapi-events-{module}.c', f'Events of {module}.json.',
                        [f'qapi/qapi-events-{module}.h', f'qapi/qapi-visit-{module}.h'])
        header.blank()
        source.blank()
        for event in events:
            header.add(comment(doc_text(event.doc)), _prototype(event) + ';', '')
            source.add(_prototype(event), '{', *_body(event), '}', '')
        header.write(directory)
        source.write(directory)

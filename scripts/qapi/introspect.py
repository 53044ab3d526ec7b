# SPDX-License-Identifier: BSD-2-Clause
"""qapi-introspect.c: the answer of query-qmp-schema, as JSON text that the handler reads."""

import json

from .output import Output
from .schema import Alternate, Builtin, Command, Enum, Event, List, Struct, Union

# C compilers need not take string literals longer than this.
PIECE = 2000

HANDLER = '''
json_t *qmp_query_qmp_schema(MonitorContext *ctx, GError **errp)
{
    g_autofree char *text = g_strjoinv("", (char **)schema_text);

    return json_loads(text, 0, NULL);
}'''


class Introspection:
    """Entities in the order of the reply: commands and events, then the types that they reach.

    Types go by number, as clients are not to depend on their names; builtins and arrays of them do not.
    """

    def __init__(self, schema):
        self._schema = schema
        self._numbers = {}          # type name -> number, as text
        self._seen = set()          # names that have been queued
        self._queue = []            # (name, type) yet to be described
        self.entities = [self._top(d) for d in schema.order if isinstance(d, (Command, Event))]
        while self._queue:
            self.entities.append(self._describe(*self._queue.pop(0)))

    # ---- names ----

    def _name(self, type_):
        if type_ is None or (isinstance(type_, Struct) and not type_.members):
            name, type_ = '0', None
        elif isinstance(type_, List):
            name = '[' + self._name(type_.element) + ']'
        elif isinstance(type_, Builtin):
            type_ = self._schema.types['int'] if type_.json_type == 'int' else type_
            name = type_.name
        else:
            name = self._numbers.setdefault(type_.name, str(len(self._numbers) + 1))
        if name not in self._seen:
            self._seen.add(name)
            self._queue.append((name, type_))
        return name

    # ---- entities ----

    def _top(self, made):
        entity = {'name': made.name, 'meta-type': 'command' if isinstance(made, Command) else 'event',
                  'arg-type': self._name(made.arg)}
        if isinstance(made, Command):
            entity['ret-type'] = self._name(made.returns)
            if 'allow-oob' in made.flags:
                entity['allow-oob'] = True
        return self._with_features(entity, made.features)

    def _describe(self, name, type_):
        if type_ is None:
            return {'name': name, 'meta-type': 'object', 'members': []}
        entity = {'name': name}
        if isinstance(type_, Builtin):
            entity.update({'meta-type': 'builtin', 'json-type': type_.json_type})
        elif isinstance(type_, List):
            entity.update({'meta-type': 'array', 'element-type': self._name(type_.element)})
        elif isinstance(type_, Enum):
            entity.update({'meta-type': 'enum',
                           'members': [self._with_features({'name': v.name}, v.features)
                                       for v in type_.values],
                           'values': [v.name for v in type_.values]})
        elif isinstance(type_, Alternate):
            entity.update({'meta-type': 'alternate',
                           'members': [{'type': self._name(m.type)} for m in type_.members]})
        else:
            entity.update({'meta-type': 'object', 'members': [self._member(m) for m in type_.members]})
        if isinstance(type_, Union):
            entity['tag'] = type_.tag.name
            entity['variants'] = [{'case': v.name, 'type': self._name(type_.branches.get(v.name))}
                                  for v in type_.tag.type.values]
        return self._with_features(entity, type_.features)

    def _member(self, member):
        entity = {'name': member.name, 'type': self._name(member.type)}
        if member.optional:
            entity['default'] = None
        return self._with_features(entity, member.features)

    @staticmethod
    def _with_features(entity, features):
        if features:
            entity['features'] = list(features)
        return entity


def _c_string(text):
    return '"' + text.replace('\\', '\\\\').replace('"', '\\"') + '"'


def generate(schema, directory):
    if 'query-qmp-schema' not in schema.commands:
        return
    module = schema.commands['query-qmp-schema'].module
    out = Output('qapi-introspect.c', 'The answer of query-qmp-schema.',
                 [f'qapi/qapi-commands-{module}.h'])
    out.add('', 'static const char *const schema_text[] = {')
    text = json.dumps(Introspection(schema).entities)
    for start in range(0, len(text), PIECE):
        piece = text[start:start + PIECE]
        lines = [piece[i:i + 90] for i in range(0, len(piece), 90)]
        out.add(*('    ' + _c_string(line) for line in lines))
        out.add('    ,')
    out.add('    NULL', '};', *HANDLER.split('\n'))
    out.write(directory)

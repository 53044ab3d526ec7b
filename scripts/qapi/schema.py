# SPDX-License-Identifier: BSD-2-Clause
"""The checked schema: types, commands and events, and every rule that a definition must keep."""

import re

from .names import c_name, enum_constant, upper_name
from .source import SECTION_MARK, Mapping, Number, Reader, SchemaError, Sequence, Text

# Members that one JSON object can have at most: the visitors keep track of them in an array of this size.
MAX_MEMBERS = 96


class Type:
    """Base of all types.  kind is the QapiKind in C."""
    kind = None
    is_pointer = False          # in C, a member of this type is a pointer, NULL if absent
    schema_only = False         # exists in introspection, not in C
    doc = None
    features = ()

    def __init__(self, name, module, where):
        self.name = name
        self.module = module
        self.where = where

    @property
    def c_value(self):
        """The C type of a member, parameter or list item."""
        raise NotImplementedError

    @property
    def info(self):
        """The C name of its QapiTypeInfo."""
        return f'qapi_info_{self.name}'

    def uses(self):
        """Types that the definition mentions."""
        return []


class Builtin(Type):
    def __init__(self, name, json_type, kind, c_value, pointer=False):
        super().__init__(name, 'builtin', None)
        self.json_type = json_type
        self.kind = kind
        self._c_value = c_value
        self.is_pointer = pointer
        self.schema_only = name in ('any', 'null')

    @property
    def c_value(self):
        return self._c_value

    @property
    def limits(self):
        """Lowest and highest value of an integer type."""
        match = re.fullmatch(r'(u?)int(\d+)_t', self._c_value or '')
        if not match:
            return None
        bits = int(match[2])
        return (0, 2 ** bits - 1) if match[1] else (-2 ** (bits - 1), 2 ** (bits - 1) - 1)


BUILTINS = [
    Builtin('str', 'string', 'STR', 'char *', pointer=True),
    Builtin('number', 'number', 'NUMBER', 'double'),
    Builtin('int', 'int', 'INT64', 'int64_t'),
    Builtin('int8', 'int', 'INT8', 'int8_t'),
    Builtin('int16', 'int', 'INT16', 'int16_t'),
    Builtin('int32', 'int', 'INT32', 'int32_t'),
    Builtin('int64', 'int', 'INT64', 'int64_t'),
    Builtin('uint8', 'int', 'UINT8', 'uint8_t'),
    Builtin('uint16', 'int', 'UINT16', 'uint16_t'),
    Builtin('uint32', 'int', 'UINT32', 'uint32_t'),
    Builtin('uint64', 'int', 'UINT64', 'uint64_t'),
    Builtin('size', 'int', 'UINT64', 'uint64_t'),
    Builtin('bool', 'boolean', 'BOOL', 'bool'),
    Builtin('null', 'null', None, None),
    Builtin('any', 'value', None, 'struct json_t *', pointer=True),
]


class List(Type):
    kind = 'LIST'
    is_pointer = True

    def __init__(self, element):
        super().__init__(element.name + 'List', element.module, element.where)
        self.element = element

    @property
    def schema_only(self):
        return self.element.schema_only

    @property
    def c_value(self):
        return f'{self.name} *'

    def uses(self):
        return [self.element]


class Enum(Type):
    kind = 'ENUM'

    def __init__(self, name, module, where, values, prefix, option_table):
        super().__init__(name, module, where)
        self.values = values            # Member objects without type
        self.prefix = prefix or upper_name(name)
        self.option_table = option_table

    @property
    def c_value(self):
        return self.name

    def constant(self, value):
        return enum_constant(self.prefix, value)

    def has_value(self, name):
        return any(v.name == name for v in self.values)


class Member:
    """A member of an object, a parameter, or a value of an enum (type None)."""

    def __init__(self, name, type_, optional, where, keys, features):
        self.name = name
        self.c_name = c_name(name)
        self.type = type_
        self.optional = optional
        self.where = where
        self.keys = keys                # our extensions, as given
        self.features = features

    @property
    def has_flag(self):
        """Does a bool has_NAME stand before it?"""
        return self.optional and not self.type.is_pointer


class Struct(Type):
    kind = 'STRUCT'
    is_pointer = True

    def __init__(self, name, module, where, base, own, implicit=False):
        super().__init__(name, module, where)
        self.base = base
        self.own = own
        self.implicit = implicit
        self.option_table = False

    @property
    def members(self):
        return (self.base.members if self.base else []) + self.own

    @property
    def schema_only(self):
        return any(m.type.schema_only for m in self.members)

    @property
    def c_value(self):
        return f'{self.name} *'

    def most_members(self):
        return len(self.members)

    def uses(self):
        return [m.type for m in self.members]


class Union(Struct):
    kind = 'UNION'

    def __init__(self, name, module, where, base, own, tag, branches):
        super().__init__(name, module, where, base, own)
        self.tag = tag                  # Member
        self.branches = branches        # value -> Type, only those with members

    @property
    def schema_only(self):
        return any(t.schema_only for t in self.uses())

    def most_members(self):
        return len(self.members) + max((b.most_members() for b in self.branches.values()), default=0)

    def uses(self):
        return super().uses() + list(self.branches.values())


class Alternate(Type):
    kind = 'STR_OR_NULL'
    is_pointer = True

    def __init__(self, name, module, where, members):
        super().__init__(name, module, where)
        self.members = members

    @property
    def c_value(self):
        return f'{self.name} *'

    def uses(self):
        return [m.type for m in self.members]


class Command:
    def __init__(self, name, module, where, arg, returns, flags):
        self.name = name
        self.module = module
        self.where = where
        self.arg = arg                  # Struct, Union or None
        self.returns = returns          # Type or None
        self.flags = flags              # the true ones of allow-oob, allow-preconfig, monitor
        self.features = ()
        self.doc = None

    @property
    def handler(self):
        return 'qmp_' + c_name(self.name)


class Event:
    def __init__(self, name, module, where, arg):
        self.name = name
        self.module = module
        self.where = where
        self.arg = arg
        self.features = ()
        self.doc = None


OPTION_KEYS = {'range', 'default', 'unit', 'hmp', 'global', 'unsupported', 'since'}

# meta: (mandatory keys, optional keys)
KEYS = {
    'enum': ({'data'}, {'prefix', 'features', 'option-table'}),
    'struct': ({'data'}, {'base', 'features', 'option-table'}),
    'union': ({'base', 'discriminator', 'data'}, {'features'}),
    'alternate': ({'data'}, {'features'}),
    'command': (set(), {'data', 'returns', 'features', 'allow-oob', 'allow-preconfig', 'monitor'}),
    'event': (set(), {'data', 'features'}),
}
HMP_CLASSES = ('int', 'size', 'mib', 'bool', 'word', 'none')
MEMBER_NAME = re.compile(r'[A-Za-z][A-Za-z0-9_-]*')
NAME_RULES = {
    'enum': re.compile(r'[A-Z][A-Za-z0-9]*'),
    'struct': re.compile(r'[A-Z][A-Za-z0-9]*'),
    'union': re.compile(r'[A-Z][A-Za-z0-9]*'),
    'alternate': re.compile(r'[A-Z][A-Za-z0-9]*'),
    'command': re.compile(r'[a-z][a-z0-9_-]*'),
    'event': re.compile(r'[A-Z][A-Z0-9_]*'),
}
NAME_HINTS = {'command': 'lower case, digits, - and _', 'event': 'UPPER_CASE'}


class Schema:
    """Everything in the schema, checked.  Raises SchemaError at the first fault."""

    def __init__(self, path, shown_path=None):
        reader = Reader(path, shown_path)
        self.files = reader.files
        self.types = {t.name: t for t in BUILTINS}
        self.lists = {}                 # name -> List
        self.commands = {}
        self.events = {}
        self.order = []                 # definitions and sections, as in the files
        self.modules = []
        self._raw = {}                  # type name -> Expression not yet made
        self._making = []
        self._collect(reader.expressions)
        for expression in reader.expressions:
            self._define(expression)

    def module_of(self, module, kind):
        return [d for d in self.order if isinstance(d, kind) and d.module == module]

    # ---- first pass: names ----

    def _collect(self, expressions):
        for expression in expressions:
            value = expression.value
            if value.module not in self.modules:
                self.modules.append(value.module)
            if SECTION_MARK in value:
                continue
            expression.meta = meta = self._meta(value)
            expression.name = name = self._definition_name(value, meta)
            self._check_keys(value, KEYS[meta][0] | {meta}, KEYS[meta][1], f"{meta} '{name}'")
            previous = self._raw.get(name)
            if previous:
                raise SchemaError(value.where, f"'{name}' is already defined at {previous.where}")
            if name in self.types:
                raise SchemaError(value.where, f"'{name}' is the name of a builtin type")
            self._raw[name] = expression

    @staticmethod
    def _meta(value):
        metas = [meta for meta in KEYS if meta in value]
        if len(metas) != 1:
            listed = ', '.join(f"'{m}'" for m in KEYS)
            raise SchemaError(value.where, f'exactly one of the keys {listed}, \'include\' is needed')
        return metas[0]

    @staticmethod
    def _definition_name(value, meta):
        name = value[meta]
        if not isinstance(name, Text):
            raise SchemaError(value.where, f"value of '{meta}' must be a string")
        if not NAME_RULES[meta].fullmatch(name):
            hint = NAME_HINTS.get(meta, 'CamelCase')
            raise SchemaError(value.where, f"name of {meta} '{name}' must be {hint}")
        if meta not in ('command', 'event') and name.endswith('List'):
            raise SchemaError(value.where, f"name of {meta} '{name}' must not end in 'List'")
        return str(name)

    @staticmethod
    def _check_keys(value, mandatory, optional, what):
        for key in value:
            if key not in mandatory | optional:
                allowed = ', '.join(f"'{k}'" for k in sorted(mandatory | optional))
                raise SchemaError(value.key_where[key],
                                  f"{what} has unknown key '{key}'; possible are {allowed}")
        for key in sorted(mandatory):
            if key not in value:
                raise SchemaError(value.where, f"{what} lacks key '{key}'")

    # ---- second pass: definitions ----

    def _define(self, expression):
        if SECTION_MARK in expression.value:
            self.order.append(expression)
            expression.module = expression.value.module
            return
        if expression.name in self.types:
            return
        if expression.name in self._making:
            raise SchemaError(expression.where, f"'{expression.name}' contains itself")
        self._making.append(expression.name)
        what = f"{expression.meta} '{expression.name}'"
        made = getattr(self, '_make_' + expression.meta)(expression, what)
        self._making.pop()
        made.features = self._features(expression.value, what)
        made.doc = expression.doc
        self._check_doc(expression, made, what)
        self.order.append(made)

    def _make_enum(self, expression, what):
        value = expression.value
        data = self._want(value, 'data', Sequence, what, 'a list')
        table = self._flag(value, 'option-table', what)
        prefix = value.get('prefix', 'X')
        if not isinstance(prefix, str) or not re.fullmatch(r'[A-Z][A-Z0-9_]*', prefix):
            raise SchemaError(value.key_where['prefix'], f"{what}: 'prefix' must be an UPPER_CASE string")
        values = []
        enum = Enum(expression.name, value.module, value.where, values, value.get('prefix'), table)
        constants = {}
        for item in data:
            member = self._enum_value(item, what, table)
            constant = enum.constant(member.name)
            if constant in constants:
                raise SchemaError(member.where, f"{what}: value '{member.name}' collides with "
                                                f"'{constants[constant]}'")
            constants[constant] = member.name
            values.append(member)
        self.types[enum.name] = enum
        return enum

    def _enum_value(self, item, what, table):
        keys = {}
        features = []
        name = item
        if isinstance(item, Mapping):
            self._check_keys(item, {'name'}, OPTION_KEYS | {'features'}, f'{what}: value')
            name = item['name']
            keys = {k: v for k, v in item.items() if k in OPTION_KEYS}
            features = self._features(item, f"{what}: value '{name}'")
            if keys and not table:
                raise SchemaError(item.where, f"{what}: value '{name}' has option keys, "
                                              "but there is no 'option-table'")
        if not isinstance(name, Text):
            raise SchemaError(getattr(item, 'where', None) or self._raw[self._making[-1]].where,
                              f'{what}: a value must be a string or an object')
        if not re.fullmatch(r'[A-Za-z0-9][A-Za-z0-9_-]*', name):
            raise SchemaError(name.where, f"{what}: value '{name}' has an invalid name")
        self._check_option_keys(keys, None, f"{what}: value '{name}'", name.where)
        return Member(str(name), None, False, name.where, keys, features)

    def _make_struct(self, expression, what):
        value = expression.value
        data = self._want(value, 'data', Mapping, what, 'an object')
        base = self._struct_type(value, 'base', what)
        table = self._flag(value, 'option-table', what)
        own = self._members(data, what, base, table)
        struct = Struct(expression.name, value.module, value.where, base, own)
        struct.option_table = table
        self._check_size(struct, what)
        self.types[struct.name] = struct
        return struct

    def _make_union(self, expression, what):
        value = expression.value
        data = self._want(value, 'data', Mapping, what, 'an object')
        if isinstance(value['base'], Mapping):
            base, own = None, self._members(value['base'], what, None, False)
        else:
            base, own = self._struct_type(value, 'base', what), []
        name = self._want(value, 'discriminator', Text, what, 'a string')
        members = (base.members if base else []) + own
        tag = next((m for m in members if m.name == name), None)
        if tag is None:
            raise SchemaError(name.where, f"{what}: discriminator '{name}' is not a member of the base")
        if not isinstance(tag.type, Enum):
            raise SchemaError(name.where, f"{what}: discriminator '{name}' must be of an enum type")
        if tag.optional:
            raise SchemaError(name.where, f"{what}: discriminator '{name}' must not be optional")
        branches = self._branches(data, what, tag, members)
        union = Union(expression.name, value.module, value.where, base, own, tag, branches)
        self._check_size(union, what)
        self.types[union.name] = union
        return union

    def _branches(self, data, what, tag, members):
        branches = {}
        for case, type_name in data.items():
            where = data.key_where[case]
            if not tag.type.has_value(case):
                raise SchemaError(where, f"{what}: branch '{case}' is not a value of enum '{tag.type.name}'")
            branch = self._type(type_name, f"{what}: branch '{case}'", where)
            if not isinstance(branch, Struct):
                raise SchemaError(where, f"{what}: branch '{case}' must be a struct or union type")
            for member in branch.members:
                if any(m.name == member.name for m in members):
                    raise SchemaError(where, f"{what}: member '{member.name}' of branch '{case}' "
                                             'collides with the base')
            if branch.members:
                branches[case] = branch
        return branches

    def _make_alternate(self, expression, what):
        value = expression.value
        data = self._want(value, 'data', Mapping, what, 'an object')
        members = self._members(data, what, None, False)
        if sorted(m.type.name for m in members) != ['null', 'str']:
            raise SchemaError(value.where, f"{what} must have two branches, of type 'str' and 'null'")
        alternate = Alternate(expression.name, value.module, value.where, members)
        self.types[alternate.name] = alternate
        return alternate

    def _make_command(self, expression, what):
        value = expression.value
        flags = {key for key in ('allow-oob', 'allow-preconfig', 'monitor') if self._flag(value, key, what)}
        arg = self._arguments(expression, what)
        returns = None
        if 'returns' in value:
            returns = self._type(value['returns'], what + " 'returns'", value.key_where['returns'])
        if returns and not returns.is_pointer:
            raise SchemaError(value.key_where['returns'],
                              f"{what} 'returns' must be an object, a list or a string")
        if arg and arg.schema_only:
            raise SchemaError(value.where, f"{what} cannot take a value of type 'any'")
        command = Command(expression.name, value.module, value.where, arg, returns, flags)
        for other in self.commands.values():
            if other.handler == command.handler:
                raise SchemaError(value.where, f"{what} collides with '{other.name}' in C")
        self.commands[command.name] = command
        return command

    def _make_event(self, expression, what):
        value = expression.value
        event = Event(expression.name, value.module, value.where, self._arguments(expression, what))
        if event.arg and event.arg.schema_only:
            raise SchemaError(value.where, f"{what} cannot carry a value of type 'any'")
        self.events[event.name] = event
        return event

    def _arguments(self, expression, what):
        """The type of 'data' of a command or event; an object literal becomes a struct NAME_arg."""
        value = expression.value
        data = value.get('data')
        if data is None:
            return None
        if isinstance(data, Text):
            arg = self._type(data, what + " 'data'", data.where)
            if not isinstance(arg, Struct):
                raise SchemaError(data.where, f"{what} 'data' must be a struct or union type")
            return arg
        if not isinstance(data, Mapping):
            raise SchemaError(value.key_where['data'], f"{what}: 'data' must be an object or a type name")
        members = self._members(data, what, None, False)
        if not members:
            return None
        arg = Struct(c_name(expression.name) + '_arg', value.module, value.where, None, members,
                     implicit=True)
        self._check_size(arg, what)
        self.types[arg.name] = arg
        self.order.append(arg)
        return arg

    # ---- pieces ----

    @staticmethod
    def _want(value, key, kind, what, called):
        if not isinstance(value[key], kind):
            raise SchemaError(value.key_where[key], f"{what}: '{key}' must be {called}")
        return value[key]

    @staticmethod
    def _flag(value, key, what):
        if value.get(key, True) is not True:
            raise SchemaError(value.key_where[key], f"{what}: '{key}' may only be true")
        return key in value

    @staticmethod
    def _features(value, what):
        features = value.get('features', [])
        if not isinstance(features, list) or not all(isinstance(f, Text) for f in features):
            raise SchemaError(value.key_where['features'], f"{what}: 'features' must be a list of strings")
        for feature in features:
            if features.count(feature) > 1:
                raise SchemaError(feature.where, f"{what}: feature '{feature}' is listed twice")
        return [str(f) for f in features]

    @staticmethod
    def _check_size(struct, what):
        if struct.most_members() > MAX_MEMBERS:
            raise SchemaError(struct.where, f'{what} has more than {MAX_MEMBERS} members')

    def _struct_type(self, value, key, what):
        if key not in value:
            return None
        result = self._type(value[key], f"{what} '{key}'", value.key_where[key])
        if type(result) is not Struct:
            raise SchemaError(value.key_where[key], f"{what}: '{key}' must name a struct")
        return result

    def _type(self, spec, what, where):
        if isinstance(spec, Sequence):
            if len(spec) != 1 or not isinstance(spec[0], Text):
                raise SchemaError(spec.where, f'{what}: a list type must hold exactly one type name')
            element = self._type(spec[0], what, spec.where)
            return self.lists.setdefault(element.name + 'List', List(element))
        if not isinstance(spec, Text):
            raise SchemaError(where, f'{what}: a type must be a name or a list of one name')
        if spec not in self.types:
            expression = self._raw.get(spec)
            if expression is None or expression.meta in ('command', 'event'):
                raise SchemaError(spec.where, f"{what} uses unknown type '{spec}'")
            self._define(expression)
        return self.types[spec]

    def _members(self, data, what, base, table):
        members = []
        taken = {m.c_name: m.name for m in (base.members if base else [])}
        for key, spec in data.items():
            member = self._member(key, spec, data.key_where[key], what, table)
            if member.c_name in taken:
                raise SchemaError(member.where, f"{what}: member '{member.name}' collides with "
                                                f"'{taken[member.c_name]}'")
            taken[member.c_name] = member.name
            if table and not member.optional:
                raise SchemaError(member.where, f"{what}: member '{member.name}' of an option table "
                                                'must be optional')
            members.append(member)
        return members

    def _member(self, key, spec, where, what, table):
        optional = key.startswith('*')
        name = key[1:] if optional else key
        what = f"{what}: member '{name}'"
        if not MEMBER_NAME.fullmatch(name):
            raise SchemaError(where, f'{what} has an invalid name')
        if name == 'u' or name.startswith(('has-', 'has_')):
            raise SchemaError(where, f'{what} has a reserved name')
        keys = {}
        features = []
        if isinstance(spec, Mapping):
            self._check_keys(spec, {'type'}, OPTION_KEYS | {'features'}, what)
            keys = {k: v for k, v in spec.items() if k in OPTION_KEYS}
            features = self._features(spec, what)
            if keys and not table:
                raise SchemaError(spec.where, f"{what} has option keys, but there is no 'option-table'")
            spec = spec['type']
        type_ = self._type(spec, what, where)
        if type_.name == 'null' and not what.startswith('alternate'):
            raise SchemaError(where, f"{what}: type 'null' is for alternates only")
        self._check_option_keys(keys, type_, what, where)
        return Member(name, type_, optional, where, keys, features)

    # ---- option keys ----

    def _check_option_keys(self, keys, type_, what, where):
        for key in ('unit', 'global', 'since', 'hmp'):
            if key in keys and not isinstance(keys[key], Text):
                raise SchemaError(where, f"{what}: '{key}' must be a string")
        if keys.get('unsupported', True) is not True:
            raise SchemaError(where, f"{what}: 'unsupported' may only be true")
        if keys.get('hmp', 'int') not in HMP_CLASSES:
            raise SchemaError(keys['hmp'].where, f"{what}: 'hmp' must be one of {', '.join(HMP_CLASSES)}")
        limits = getattr(type_, 'limits', None)
        if 'range' in keys:
            limits = self._range(keys['range'], limits, what, where)
        if 'default' in keys:
            self._check_default(keys['default'], type_, limits, what, where)

    @staticmethod
    def _range(value, limits, what, where):
        if limits is None:
            raise SchemaError(where, f"{what}: 'range' is for numbers only")
        if not isinstance(value, Sequence) or [type(v) for v in value] != [Number, Number]:
            raise SchemaError(where, f"{what}: 'range' must be a list of two numbers")
        if not limits[0] <= value[0] <= value[1] <= limits[1]:
            raise SchemaError(where, f"{what}: 'range' is empty or exceeds the type")
        return tuple(value)

    @staticmethod
    def _check_default(value, type_, limits, what, where):
        if limits is not None:
            good = isinstance(value, Number) and limits[0] <= value <= limits[1]
        elif isinstance(type_, Enum):
            good = isinstance(value, Text) and type_.has_value(value)
        elif isinstance(type_, Alternate):
            good = isinstance(value, Text)
        else:
            good = type_ is not None and type_.name == 'bool' and isinstance(value, bool)
        if not good:
            raise SchemaError(where, f"{what}: 'default' does not fit the type or range")

    # ---- documentation ----

    def _check_doc(self, expression, made, what):
        doc = expression.doc
        if doc is None or doc.name is None:
            raise SchemaError(expression.where, f'{what} has no documentation comment')
        if doc.name != expression.name:
            raise SchemaError(doc.where,
                              f"documentation comment is for '{doc.name}', not '{expression.name}'")
        if not any(line.strip() for line in doc.text):
            raise SchemaError(doc.where, f'documentation of {what} says nothing about it')
        if doc.since is None:
            raise SchemaError(doc.where, f"documentation of {what} lacks 'Since:'")
        if doc.returns and not getattr(made, 'returns', None):
            raise SchemaError(doc.where, f"documentation of {what} has 'Returns:', but nothing is returned")
        if not doc.returns and getattr(made, 'returns', None):
            raise SchemaError(doc.where, f"documentation of {what} lacks 'Returns:'")
        known = {m.name: m for m in self._documented_members(made)}
        for name in doc.members:
            if name not in known:
                raise SchemaError(doc.member_where[name],
                                  f"documented member '{name}' does not exist in {what}")
        for name, member in known.items():
            if name not in doc.members:
                raise SchemaError(member.where, f"{what}: member '{name}' is not documented")
        self._check_feature_doc(doc, made, known, what)

    @staticmethod
    def _check_feature_doc(doc, made, known, what):
        used = set(made.features).union(*(m.features for m in known.values()))
        for name in doc.features:
            if name not in used:
                raise SchemaError(doc.feature_where[name],
                                  f"documented feature '{name}' does not exist in {what}")
        for name in sorted(used):
            if name not in doc.features:
                raise SchemaError(doc.where, f"{what}: feature '{name}' is not documented")

    @staticmethod
    def _documented_members(made):
        if isinstance(made, Enum):
            return made.values
        if isinstance(made, Struct):
            return made.own
        if isinstance(made, Alternate):
            return made.members
        arg = made.arg
        return arg.own if arg and arg.implicit else []

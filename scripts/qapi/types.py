# SPDX-License-Identifier: BSD-2-Clause
"""qapi-types-NAME.h/.c: C types, enum tables, and the type descriptions that the generic code works from."""

from .names import c_name
from .output import Output, comment, doc_text
from .schema import BUILTINS, MAX_MEMBERS, Alternate, Enum, List, Struct, Union


def declare(c_value, name):
    """'char *' and 'x' -> 'char *x'."""
    return c_value + name if c_value.endswith('*') else f'{c_value} {name}'


def const_value(type_):
    """How a value is passed to a function that only reads it."""
    return f'const {type_.c_value}' if type_.is_pointer else type_.c_value


class TypesModule:
    """The types of one schema file."""

    def __init__(self, schema, module):
        self.schema = schema
        self.module = module
        self.types = [d for d in schema.order if d.module == module
                      and isinstance(d, (Enum, Struct, Alternate)) and not d.schema_only]
        self.lists = [t for t in schema.lists.values() if t.module == module and not t.schema_only]
        if module == 'builtin':
            self.lists = [List(b) for b in BUILTINS if not b.schema_only]

    def needs(self):
        """Other modules whose types these mention, in a stable order."""
        used = {u.module for t in self.types for u in t.uses()}
        return [m for m in ['builtin'] + self.schema.modules if m in used and m != self.module]

    # ---- header ----

    def header(self):
        out = Output(f'qapi-types-{self.module}.h', f'C types of the schema file {self.module}.json.',
                     ['qapi/type-info.h'] + [f'qapi/qapi-types-{m}.h' for m in self.needs()])
        out.blank()
        if self.module == 'builtin':
            out.add(*(f'extern const QapiTypeInfo {b.info};' for b in BUILTINS if not b.schema_only), '')
        pointed = [t for t in self.types if t.is_pointer] + self.lists
        for type_ in pointed:
            out.add(f'typedef struct {type_.name} {type_.name};')
        out.blank()
        for type_ in self.types:
            if isinstance(type_, Enum):
                self._enum(out, type_)
        for type_ in self.types:
            if isinstance(type_, Struct):
                self._struct(out, type_)
            elif isinstance(type_, Alternate):
                self._alternate(out, type_)
        for type_ in self.lists:
            out.add(f'struct {type_.name} {{', '    size_t count;',
                    f'    {declare(type_.element.c_value, "*items")};', '};', '')
        for type_ in pointed:
            self._functions(out, type_)
        return out

    @staticmethod
    def _describe(out, type_):
        text = doc_text(type_.doc)
        if text:
            out.add(comment(text))

    def _enum(self, out, type_):
        self._describe(out, type_)
        out.add('typedef enum {')
        out.add(*(f'    {type_.constant(v.name)},' for v in type_.values))
        out.add(f'    {type_.prefix}__MAX', f'}} {type_.name};')
        out.add(f'extern const QapiTypeInfo {type_.info};',
                f'extern const char *const {type_.name}_lookup[];',
                f'const char *{type_.name}_str({type_.name} value);',
                f'int {type_.name}_parse(const char *name);', '')

    def _struct(self, out, type_):
        self._describe(out, type_)
        out.add(f'struct {type_.name} {{')
        for member in type_.members:
            if member.has_flag:
                out.add(f'    bool has_{member.c_name};')
            out.add(f'    {declare(member.type.c_value, member.c_name)};')
        if isinstance(type_, Union) and type_.branches:
            out.add('    union {')
            for case, branch in type_.branches.items():
                out.add(f'        {declare(branch.c_value, c_name(case))};')
            out.add('    } u;')
        elif not type_.members:
            out.add('    char empty;')
        out.add('};', '')

    def _alternate(self, out, type_):
        self._describe(out, type_)
        out.add(f'struct {type_.name} {{', '    bool is_null;', '    char *str;', '};', '')

    @staticmethod
    def _functions(out, type_):
        name = type_.name
        out.add(f'extern const QapiTypeInfo {type_.info};',
                f'void qapi_free_{name}({name} *value);',
                f'{name} *qapi_clone_{name}(const {name} *value);',
                f'G_DEFINE_AUTOPTR_CLEANUP_FUNC({name}, qapi_free_{name})', '')

    # ---- source ----

    def source(self):
        out = Output(f'qapi-types-{self.module}.c', f'C types of the schema file {self.module}.json.',
                     [f'qapi/qapi-types-{self.module}.h'])
        out.blank()
        if self.module == 'builtin':
            out.add(f'G_STATIC_ASSERT(QAPI_MAX_MEMBERS == {MAX_MEMBERS});', '')
            for type_ in BUILTINS:
                if not type_.schema_only:
                    out.add(f'const QapiTypeInfo {type_.info} = {{ .kind = QAPI_KIND_{type_.kind}, '
                            f'.name = "{type_.name}" }};')
            out.blank()
        for type_ in self.types:
            {'ENUM': self._enum_info, 'STR_OR_NULL': self._alternate_info}.get(
                type_.kind, self._struct_info)(out, type_)
        for type_ in self.lists:
            out.add(f'const QapiTypeInfo {type_.info} = {{',
                    f'    .kind = QAPI_KIND_LIST, .name = "{type_.name}", .size = sizeof({type_.name}),',
                    f'    .element = &{type_.element.info},', '};', '')
            self._function_bodies(out, type_)
        return out

    @staticmethod
    def _enum_info(out, type_):
        out.add(f'const char *const {type_.name}_lookup[] = {{')
        out.add(*(f'    [{type_.constant(v.name)}] = "{v.name}",' for v in type_.values))
        out.add('    NULL', '};', '')
        out.add(f'const QapiTypeInfo {type_.info} = {{',
                f'    .kind = QAPI_KIND_ENUM, .name = "{type_.name}", .lookup = {type_.name}_lookup,',
                f'    .enum_max = {type_.prefix}__MAX,', '};',
                f'G_STATIC_ASSERT(sizeof({type_.name}) == sizeof(int));', '')
        out.add(f'const char *{type_.name}_str({type_.name} value)', '{',
                f'    return qapi_enum_str(&{type_.info}, (int)value);', '}', '')
        out.add(f'int {type_.name}_parse(const char *name)', '{',
                f'    return qapi_enum_parse(&{type_.info}, name);', '}', '')

    def _alternate_info(self, out, type_):
        out.add(f'const QapiTypeInfo {type_.info} = {{',
                f'    .kind = QAPI_KIND_STR_OR_NULL, .name = "{type_.name}", .size = sizeof({type_.name}),',
                '};',
                f'G_STATIC_ASSERT(sizeof({type_.name}) == sizeof(QapiStrOrNull));', '')
        self._function_bodies(out, type_)

    def _struct_info(self, out, type_):
        name = type_.name
        out.add(f'static const QapiMember {name}_members[] = {{')
        for m in type_.members:
            flag = f'offsetof({name}, has_{m.c_name})' if m.has_flag else 'QAPI_NO_FLAG'
            low, high = m.keys.get('range', (0, 0))
            out.add(f'    {{ "{m.name}", offsetof({name}, {m.c_name}), {flag},',
                    f'      &{m.type.info}, {str(m.optional).lower()}, UINT64_C({low}), UINT64_C({high}) }},')
        out.add('    { NULL, 0, 0, NULL, false, 0, 0 },', '};', '')
        union = isinstance(type_, Union)
        if union:
            self._branches(out, type_)
        out.add(f'const QapiTypeInfo {type_.info} = {{',
                f'    .kind = QAPI_KIND_{type_.kind}, .name = "{name}", .size = sizeof({name}),',
                f'    .members = {name}_members,')
        if union:
            index = type_.members.index(type_.tag)
            out.add(f'    .tag = &{name}_members[{index}], .branches = {name}_branches,')
            if type_.branches:
                out.add(f'    .branch_offset = offsetof({name}, u),')
        out.add('};', '')
        self._function_bodies(out, type_)

    @staticmethod
    def _branches(out, type_):
        out.add(f'static const QapiTypeInfo *const {type_.name}_branches[{type_.tag.type.prefix}__MAX] = {{')
        for case, branch in type_.branches.items():
            out.add(f'    [{type_.tag.type.constant(case)}] = &{branch.info},')
        out.add('};', '')

    @staticmethod
    def _function_bodies(out, type_):
        name = type_.name
        out.add(f'void qapi_free_{name}({name} *value)', '{',
                f'    qapi_type_free(&{type_.info}, value);', '}', '')
        out.add(f'{name} *qapi_clone_{name}(const {name} *value)', '{',
                f'    return qapi_type_clone(&{type_.info}, value);', '}', '')


def generate(schema, directory):
    for module in ['builtin'] + schema.modules:
        types = TypesModule(schema, module)
        types.header().write(directory)
        types.source().write(directory)

# SPDX-License-Identifier: BSD-2-Clause
"""Reading schema files: tokens, literals that remember their line, doc comments, expressions.

A schema file is a sequence of literals in a notation close to Python's: strings in single quotes,
lists, objects, true and false, whole numbers; '#' begins a comment.  A comment block between two
lines of '##' documents the expression that follows it.  Every value read remembers where it stood,
so that whoever finds it wrong can say where.
"""

import os
import re


class SchemaError(Exception):
    """Something is wrong with the schema: printed as FILE:LINE: MESSAGE."""

    def __init__(self, where, message):
        super().__init__(f'{where}: {message}')


class Where:
    """A place in a schema file."""

    def __init__(self, path, line):
        self.path = path
        self.line = line

    def __str__(self):
        return f'{self.path}:{self.line}'


class Text(str):
    """A string literal with its place."""
    where = None


class Number(int):
    """A whole number with its place."""
    where = None


class Sequence(list):
    """A list literal with its place."""
    where = None


class Mapping(dict):
    """An object literal with its own place and that of each key."""

    def __init__(self, where):
        super().__init__()
        self.where = where
        self.key_where = {}


class Doc:
    """A doc comment: what it documents, its text, and a text per member."""

    def __init__(self, where):
        self.where = where
        self.name = None
        self.text = []          # lines of the body
        self.members = {}       # name -> lines
        self.member_where = {}
        self.features = {}
        self.feature_where = {}
        self.returns = []
        self.notes = []         # lines after "Example:" and the like, kept verbatim
        self.since = None


class Expression:
    """One top-level object with its doc comment, or None."""

    def __init__(self, value, doc):
        self.value = value
        self.doc = doc
        self.where = value.where


TOKEN = re.compile(r"""
    (?P<space>[ \t]+) | (?P<newline>\n) | (?P<comment>\#[^\n]*)
  | (?P<punct>[{}\[\]:,]) | (?P<string>'[^'\n]*'?) | (?P<number>-?[0-9]+) | (?P<word>[A-Za-z_]+)
  | (?P<bad>.)
""", re.VERBOSE)


class Lexer:
    """Splits a file into tokens; doc comments come out as one token."""

    def __init__(self, path, shown_path):
        self.path = shown_path
        with open(path, encoding='utf-8') as f:
            self.text = f.read()
        if not self.text.endswith('\n'):
            self.text += '\n'
        self.tokens = list(self._scan())
        self.next = 0

    def _scan(self):
        line = 1
        position = 0
        while position < len(self.text):
            match = TOKEN.match(self.text, position)
            kind, text = match.lastgroup, match.group()
            where = Where(self.path, line)
            position = match.end()
            if kind == 'newline':
                line += 1
            elif kind == 'comment' and text == '##' and self._begins_line(match.start()):
                lines, position = self._doc_lines(position, where)
                yield 'doc', lines, where
                line += len(lines) + 1
            elif kind == 'bad':
                raise SchemaError(where, f"stray '{text}'")
            elif kind == 'string':
                yield kind, self._string(text, where), where
            elif kind not in ('space', 'comment'):
                yield kind, text, where
        yield 'end', '', Where(self.path, line)

    def _begins_line(self, position):
        return position == 0 or self.text[position - 1] == '\n'

    def _doc_lines(self, position, where):
        """The lines up to the closing '##', and where it ends; a newline is at @position."""
        lines = []
        while True:
            end = self.text.find('\n', position + 1)
            raw = self.text[position + 1:end] if end >= 0 else ''
            if raw == '##':
                return lines, end
            at = Where(self.path, where.line + len(lines) + 1)
            if not raw.startswith('#'):
                raise SchemaError(at, "documentation comment must end with '##'")
            if raw != '#' and not raw.startswith('# '):
                raise SchemaError(at, "missing space after '#' in documentation comment")
            lines.append(raw[2:])
            position = end

    @staticmethod
    def _string(text, where):
        if len(text) < 2 or not text.endswith("'"):
            raise SchemaError(where, "missing terminating \"'\"")
        value = Text(text[1:-1])
        for char in value:
            if not ' ' <= char <= '~' or char == '\\':
                raise SchemaError(where, f'character {char!a} is not allowed in a string')
        value.where = where
        return value

    def peek(self):
        return self.tokens[self.next]

    def take(self):
        token = self.tokens[self.next]
        self.next += 1
        return token


def _describe(token):
    kind, text, _ = token
    return {'end': 'end of file', 'doc': 'a documentation comment'}.get(kind, f"'{text}'")


class Reader:
    """Parses one file into expressions, following its includes."""

    def __init__(self, path, shown_path=None, seen=None):
        shown_path = shown_path or path
        self.path = path
        self.module = os.path.splitext(os.path.basename(path))[0]
        self.expressions = []       # of this file and of what it includes, in order
        self.includes = []          # modules included directly
        self.files = [path]
        self._seen = seen if seen is not None else {}
        self._seen[os.path.abspath(path)] = self.module
        self._shown_dir = os.path.dirname(shown_path)
        self._lexer = Lexer(path, shown_path)
        self._read()

    def _read(self):
        doc = None
        while True:
            token = self._lexer.peek()
            kind, text, where = token
            if kind == 'end':
                break
            if kind == 'doc':
                self._end_doc(doc)
                doc = self._doc(text, where)
                self._lexer.take()
                continue
            if (kind, text) != ('punct', '{'):
                raise SchemaError(where, f"expected '{{', not {_describe(token)}")
            value = self._value()
            if 'include' in value:
                self._end_doc(doc)
                self._include(value)
            else:
                self.expressions.append(Expression(value, doc))
                value.module = self.module
            doc = None
        self._end_doc(doc)

    def _end_doc(self, doc):
        """After a doc comment that no definition followed: a section of the reference, if it has no name."""
        if doc is None:
            return
        if doc.name is not None:
            raise SchemaError(doc.where, f"documentation for '{doc.name}' is not followed by the definition")
        self.expressions.append(Expression(_section(doc, self.module), doc))

    def _include(self, value):
        if len(value) != 1:
            raise SchemaError(value.where, "'include' must be alone in its object")
        name = value['include']
        if not isinstance(name, Text):
            raise SchemaError(value.where, "value of 'include' must be a string")
        path = os.path.join(os.path.dirname(self.path), name)
        module = os.path.splitext(os.path.basename(name))[0]
        self.includes.append(module)
        if os.path.abspath(path) in self._seen:
            return
        if not os.path.isfile(path):
            raise SchemaError(name.where, f"can't read schema file '{name}'")
        inner = Reader(path, os.path.join(self._shown_dir, name), self._seen)
        self.expressions.extend(inner.expressions)
        self.files.extend(inner.files)

    # ---- literals ----

    def _value(self):
        token = self._lexer.take()
        kind, text, where = token
        if kind == 'string':
            return text
        if kind == 'number':
            number = Number(int(text))
            number.where = where
            return number
        if kind == 'word' and text in ('true', 'false'):
            return text == 'true'
        if (kind, text) == ('punct', '{'):
            return self._mapping(where)
        if (kind, text) == ('punct', '['):
            return self._sequence(where)
        raise SchemaError(where, f"expected a value, not {_describe(token)}")

    def _mapping(self, where):
        result = Mapping(where)
        if self._try('}'):
            return result
        while True:
            token = self._lexer.take()
            if token[0] != 'string':
                raise SchemaError(token[2], f'expected a string as key, not {_describe(token)}')
            key = token[1]
            if key in result:
                raise SchemaError(token[2], f"duplicate key '{key}'")
            self._expect(':')
            result[str(key)] = self._value()
            result.key_where[str(key)] = token[2]
            if self._comma_or('}'):
                return result

    def _sequence(self, where):
        result = Sequence()
        result.where = where
        if self._try(']'):
            return result
        while True:
            result.append(self._value())
            if self._comma_or(']'):
                return result

    def _try(self, text):
        if self._lexer.peek()[:2] == ('punct', text):
            self._lexer.take()
            return True
        return False

    def _expect(self, text):
        token = self._lexer.take()
        if token[:2] != ('punct', text):
            raise SchemaError(token[2], f"expected '{text}', not {_describe(token)}")

    def _comma_or(self, closer):
        """True at @closer, False after a comma."""
        token = self._lexer.take()
        if token[:2] == ('punct', closer):
            return True
        if token[:2] != ('punct', ','):
            raise SchemaError(token[2], f"expected ',' or '{closer}', not {_describe(token)}")
        return False

    # ---- doc comments ----

    def _doc(self, lines, where):
        return DocParser(lines, where).doc


SECTION_MARK = '(section)'


def _section(doc, module):
    value = Mapping(doc.where)
    value[SECTION_MARK] = doc.text
    value.module = module
    return value


MEMBER_LINE = re.compile(r'@([A-Za-z0-9_-]+): ?(.*)')


class DocParser:
    """Sorts the lines of one doc comment into body, members, features, returns and since."""

    def __init__(self, lines, where):
        self.doc = Doc(where)
        self._target = self.doc.text
        self._in_features = False
        for number, line in enumerate(lines, 1):
            self._line(line, Where(where.path, where.line + number), number == 1)

    def _line(self, line, where, first):
        match = MEMBER_LINE.fullmatch(line)
        if match and self.doc.name is None:
            if not first:
                raise SchemaError(where, f"'@{match[1]}:' must be the first line of the comment")
            if match[2]:
                raise SchemaError(where, f"the line '@{match[1]}:' that names the definition must end there")
            self.doc.name = match[1]
        elif match:
            self._member(match[1], match[2], where)
        elif line == 'Features:':
            self._in_features = True
        elif line.startswith('Returns:'):
            self._target = self.doc.returns
            self._target.append(line[len('Returns:'):].strip())
        elif line.startswith('Since:'):
            if self.doc.since is not None:
                raise SchemaError(where, "duplicate 'Since:'")
            self.doc.since = line[len('Since:'):].strip()
            self._target = self.doc.notes
        elif line.startswith('Example:'):
            self._target = self.doc.notes
            self._target.append(line)
        else:
            self._continue(line)

    def _continue(self, line):
        if line == '' and self._target is not self.doc.text and self._target is not self.doc.notes:
            self._target = self.doc.text
        self._target.append(line.strip() if self._target is not self.doc.notes else line)

    def _member(self, name, text, where):
        table, places = ((self.doc.features, self.doc.feature_where) if self._in_features
                         else (self.doc.members, self.doc.member_where))
        if name in table:
            raise SchemaError(where, f"'@{name}:' is documented twice")
        table[name] = self._target = [text.strip()]
        places[name] = where

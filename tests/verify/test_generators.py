# SPDX-License-Identifier: BSD-2-Clause
"""What the scripts that write C say about bad input, and that the tree checks do find what they are for."""
import importlib.machinery
import importlib.util
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.quick

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def run(script, *arguments):
    return subprocess.run([sys.executable, os.path.join(TOP, script), *map(str, arguments)],
                          capture_output=True, text=True, timeout=60)


def load(script):
    loader = importlib.machinery.SourceFileLoader(os.path.basename(script).replace('-', '_'),
                                                  os.path.join(TOP, script))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    exec(compile(loader.get_data(loader.path), loader.path, 'exec'), module.__dict__)
    return module


def tracetool(tmp_path, text):
    events = tmp_path / 'trace-events'
    events.write_text(text)
    return run('scripts/tracetool.py', events, 'test', tmp_path / 'out.h', tmp_path / 'out.c')


@pytest.mark.parametrize('line, message', (
    ('no_format(int a)', 'expected: name(type arg, ...) "format"'),
    ('Upper(void) ""', 'expected: name(type arg, ...) "format"'),
    ('unknown_type(struct foo *f) "%p"', "type 'struct foo *' cannot be traced"),
    ('no_name(int) "%d"', "'int' is not TYPE NAME"),
    ('line_feed(int a) "%d\\n"', 'the format ends the line by itself'),
    ('code(int a) "%d" + evil()', 'the format may hold strings and PRI macros only'),
    ('many(' + ', '.join(f'int a{i}' for i in range(13)) + ') ""', '13 arguments are more than 12'),
    ('twice(void) ""\ntwice(void) ""', "event 'twice' appears twice"),
    ('# only a comment', 'no events'),
))
def test_tracetool_refuses(line, message, tmp_path):
    done = tracetool(tmp_path, line + '\n')
    assert done.returncode == 1
    assert message in done.stderr
    assert 'trace-events' in done.stderr
    assert not (tmp_path / 'out.h').exists()


def test_tracetool_names_the_line(tmp_path):
    done = tracetool(tmp_path, '# comment\n\ngood(void) ""\nbad\n')
    assert f'{tmp_path}/trace-events:4: ' in done.stderr


def test_tracetool_types(tmp_path):
    done = tracetool(tmp_path, 'event(const  char*s, uint64_t x, void *p) "%s %" PRIu64 " %p"\n')
    assert done.returncode == 0, done.stderr
    assert 'trace_event(const char *s, uint64_t x, void *p)' in (tmp_path / 'out.h').read_text()


def fault_points(tmp_path, text):
    folder = tmp_path / 'code'
    folder.mkdir(exist_ok=True)
    (folder / 'a.c').write_text(text)
    return run('scripts/fault-points.py', tmp_path / 'out.h', '--root', tmp_path, 'code')


def test_fault_points_are_collected(tmp_path):
    done = fault_points(tmp_path, 'if (fault_point("b-point", errp)) {}\n/* fault_point("no", e) */\n'
                                  'x = fault_point(\n    "a-point", errp);\n')
    assert done.returncode == 0, done.stderr
    text = (tmp_path / 'out.h').read_text()
    assert text.index('"a-point"') < text.index('"b-point"')
    assert '"no"' not in text


def test_fault_points_are_unique_literals(tmp_path):
    twice = fault_points(tmp_path, 'fault_point("p", e);\n\nfault_point("p", e);\n')
    assert twice.returncode == 1
    assert "code/a.c:3: fault point 'p' is also at " in twice.stderr
    variable = fault_points(tmp_path, 'fault_point(name, errp);\n')
    assert variable.returncode == 1
    assert 'code/a.c:1: the name of a fault point must be a literal' in variable.stderr


@pytest.mark.parametrize('folder, name, allowed', (
    ('util', 'io/channel.h', False), ('io', 'util/error.h', True), ('io', 'system/ramblock.h', False),
    ('io', 'qapi/qapi-types-sockets.h', True), ('io', 'qapi/visit.h', False),
    ('system', 'io/channel.h', True), ('system', 'accel/workload.h', False),
    ('migration', 'system/ramblock.h', True), ('migration', 'accel/workload.h', False),
    ('migration', 'monitor/monitor.h', False), ('monitor', 'migration/migration.h', True),
    ('monitor', 'migration/ram.h', False), ('vmm', 'monitor/monitor.h', True),
    ('accel', 'migration/migration.h', False),
))
def test_layers(folder, name, allowed):
    layers = load('tests/check-layers')
    complaint = layers.include_complaint(folder, layers.TOP / folder / 'x.c', '"', name)
    assert (complaint is None) == allowed, complaint


@pytest.mark.parametrize('name, text, complaint', (
    ('util/x.c', '/* SPDX-License-Identifier: BSD-2-Clause */\nint x;\n', None),
    ('util/x.c', 'int x;\n', 'no SPDX'),
    ('util/x.c', '/* SPDX-License-Identifier: BSD-2-Clause */\n\tint x;\n', 'tab'),
    ('util/x.c', '/* SPDX-License-Identifier: BSD-2-Clause */\nint x;', 'no line feed'),
    ('util/x.c', '/* SPDX-License-Identifier: BSD-2-Clause */\n/* TO' 'DO */\n', 'unfinished'),
    ('util/x.c', '/* SPDX-License-Identifier: BSD-2-Clause */\n    exit(1);\n', 'does not print or exit'),
    ('io/x.c', '/* SPDX-License-Identifier: BSD-2-Clause */\nstatic int count;\n', 'mutable'),
    ('io/x.c', '/* SPDX-License-Identifier: BSD-2-Clause */\nstatic const int count = 3;\n', None),
    ('io/x.c', '/* SPDX-License-Identifier: BSD-2-Clause */\nstatic int f(int x);\n', None),
    ('vmm/x.c', '/* SPDX-License-Identifier: BSD-2-Clause */\n' + '/' * 111 + '\n', 'columns'),
))
def test_lint(name, text, complaint):
    found = [c for _, c in load('tests/lint').check_file(name, text)]
    if complaint is None:
        assert not found
    else:
        assert len(found) == 1 and complaint in found[0]


JUNIT = '''<testsuites><testsuite name="p.p:unit / a">
<testcase name="1 x" classname="p.p:unit / a"/>
<testcase name="2 y" classname="p.p:unit / a"><skipped/><system-out>no IPv6</system-out></testcase>
%s</testsuite></testsuites>'''


@pytest.mark.parametrize('case, verdict, last', (
    ('', 'OK', '1 passed, 0 failed, 1 skipped'),
    ('<testcase name="3 z" classname="p.p:unit / a"><failure/></testcase>', 'FAIL',
     '1 passed, 1 failed, 1 skipped'),
    # A program that crashed after its good cases.
    ('', 'ERROR', '1 passed, 1 failed, 1 skipped'),
    ('', 'TIMEOUT', '1 passed, 1 failed, 1 skipped'),
))
def test_summary(case, verdict, last, tmp_path):
    (tmp_path / 'a.xml').write_text(JUNIT % case)
    (tmp_path / 'a.json').write_text('{"name": "p:unit / a", "result": "%s"}\n' % verdict)
    done = run('scripts/test-summary', tmp_path / 'a.xml', tmp_path / 'a.json')
    assert done.stdout.splitlines()[-1] == last
    assert 'skipped 1: no IPv6' in done.stdout
    assert done.returncode == (0 if ' 0 failed' in last else 1)


@pytest.mark.parametrize('option, message', (
    ('--bogus', "unknown option '--bogus'"),
    ('--enable-sanitizers=memory', "takes address,undefined or thread, not 'memory'"),
))
def test_configure_refuses(option, message, tmp_path):
    done = subprocess.run([os.path.join(TOP, 'configure'), f'--builddir={tmp_path}/b', option],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert message in done.stderr
    assert not (tmp_path / 'b').exists()


def test_configure_help_names_every_option():
    path = os.path.join(TOP, 'configure')
    done = subprocess.run([path, '--help'], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    with open(path, encoding='utf-8') as f:
        known = {word.split('=')[0].rstrip('*)') for line in f if line.startswith('    --') and ')' in line
                 for word in line.replace('|', ' ').split() if word.startswith('--')}
    # What only undoes another option need not be told.
    known -= {'--disable-sanitizers', '--disable-werror', '--enable-fault-injection'}
    assert len(known) > 10
    assert not [option for option in known if option not in done.stdout]

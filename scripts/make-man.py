#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""make-man.py PROGRAM VERSION INPUT OUTPUT: a manual page with the options that PROGRAM --help-man prints."""
import subprocess
import sys


def main():
    program, version, source, target = sys.argv[1:]
    options = subprocess.run([program, '--help-man'], capture_output=True, text=True, check=True).stdout
    with open(source, encoding='utf-8') as f:
        text = f.read()
    for mark, value in (('@VERSION@', version), ('@OPTIONS@', options.rstrip('\n'))):
        if mark not in text:
            sys.exit(f'{source}: no {mark}')
        text = text.replace(mark, value)
    with open(target, 'w', encoding='utf-8') as f:
        f.write(text)


if __name__ == '__main__':
    main()

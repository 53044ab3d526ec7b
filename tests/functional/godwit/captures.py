# SPDX-License-Identifier: BSD-2-Clause
"""Captured streams of real programs, kept in tests/data/streams with a note of what each is."""
import gzip
import hashlib
import json
import os

from .ram import PAGE

FOLDER = os.path.normpath(
    os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'data', 'streams'))
ORIGINS = os.path.join(FOLDER, 'origins.json')
LARGE = 1 << 18             # from here on a capture is kept compressed


def origins():
    """
    {name: {"origin": program and version, "capabilities": [...], "memory": hashes of the pages that
    arrive}}
    """
    with open(ORIGINS) as f:
        return json.load(f)


def store_origins(facts):
    with open(ORIGINS, 'w') as f:
        json.dump(facts, f, indent=1)
        f.write('\n')


def store(name, data):
    path = os.path.join(FOLDER, name)
    if len(data) < LARGE:
        with open(path, 'wb') as f:
            f.write(data)
    else:
        with open(path + '.gz', 'wb') as f:
            f.write(gzip.compress(data, mtime=0))


def load(name):
    path = os.path.join(FOLDER, name)
    if os.path.exists(path + '.gz'):
        with gzip.open(path + '.gz') as f:
            return f.read()
    with open(path, 'rb') as f:
        return f.read()


def page_hashes(content):
    """{page number as text: hash} of the pages that are not zero."""
    pages = {}
    for number in range(len(content) // PAGE):
        page = content[number * PAGE:(number + 1) * PAGE]
        if any(page):
            pages[str(number)] = hashlib.sha256(page).hexdigest()[:32]
    return pages

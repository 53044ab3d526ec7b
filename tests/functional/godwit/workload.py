# SPDX-License-Identifier: BSD-2-Clause
"""The synthetic guest of machine workload, as a test uses it."""
from .deadline import poll


def machine(**properties):
    """The -machine value; an underscore in a name is a dash."""
    return ','.join(['workload'] +
                    [f'{name.replace("_", "-")}={value}' for name, value in properties.items()])


def query(vm):
    return vm.call('query-workload')


def wait_written(vm, pages, seconds=60):
    """Until the guest has written @pages more pages than now: it runs."""
    target = query(vm)['pages-written'] + pages
    poll(lambda: query(vm)['pages-written'] >= target, seconds, f'{vm}: the guest writes {pages} pages')


def assert_verified(vm, seconds=120):
    """Has the guest check all its pages; the query-workload result."""
    assert query(vm)['errors'] == 0, query(vm).get('first-error')
    poll(lambda: not query(vm)['verifying'], seconds, f'{vm}: the check under way ends')
    vm.call('x-workload-verify')
    poll(lambda: not query(vm)['verifying'], seconds, f'{vm}: all pages are checked')
    info = query(vm)
    assert info['verified'] and info['errors'] == 0, info.get('first-error', info)
    return info

# SPDX-License-Identifier: BSD-2-Clause
"""A guest that writes while it is migrated, whatever program it is, and how to migrate it in some rounds."""
import os
import random

from .deadline import Deadline
from .programs import compat_options
from .ram import MIB, PAGE

SIZE = 16 * MIB
BLOB_AT, BLOB_PAGES = 4 * MIB, 64


def make_writer(find_program, make_vm, make_ram, folder):
    """writer(source, destination) -> (source VM, destination VM, function that makes the guest write)."""
    def make(source_name, destination_name):
        source, destination = find_program(source_name), find_program(destination_name)
        options = compat_options(source, destination)
        if not source.is_godwit:
            blob = os.path.join(folder, 'blob')
            with open(blob, 'wb') as f:
                f.write(random.Random(7).randbytes(BLOB_PAGES * PAGE))
            options += ['-device', f'loader,file={blob},addr={BLOB_AT:#x},force-raw=on']
        src = make_vm(source, 'src', ram=make_ram(SIZE).fill_mixed(), options=options, qtest=source.is_godwit)
        dst = make_vm(destination, 'dst', ram=make_ram(SIZE).fill(0xa5), incoming='defer')
        rng = random.Random(5)

        def write():
            if source.is_godwit:
                for _ in range(8):
                    page = rng.randrange(SIZE // PAGE)
                    if rng.random() < 0.2:
                        src.qtest.memset(page * PAGE, PAGE, 0)
                    else:
                        src.qtest.write(page * PAGE + rng.randrange(PAGE - 64), rng.randbytes(64))
            else:
                # The loader device puts its file back at each reset.
                src.ram.write(BLOB_AT + rng.randrange(BLOB_PAGES) * PAGE + 100, b'not tracked')
                src.call('system_reset')
                src.qmp.wait_event('RESET')
        return src, dst, write
    return make


def more_passes(info, passes):
    return info['status'] == 'active' and info['ram']['dirty-sync-count'] < passes


def slow_down(src):
    """
    Before the first pass ends: what one write() makes dirty is then a pass that takes a while, in which the
    next comes.  Nothing left to send would end the migration, whatever the limits are.
    """
    info = src.migration()
    if info['status'] == 'active' and info['ram']['remaining'] < SIZE // 4:
        src.set_parameters(max_bandwidth=MIB)
        return True
    return False


def run(src, dst, write, route, seconds=1.0, passes=0):
    """
    A migration while the guest writes, for at least @seconds and @passes, and into the pause before the
    switchover, after which nothing of the guest's memory changes any more.
    """
    src.set_capabilities('pause-before-switchover')
    src.set_parameters(max_bandwidth=16 * MIB, downtime_limit=1)
    route.listen(dst)
    route.connect(src)
    src.wait_migration('active', 'pre-switchover')
    deadline = Deadline(seconds)
    hang = Deadline(60)
    slow = False
    while not deadline.expired() or more_passes(src.migration(), passes):
        slow = slow or slow_down(src)
        write()
        assert not hang.expired(), f'fewer than {passes} passes: {src.migration()}'
    src.set_parameters(max_bandwidth=0, downtime_limit=1000)
    src.wait_migration('pre-switchover')
    write()
    src.call('migrate-continue', state='pre-switchover')
    info = src.wait_migration('completed')
    if route.stored:
        route.load(dst)
    dst.wait_migration('completed')
    return info

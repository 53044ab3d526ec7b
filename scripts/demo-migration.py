#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""
The migration that scripts/demo shows: a synthetic guest that keeps writing to its memory moves from one
godwit to another under the eyes of tools/godwit-migrate, and then checks every page it has.
"""
import argparse
import atexit
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
START_SECONDS, VERIFY_SECONDS = 30, 300


def qmp(path, *commands):
    """Runs @commands on the QMP server at @path, in a session of their own; the last one's result."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(30)
        sock.connect(path)
        stream = sock.makefile('rw')
        stream.readline()
        result = None
        for command in ('qmp_capabilities', *commands):
            stream.write(json.dumps({'execute': command}) + '\n')
            stream.flush()
            while True:
                reply = json.loads(stream.readline())
                if 'error' in reply:
                    sys.exit(f'{command}: {reply["error"]["desc"]}')
                if 'return' in reply:
                    result = reply['return']
                    break
        return result


def wait_for(condition, seconds, what):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            sys.exit(f'{what}: not within {seconds} s')
        time.sleep(0.05)


class Guest:
    """One godwit process."""

    def __init__(self, args, folder, name, incoming=()):
        self.qmp_path = os.path.join(folder, f'{name}.qmp')
        words = [args.godwit, '-name', name, '-machine',
                 f'workload,pattern={args.pattern},rate={args.rate},working-set={args.working_set},'
                 'zero=25,compressible=25',
                 '-smp', str(args.cpus), '-m', args.memory, '-nodefaults', '-display', 'none',
                 '-qmp', f'unix:{self.qmp_path},server=on,wait=off', *incoming]
        print(f'$ {shlex.join(words)} &')
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL)
        atexit.register(self.stop)
        wait_for(self.answers, START_SECONDS, f'{name} answers')

    def answers(self):
        if self.process.poll() is not None:
            sys.exit(f'{self.process.args[0]} ended with status {self.process.returncode}')
        return os.path.exists(self.qmp_path)

    def workload(self):
        return qmp(self.qmp_path, 'query-workload')

    def stop(self):
        if self.process.poll() is None:
            try:
                qmp(self.qmp_path, 'quit')
            except (OSError, ValueError):
                self.process.terminate()
        self.process.wait()


def verify(guest):
    """The guest's own check of all its pages; the final query-workload."""
    qmp(guest.qmp_path, 'x-workload-verify')
    wait_for(lambda: not guest.workload()['verifying'], VERIFY_SECONDS, 'all pages are checked')
    return guest.workload()


def parse_arguments(argv):
    parser = argparse.ArgumentParser(prog='demo', description=__doc__.strip())
    parser.add_argument('--godwit', default=os.path.join(TOP, 'build', 'vmm', 'godwit'), help='the program')
    parser.add_argument('--memory', default='1G', help='of the guest (1G)')
    parser.add_argument('--cpus', type=int, default=2, help='virtual CPUs (2)')
    parser.add_argument('--pattern', default='hot', help='sequential, random, hot or fill (hot)')
    parser.add_argument('--rate', default='80M', help='bytes that the guest writes in a second (80M)')
    parser.add_argument('--working-set', default='256M', help='memory that it writes over and over (256M)')
    parser.add_argument('--bandwidth', default='256M', help='bytes per second for the migration (256M)')
    parser.add_argument('--uri', default='tcp:127.0.0.1:0', help='migration address (tcp:127.0.0.1:0)')
    return parser.parse_args(argv)


def main(argv):
    args = parse_arguments(argv)
    args.godwit = os.path.abspath(args.godwit)
    folder = tempfile.mkdtemp(prefix='godwit-demo-')
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    print('A guest that runs, and a place for it to go:')
    source = Guest(args, folder, 'source')
    destination = Guest(args, folder, 'destination', ('-incoming', 'defer'))
    wait_for(lambda: source.workload()['pages-written'] > 1000, START_SECONDS, 'the guest writes')
    before = source.workload()
    print(f'The guest has written {before["pages-written"]} pages.  It moves while it goes on writing:')
    tool = [sys.executable, os.path.join(TOP, 'tools', 'godwit-migrate'),
            source.qmp_path, destination.qmp_path, args.uri,
            '-p', f'max-bandwidth={args.bandwidth}', '-c', 'return-path']
    print(f'$ godwit-migrate {shlex.join(tool[2:])}')
    sys.stdout.flush()
    status = subprocess.run(tool, check=False).returncode
    if status:
        return status
    wait_for(lambda: destination.workload()['pages-written'] > before['pages-written'], START_SECONDS,
             'the guest writes on')
    info = verify(destination)
    print(f'The guest, at the destination: {info["pages-written"]} pages written, '
          f'{info["checked"]} pages checked, {info["errors"]} errors.')
    print(f'The gap it saw itself: {info["switchover-gap-ns"] / 1e6:.1f} ms.')
    if not info['verified']:
        print(f'FAILED: {info.get("first-error", "pages are wrong")}')
        return 1
    sys.stdout.flush()
    source.stop()
    destination.stop()
    print('all pages verified')
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))

# SPDX-License-Identifier: BSD-2-Clause
"""
The distribution's kernels for the Linux tests: found in the caches, downloaded and unpacked where they are
missing, never installed; and initial RAM disks with the modules that a test needs.
"""
import fcntl
import glob
import gzip
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

CACHES = pathlib.Path(os.environ.get('XDG_CACHE_HOME') or pathlib.Path.home() / '.cache') / 'godwit'
BUSYBOX = '/bin/busybox'

# What the guest needs; a kernel may have some of it built in.
MODULES = ('virtio_mmio', 'virtio_blk', 'virtio-rng', 'virtio_console')

# By the package that stands for the newest kernel.  scripts/rdma-box unpacks its own.
FOLDERS = {'linux-image-amd64': CACHES / 'rdma-box' / 'kernel',
           'linux-image-cloud-amd64': CACHES / 'cloud-kernel'}


class Missing(Exception):
    """There is no such kernel here."""


def run(words, **kind):
    return subprocess.run(words, capture_output=True, text=True, check=True, **kind).stdout


def prepare(package):
    """Unpacks the kernel that @package stands for, once for all checkouts; needs the package sources."""
    folder = FOLDERS[package]
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / 'lock', 'w', encoding='ascii') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = re.search(r'Depends: (linux-image-(\S+))', run(['apt-cache', 'depends', package]))
        if not found:
            raise Missing(f'apt-cache knows no {package}')
        if (folder / 'boot' / f'vmlinuz-{found[2]}').exists():
            return
        with tempfile.TemporaryDirectory(dir=folder) as where:
            run(['apt-get', 'download', '-qq', found[1]], cwd=where)
            run(['dpkg', '-x', glob.glob(f'{where}/*.deb')[0], str(folder)])
        run(['depmod', '-b', str(folder), found[2]])


def find(package):
    """(image, version) of the newest that prepare() has unpacked."""
    images = sorted(glob.glob(str(FOLDERS[package] / 'boot' / 'vmlinuz-*')))
    if not images:
        raise Missing(f'no {package} has been unpacked in {FOLDERS[package]}')
    return images[-1], images[-1].split('vmlinuz-')[1]


def module_files(package, version):
    """Paths of MODULES and what they need, in the order in which they can be loaded."""
    files = {}
    for module in MODULES:
        out = run(['modprobe', '-d', str(FOLDERS[package]), '-S', version, '--show-depends', module])
        lines = [line for line in out.splitlines() if line.startswith('insmod ')]
        files.update(dict.fromkeys(line.split()[1] for line in lines))
    return list(files)


def make_initrd(package, version, init, folder):
    """An initial RAM disk with busybox, the modules under /modules, and @init; returns its path."""
    root = pathlib.Path(folder) / 'initrd'
    for name in ('bin', 'dev', 'modules'):
        (root / name).mkdir(parents=True)
    shutil.copy(BUSYBOX, root / 'bin' / 'busybox')
    shutil.copy(init, root / 'init')
    (root / 'init').chmod(0o755)
    names = []
    for file in module_files(package, version):
        shutil.copy(file, root / 'modules')
        names.append(os.path.basename(file) + '\n')
    (root / 'modules' / 'order').write_text(''.join(names), encoding='ascii')
    packed = subprocess.run('find . | cpio -o -H newc --quiet', shell=True, cwd=root, capture_output=True,
                            check=True)
    path = os.path.join(folder, 'initrd.gz')
    with open(path, 'wb') as f:
        f.write(gzip.compress(packed.stdout, 1))
    return path

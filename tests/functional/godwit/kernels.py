# SPDX-License-Identifier: BSD-2-Clause
"""
The distribution's kernels for the Linux tests: found in the caches, downloaded and unpacked where they are
missing, never installed; and initial RAM disks with the modules that a test needs.
"""
import fcntl
import functools
import glob
import pathlib
import shutil

from .verifier import load_script

BUSYBOX = '/bin/busybox'

# What the guest needs; a kernel may have some of it built in.
MODULES = ('virtio_mmio', 'virtio_blk', 'virtio-rng', 'virtio_console')


class Missing(Exception):
    """There is no such kernel here."""


@functools.cache
def box():
    """scripts/rdma-box, which knows how to unpack a kernel."""
    return load_script('rdma-box')


def folder_of(package):
    """Where the kernels are that @package stands for; the usual one's is the box's."""
    if package == 'linux-image-amd64':
        return box().CACHE / 'kernel'
    return box().CACHE.parent / 'cloud-kernel'


def prepare(package):
    """Unpacks the kernel that @package stands for, once for all checkouts; needs the package sources."""
    folder = folder_of(package)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / 'lock', 'w', encoding='ascii') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            box().unpack_kernel(folder, package)
        except box().Trouble as trouble:
            raise Missing(str(trouble)) from None


def find(package):
    """(image, version) of the newest that prepare() has unpacked."""
    folder = folder_of(package)
    images = sorted(glob.glob(str(folder / 'boot' / 'vmlinuz-*')))
    if not images:
        raise Missing(f'no {package} has been unpacked in {folder}')
    return images[-1], images[-1].split('vmlinuz-')[1]


def make_initrd(package, version, init, folder):
    """An initial RAM disk with busybox, the modules under /modules, and @init; returns its path."""
    root = pathlib.Path(folder) / 'initrd'
    for name in ('bin', 'dev', 'modules'):
        (root / name).mkdir(parents=True)
    shutil.copy(BUSYBOX, root / 'bin' / 'busybox')
    shutil.copy(init, root / 'init')
    (root / 'init').chmod(0o755)
    box().add_modules(folder_of(package), version, MODULES, root / 'modules', check=True)
    path = pathlib.Path(folder) / 'initrd.gz'
    box().pack_initrd(root, path)
    return str(path)

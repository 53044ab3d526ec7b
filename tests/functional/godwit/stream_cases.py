# SPDX-License-Identifier: BSD-2-Clause
"""
What a destination insists on and what it ignores: one hand-made stream per row, and each reader's verdict.
"""
from dataclasses import dataclass

from .streams import (CONTINUE, EOS, FLUSH, HOOK, OLD_COMPRESS, PAGE, PAGES, RAM_ID, block_list, capabilities,
                      command, configuration, counted, data_page, description, eos, footer, globalstate,
                      good_memory, header, long_section, ram_end, ram_part, ram_start, sample_page,
                      stream, subsection, timer, u8, u32, u64, xbzrle_page, zero_page, FULL)

OK, FATAL = 'completed', 'failed'


@dataclass(frozen=True)
class Case:
    """
    @old and @new: verdicts of QEMU 7.2 and 11.1.  @ours: where it is stricter than 11.1's.  @memory: what
    the block holds afterwards, if the stream is good; None when it is not all given.
    """
    name: str
    stream: bytes
    old: str
    new: str
    ours: str = None
    memory: bytes = None
    judged: str = None          # verdict of verify-stream --lenient, where it is not 11.1's

    @property
    def godwit(self):
        return self.ours or self.new

    @property
    def verifier(self):
        return self.judged or self.new


def case(name, old, new, ours=None, memory=good_memory(), judged=None, **parts):
    return Case(name, stream(**parts), old, new, ours, memory, judged)


NO_BLOCKS = u64(0x004) + eos()
FULL_PART = ram_part(zero_page(0, 'm0') + b''.join(zero_page(p) for p in range(1, PAGES)))
HALF = PAGES // 2


def delta(encoded):
    """A section with an XBZRLE record for page 1; @encoded is in hex."""
    return ram_part(xbzrle_page(1, bytes.fromhex(encoded)))


def patched(page, changes):
    """sample_page(page) with bytes replaced: {offset: bytes}."""
    content = bytearray(sample_page(page))
    for offset, new in changes.items():
        content[offset:offset + len(new)] = new
    return bytes(content)


def memory_with(pages):
    """good_memory() with pages replaced: {number: content}."""
    memory = bytearray(good_memory())
    for page, content in pages.items():
        memory[page * PAGE:(page + 1) * PAGE] = content
    return bytes(memory)


CASES = (
    case('good', OK, OK),
    # ---- header and configuration ----
    case('magic', FATAL, FATAL, header=header(magic=b'QEVN')),
    case('version-2', FATAL, FATAL, header=header(version=2)),
    case('version-4', FATAL, FATAL, header=header(version=4)),
    case('version-0', FATAL, FATAL, header=header(version=0)),
    case('no-configuration', FATAL, FATAL, configuration=''),
    case('machine-longer', FATAL, FATAL, judged=OK, configuration=configuration('nonesuch')),
    case('machine-different', FATAL, FATAL, judged=OK, configuration=configuration('nine')),
    case('machine-prefix', OK, OK, configuration=configuration('no')),
    case('machine-empty', OK, OK, configuration=configuration('')),
    case('configuration-subsection-unknown', FATAL, FATAL,
         configuration=configuration(subsections=subsection('configuration/nosuch', b''))),
    case('page-bits-12', OK, OK,
         configuration=configuration(subsections=subsection('configuration/target-page-bits', u32(12)))),
    case('page-bits-14', FATAL, FATAL,
         configuration=configuration(subsections=subsection('configuration/target-page-bits', u32(14)))),
    case('capability-count-0', OK, OK, configuration=configuration(subsections=capabilities())),
    case('capability-not-validated', OK, OK, configuration=configuration(subsections=capabilities('xbzrle'))),
    case('capability-unknown', FATAL, FATAL, judged=OK,
         configuration=configuration(subsections=capabilities('nosuch'))),
    case('capability-on-only-at-source', FATAL, FATAL, judged=FATAL,
         configuration=configuration(subsections=capabilities('x-ignore-shared'))),
    case('uuid-without-local', OK, OK,
         configuration=configuration(subsections=subsection('configuration/uuid', bytes(range(16))))),
    case('configuration-twice', FATAL, FATAL, opening=configuration()),
    # ---- sections ----
    case('section-unknown', FATAL, FATAL, more=long_section(FULL, 9, 'nosuch', 1, b'')),
    case('section-instance-1', FATAL, FATAL, timer=timer(instance=1)),
    case('element-unknown-type', FATAL, FATAL, more=u8(0x42)),
    case('element-stray-footer', FATAL, FATAL, more=footer(1)),
    case('element-stray-subsection', FATAL, FATAL, more=subsection('timer/nosuch', b'')),
    case('timer-version-3', FATAL, FATAL, timer=timer(version=3)),
    case('timer-version-1', OK, OK, timer=timer(version=1)),
    case('globalstate-version-2', FATAL, FATAL,
         globalstate=long_section(FULL, 4, 'globalstate', 2, u32(8) + b'running'.ljust(100, b'\0'))),
    case('globalstate-unknown-state', FATAL, FATAL, globalstate=globalstate('dancing')),
    case('globalstate-empty-state', FATAL, FATAL, globalstate=globalstate('')),
    case('globalstate-size-0', OK, OK, globalstate=globalstate(size=0)),
    case('globalstate-size-999', OK, OK, globalstate=globalstate(size=999)),
    case('ram-version-3', FATAL, FATAL, start=ram_start(version=3)),
    case('ram-version-5', FATAL, FATAL, start=ram_start(version=5)),
    case('footer-missing', FATAL, FATAL, start=ram_start(end=b'')),
    case('footer-other-id', FATAL, FATAL, start=ram_start(end=footer(RAM_ID + 1))),
    case('footer-missing-full', FATAL, FATAL,
         timer=long_section(FULL, 0, 'timer', 2, bytes(24), end=b'')),
    case('part-of-unknown-id', FATAL, FATAL, part=ram_part(number=77)),
    case('end-of-unknown-id', FATAL, FATAL, end=ram_end(number=77)),
    case('no-timer', OK, OK, timer=''),
    case('no-globalstate', OK, OK, globalstate=''),
    case('no-ram', OK, OK, start='', part='', end='', memory=None),
    case('nothing-at-all', OK, OK, start='', part='', end='', timer='', globalstate='', memory=None),
    case('ram-without-end', OK, OK, end=''),
    case('ram-without-part', OK, OK, part='', memory=None),
    case('ram-announced-by-full', OK, OK,
         start=long_section(FULL, RAM_ID, 'ram', 4, block_list((('m0', PAGES * PAGE),)) + eos()),
         part='', end='', memory=None),
    case('devices-before-ram', OK, OK, opening=timer() + globalstate(), timer='', globalstate=''),
    # ---- commands ----
    case('command-0', FATAL, FATAL, opening=command(0)),
    case('command-12', FATAL, FATAL, opening=command(12)),
    case('command-0xffff', FATAL, FATAL, opening=command(0xffff)),
    case('ping-length-3', FATAL, FATAL, opening=command(1) + command(2, b'abc')),
    case('open-return-path-length-4', FATAL, FATAL, opening=command(1, b'abcd')),
    case('switchover-start', FATAL, OK, before_end=command(11)),
    case('switchover-start-length-1', FATAL, FATAL, before_end=command(11, b'x')),
    case('ping-without-return-path', FATAL, FATAL, opening=command(2, u32(1))),
    # ---- the end ----
    case('no-description', OK, OK, description=''),
    case('other-element-for-description', OK, OK, description=u8(0x11)),
    case('junk-description', OK, OK, description=description(text=b'{"page_size": nonsense')),
    case('trailing-bytes', OK, OK, tail=b'more of something'),
    case('no-end-of-stream', FATAL, FATAL, eof='', description=''),
    # ---- the block list ----
    case('block-unknown', FATAL, FATAL, judged=FATAL, start=ram_start((('m1', PAGES * PAGE),))),
    case('block-shorter', FATAL, FATAL, judged=OK, start=ram_start((('m0', HALF * PAGE),)),
         part=ram_part(b''.join(zero_page(p, 'm0') for p in range(HALF))), memory=None),
    case('block-longer', FATAL, FATAL, judged=OK, start=ram_start((('m0', 2 * PAGES * PAGE),)), memory=None),
    case('block-twice', OK, OK, judged=FATAL, start=ram_start((('m0', PAGES * PAGE), ('m0', PAGES * PAGE)))),
    case('no-block', OK, OK, start=ram_start(payload=NO_BLOCKS), judged=FATAL),
    case('no-memory-size', OK, OK, start=ram_start(payload=eos()), judged=FATAL),
    case('total-too-small', FATAL, FATAL,
         start=ram_start(payload=block_list((('m0', PAGES * PAGE),), total=HALF * PAGE) + eos())),
    # ---- page records ----
    case('page-at-used-length', FATAL, FATAL, part=ram_part(zero_page(PAGES, 'm0'))),
    case('page-far-outside', FATAL, FATAL, part=ram_part(data_page(1 << 40, sample_page(1), 'm0'))),
    case('page-of-unknown-block', FATAL, FATAL, part=ram_part(zero_page(0, 'm1'))),
    case('continue-without-block', FATAL, FATAL, part=ram_part(zero_page(0))),
    case('continue-in-next-section', OK, OK,
         part=ram_part(zero_page(0, 'm0'))
         + ram_part(data_page(1, sample_page(1)) + b''.join(zero_page(p) for p in range(2, PAGES)))),
    case('page-sent-again', OK, OK, part=FULL_PART + ram_part(data_page(1, sample_page(1)))),
    case('zero-page-fill-0x55', OK, FATAL, part=FULL_PART + ram_part(zero_page(1, fill=0x55)),
         memory=memory_with({1: b'\x55' * PAGE})),
    case('record-without-flags', FATAL, FATAL, part=ram_part(u64(0))),
    case('record-flag-1', FATAL, FATAL, part=ram_part(u64(1))),
    case('record-flag-0x400', FATAL, FATAL, part=ram_part(u64(0x400))),
    case('record-two-types', FATAL, FATAL, part=ram_part(u64(0x00a) + counted('m0') + bytes(PAGE))),
    case('hook', FATAL, OK, before_end=ram_part(u64(HOOK)), judged=FATAL),
    case('old-compression', FATAL, FATAL,
         before_end=ram_part(u64(OLD_COMPRESS) + counted('m0') + u32(8) + bytes(8))),
    case('multifd-flush', FATAL, OK, before_end=ram_part(u64(FLUSH))),
    case('end-word-with-address', OK, OK, end=ram_end(last=eos(0x5000 | EOS))),
    case('end-word-with-continue', OK, OK, end=ram_end(last=eos(EOS | CONTINUE))),
    # ---- xbzrle: it is decoded whether or not the capability is on ----
    case('xbzrle', OK, OK, before_end=delta('000126 0a02aabb'),
         memory=memory_with({1: patched(1, {0: b'\x26', 11: b'\xaa\xbb'})})),
    case('xbzrle-last-byte', OK, OK, before_end=delta('ff1f0126'),
         memory=memory_with({1: patched(1, {4095: b'\x26'})})),
    case('xbzrle-length-0', OK, OK, before_end=ram_part(xbzrle_page(1, b'')), judged=FATAL),
    case('xbzrle-encoding-2', FATAL, FATAL, before_end=ram_part(xbzrle_page(1, b'\0\1\x26', encoding=2))),
    case('xbzrle-length-4097', FATAL, FATAL, before_end=ram_part(xbzrle_page(1, bytes(4097)))),
    case('xbzrle-beyond-page', FATAL, FATAL, before_end=delta('ff1f020102')),
    case('xbzrle-truncated-pair', FATAL, FATAL, before_end=delta('000201')),
    case('xbzrle-empty-run', FATAL, FATAL, before_end=delta('000126050000')),
)

assert len({c.name for c in CASES}) == len(CASES)
GOOD_CASES = tuple(c for c in CASES if c.new == OK)

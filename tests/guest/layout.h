/* SPDX-License-Identifier: BSD-2-Clause */
/* Where things are in the test guest's memory; read by the assembler, too. */
#ifndef GODWIT_TESTS_GUEST_LAYOUT_H
#define GODWIT_TESTS_GUEST_LAYOUT_H

#define KERNEL_CODE 0x08
#define KERNEL_DATA 0x10
#define KERNEL_CODE32 0x18
#define USER_DATA 0x23
#define USER_CODE 0x2b
#define TASKS 0x30

#define PROCESSORS_MAX 16
#define INVALID_OPCODE 6
#define TIMER_VECTOR 32
#define LOCAL_APIC 0xfee00000

#define BOOT_STACK 0x5000

/* What the outside reads; tests/functional/godwit/guest.py knows it, too. */
#define REPORT 0x8000
#define REPORT_TICKS 0x18
#define REPORT_FATAL 0x20
#define REPORT_VECTOR 0x28
#define REPORT_DETAIL 0x30
#define REPORT_REGISTERS 0x40       /* RCX, RDX, flags at the exception */
#define REPORT_PROCESSORS 0x100     /* 128 bytes each */

#define TRAMPOLINE 0x9000
#define FIRST_DATA 0x400000         /* pages from here on are stamped */

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/* The test guest's kernel: from the PVH entry to long mode and out to user mode, where everything else runs. */

/*
 * Some hosts run user mode on the CPU but have to interpret kernel mode, and do not know every instruction
 * there.  So this is all of the kernel there is, in plain instructions; the guest proper runs with privilege
 * 3, one address space, all pages and ports its own.
 */
#include "layout.h"

    .section .note.pvh, "a", @note
    .long 4, 4, 18
    .asciz "Xen"
    .long start32

    .text
    .code32
    .globl start32
start32:
    mov $BOOT_STACK, %esp
    mov %ebx, start_info
    lgdtl gdt_pointer
    ljmp $KERNEL_CODE32, $1f
1:  mov $KERNEL_DATA, %eax
    mov %eax, %ds
    mov %eax, %es
    mov %eax, %ss
    /* 4 GiB one to one, user pages of 2 MiB. */
    movl $(page_dirs + 7), page_dir_pointers
    movl $(page_dirs + 0x1000 + 7), page_dir_pointers + 8
    movl $(page_dirs + 0x2000 + 7), page_dir_pointers + 16
    movl $(page_dirs + 0x3000 + 7), page_dir_pointers + 24
    movl $(page_dir_pointers + 7), page_map
    mov $0x87, %eax
    mov $page_dirs, %edi
2:  mov %eax, (%edi)
    add $8, %edi
    add $0x200000, %eax
    jnc 2b
    call idt_fill
    mov $0, %ebp                /* the processor's number */
    jmp enter_long_mode

/* Gates for vectors 0-63: 16 bytes each, their stubs 16 bytes apart. */
idt_fill:
    mov $idt, %edi
    mov $stubs, %edx
    mov $64, %ecx
1:  mov %dx, (%edi)
    movw $KERNEL_CODE, 2(%edi)
    movw $0x8e00, 4(%edi)
    mov %edx, %eax
    shr $16, %eax
    mov %ax, 6(%edi)
    add $16, %edi
    add $16, %edx
    dec %ecx
    jnz 1b
    ret

/* Protected mode, paging off; EBP: the processor. */
enter_long_mode:
    mov %cr4, %eax
    or $0x620, %eax             /* PAE, SSE */
    mov %eax, %cr4
    mov $page_map, %eax
    mov %eax, %cr3
    mov $0xc0000080, %ecx       /* EFER: long mode */
    rdmsr
    or $0x100, %eax
    wrmsr
    mov %cr0, %eax
    and $0xfffffffb, %eax       /* not EM */
    or $0x80000022, %eax        /* PG, NE, MP */
    mov %eax, %cr0
    ljmp $KERNEL_CODE, $1f
    .code64
1:  mov $KERNEL_DATA, %eax
    mov %eax, %ds
    mov %eax, %es
    mov %eax, %ss
    lidt idt_pointer
    /* A task state of 256 bytes for each: RSP0, and zeros from byte 104 on that allow ports up to 0x4af. */
    mov %ebp, %eax
    shl $12, %eax
    lea kernel_stacks + 0x1000(%rax), %rcx
    mov %ebp, %eax
    shl $8, %eax
    lea task_states(%rax), %rdx
    mov %rcx, 4(%rdx)
    movw $104, 102(%rdx)
    mov %rcx, %rsp
    mov %ebp, %eax
    shl $4, %eax
    lea gdt_tasks(%rax), %rdi
    movw $0xff, (%rdi)
    mov %dx, 2(%rdi)
    shr $16, %rdx
    mov %dl, 4(%rdi)
    movb $0x89, 5(%rdi)
    mov %dh, 7(%rdi)
    add $TASKS, %eax
    ltr %ax
    mov %ebp, %edi
    mov %ebp, %eax
    shl $14, %eax
    lea user_stacks + 0x4000 - 8(%rax), %rcx
    pushq $USER_DATA
    pushq %rcx
    pushq $0x202                /* interrupts on */
    pushq $USER_CODE
    pushq $guest_main
    iretq

/* UD2, the way into the kernel that needs no set-up.  RDI: what.  0: RDMSR of ESI to RAX; 1: WRMSR of ESI from RDX; 2, 3: read, write debug registers 0-3. */
kernel_call:
    addq $2, (%rsp)             /* behind the UD2 */
    cmp $1, %edi
    jb 1f
    je 2f
    cmp $3, %edi
    je 3f
    mov %db0, %rax
    mov %db1, %rcx
    xor %rcx, %rax
    mov %db2, %rcx
    xor %rcx, %rax
    mov %db3, %rcx
    xor %rcx, %rax
    jmp 9f
1:  mov %esi, %ecx
    rdmsr
    shl $32, %rdx
    or %rdx, %rax
    jmp 9f
2:  mov %esi, %ecx
    mov %edx, %eax
    shr $32, %rdx
    wrmsr
    jmp 9f
3:  mov %rsi, %db0
    shl $1, %rsi
    mov %rsi, %db1
    shl $1, %rsi
    mov %rsi, %db2
    shl $1, %rsi
    mov %rsi, %db3
9:  iretq

/* Vectors 0-31: the report says which and where, and the processor stops.  32: the timer. */
    .balign 16
stubs:
    vector = 0
    .rept 64
    .balign 16
    .if vector == TIMER_VECTOR
    jmp timer
    .elseif vector == INVALID_OPCODE
    jmp kernel_call
    .else
    push $vector
    jmp exception
    .endif
    vector = vector + 1
    .endr

timer:
    push %rax
    incq REPORT + REPORT_TICKS
    mov $LOCAL_APIC + 0xb0, %eax
    movl $0, (%rax)
    pop %rax
    iretq

exception:
    mov %rcx, REPORT + REPORT_REGISTERS
    mov %rdx, REPORT + REPORT_REGISTERS + 8
    mov 32(%rsp), %rax
    mov %rax, REPORT + REPORT_REGISTERS + 16
    mov (%rsp), %rax
    mov %rax, REPORT + REPORT_VECTOR
    mov 8(%rsp), %rax           /* the error code, or RIP where there is none */
    mov %rax, REPORT + REPORT_DETAIL
    mov 16(%rsp), %rax
    mov %rax, REPORT + REPORT_DETAIL + 8
    incq REPORT + REPORT_FATAL
1:  hlt
    jmp 1b

/* Copied to TRAMPOLINE, where a processor begins in real mode. */
    .globl trampoline, trampoline_end
trampoline:
    .code16
    cli
    lgdtl %cs:(trampoline_gdt - trampoline)
    mov %cr0, %eax
    or $1, %eax
    mov %eax, %cr0
    ljmpl $KERNEL_CODE32, $trampoline32
    .balign 8
trampoline_gdt:
    .word gdt_end - gdt - 1
    .long gdt
trampoline_end:

    .code32
trampoline32:
    mov $KERNEL_DATA, %eax
    mov %eax, %ds
    mov %eax, %es
    mov %eax, %ss
    mov next_processor, %ebp
    jmp enter_long_mode

    .data
    .balign 16
gdt:
    .quad 0
    .quad 0x00af9b000000ffff    /* 0x08 kernel code, 64 bit */
    .quad 0x00cf93000000ffff    /* 0x10 kernel data */
    .quad 0x00cf9b000000ffff    /* 0x18 kernel code, 32 bit */
    .quad 0x00cff3000000ffff    /* 0x20 user data */
    .quad 0x00affb000000ffff    /* 0x28 user code, 64 bit */
gdt_tasks:
    .fill 2 * PROCESSORS_MAX, 8, 0
gdt_end:
gdt_pointer:
    .word gdt_end - gdt - 1
    .long gdt
    .balign 16
idt_pointer:
    .word 64 * 16 - 1
    .quad idt
    .globl start_info, next_processor
    .balign 8
start_info:
    .quad 0
next_processor:
    .quad 0

    .bss
    .balign 4096
page_map:
    .skip 0x1000
page_dir_pointers:
    .skip 0x1000
page_dirs:
    .skip 0x4000
idt:
    .skip 0x1000
kernel_stacks:
    .skip 0x1000 * PROCESSORS_MAX
user_stacks:
    .skip 0x4000 * PROCESSORS_MAX
task_states:
    .skip 256 * PROCESSORS_MAX

    .section .note.GNU-stack, "", @progbits

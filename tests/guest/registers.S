/* SPDX-License-Identifier: BSD-2-Clause */
/* keep_registers(seed, turns): every general and XMM register holds its own value while time passes. */

/*
 * Register n holds seed + n.  RCX counts, RSP is the stack, RAX is used to compare.  The result is 0, or the
 * number of the first register that is not what it was: 1-13 general ones, 16-30 XMM0-XMM14.
 */
    .text
    .globl keep_registers
keep_registers:
    push %rbx
    push %rbp
    push %r12
    push %r13
    push %r14
    push %r15
    push %rdi                   /* the seed is at (%rsp) */
    mov %rsi, %rcx
    lea 1(%rdi), %rbx
    lea 2(%rdi), %rdx
    lea 3(%rdi), %rsi
    lea 5(%rdi), %rbp
    lea 6(%rdi), %r8
    lea 7(%rdi), %r9
    lea 8(%rdi), %r10
    lea 9(%rdi), %r11
    lea 10(%rdi), %r12
    lea 11(%rdi), %r13
    lea 12(%rdi), %r14
    lea 13(%rdi), %r15
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14
    lea 16+\n(%rdi), %rax
    movq %rax, %xmm\n
    punpcklqdq %xmm\n, %xmm\n
    .endr
    lea 4(%rdi), %rdi

1:  pause
    dec %rcx
    jnz 1b

    .macro same number, register
    mov (%rsp), %rax
    add $\number, %rax
    cmp %rax, \register
    mov $\number, %eax
    jne 9f
    .endm
    same 1, %rbx
    same 2, %rdx
    same 3, %rsi
    same 4, %rdi
    same 5, %rbp
    same 6, %r8
    same 7, %r9
    same 8, %r10
    same 9, %r11
    same 10, %r12
    same 11, %r13
    same 12, %r14
    same 13, %r15
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14
    movq %xmm\n, %rdx
    same 16+\n, %rdx
    psrldq $8, %xmm\n
    movq %xmm\n, %rdx
    same 16+\n, %rdx
    .endr
    xor %eax, %eax
9:  pop %rdi
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbp
    pop %rbx
    ret

    .section .note.GNU-stack, "", @progbits

/* SPDX-License-Identifier: BSD-2-Clause */
/* Numbers of HMP commands as expressions: a sum of logical terms of products. */

/*
 *     sum     = logic { (+ | -) logic }
 *     logic   = product { (& | ^ | |) product }
 *     product = unary { (* | / | %) unary }
 *     unary   = [+ - ~] unary | ( sum ) | 'c' | number
 *
 * So & binds tighter than +, as in the monitors that people know.  All in 64 bits, wrapping.
 */
#include "hmp.h"

#include "util/error.h"

#include <errno.h>
#include <string.h>

/* Brackets and signs inside each other. */
#define MAX_DEPTH 64

typedef struct Expression {
    const char *p;
    unsigned depth;
    GError **errp;
} Expression;

static bool sum(Expression *e, uint64_t *value);

static bool fail(Expression *e, const char *fmt, ...) G_GNUC_PRINTF(2, 3);
static bool fail(Expression *e, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    g_autofree char *text = g_strdup_vprintf(fmt, ap);
    va_end(ap);
    g_set_error_literal(e->errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, text);
    return false;
}

static void skip_blanks(Expression *e)
{
    while (g_ascii_isspace(*e->p)) {
        e->p++;
    }
}

/* The next character if it is one of @set, which it is then moved past; else 0. */
static char take_operator(Expression *e, const char *set)
{
    skip_blanks(e);
    return *e->p && strchr(set, *e->p) ? *e->p++ : '\0';
}

static bool character(Expression *e, uint64_t *value)
{
    char c = e->p[1];

    if (!c || e->p[2] != '\'') {
        return fail(e, "missing terminating ' character");
    }
    *value = (uint8_t)c;
    e->p += 3;
    return true;
}

static bool number(Expression *e, uint64_t *value)
{
    char *end;

    if (!*e->p) {
        return fail(e, "unexpected end of expression");
    }
    if (!g_ascii_isdigit(*e->p)) {
        return fail(e, "invalid char '%c' in expression", *e->p);
    }
    errno = 0;
    *value = g_ascii_strtoull(e->p, &end, 0);
    if (errno == ERANGE) {
        return fail(e, "number too large");
    }
    e->p = end;
    return true;
}

static bool bracket(Expression *e, uint64_t *value)
{
    if (!sum(e, value)) {
        return false;
    }
    return take_operator(e, ")") || fail(e, "')' expected");
}

static bool unary_operand(Expression *e, uint64_t *value);

static bool unary(Expression *e, uint64_t *value)
{
    if (++e->depth > MAX_DEPTH) {
        return fail(e, "expression is too deep");
    }
    bool ok = unary_operand(e, value);
    e->depth--;
    return ok;
}

static bool unary_operand(Expression *e, uint64_t *value)
{
    switch (take_operator(e, "+-~(")) {
    case '+':
        return unary(e, value);
    case '-':
        if (!unary(e, value)) {
            return false;
        }
        *value = -*value;
        return true;
    case '~':
        if (!unary(e, value)) {
            return false;
        }
        *value = ~*value;
        return true;
    case '(':
        return bracket(e, value);
    default:
        break;
    }
    if (*e->p == '\'') {
        return character(e, value);
    }
    return *e->p == '$' ? fail(e, "unknown register") : number(e, value);
}

static bool product(Expression *e, uint64_t *value)
{
    uint64_t right;
    char op;

    if (!unary(e, value)) {
        return false;
    }
    while ((op = take_operator(e, "*/%"))) {
        if (!unary(e, &right)) {
            return false;
        }
        if (op == '*') {
            *value *= right;
        } else if (right == 0) {
            return fail(e, "division by zero");
        } else {
            *value = op == '/' ? *value / right : *value % right;
        }
    }
    return true;
}

static bool logic(Expression *e, uint64_t *value)
{
    uint64_t right;
    char op;

    if (!product(e, value)) {
        return false;
    }
    while ((op = take_operator(e, "&|^"))) {
        if (!product(e, &right)) {
            return false;
        }
        *value = op == '&' ? *value & right : op == '|' ? *value | right : *value ^ right;
    }
    return true;
}

static bool sum(Expression *e, uint64_t *value)
{
    uint64_t right;
    char op;

    if (!logic(e, value)) {
        return false;
    }
    while ((op = take_operator(e, "+-"))) {
        if (!logic(e, &right)) {
            return false;
        }
        *value = op == '+' ? *value + right : *value - right;
    }
    return true;
}

bool hmp_parse_expression(const char **p, int64_t *value, GError **errp)
{
    Expression e = { .p = *p, .errp = errp };
    uint64_t result;

    if (!sum(&e, &result)) {
        return false;
    }
    *p = e.p;
    *value = (int64_t)result;
    return true;
}

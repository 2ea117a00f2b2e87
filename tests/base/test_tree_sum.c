/* SPDX-License-Identifier: Apache-2.0 */
/* Sums in a tree: the shape, and that equal blocks are subtrees of it. */
#include "runtime/base/tree_sum.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

enum { MOST = 70 };

/* Thirds of different sizes: their sums depend on the order. */
static double number(int i) { return (double)(i % 7 + 1) / 3 * (i % 5 ? 1 : 1e9); }

/* The definition: the left part is the largest power of two of terms that leaves one. */
static double tree(int first, int count)
{
    int left = 1;
    if (count == 1) return number(first);
    while (left * 2 < count) left *= 2;
    return tree(first, left) + tree(first + left, count - left);
}

static double add_up(int first, int count)
{
    double waiting[PARE_TREE_LEVELS], sum = 0;
    for (int i = 0; i < count; i++) {
        const pare_tree_term term = pare_tree_term_of(i, count);
        assert_true(term.to < pare_tree_levels(count));
        assert_int_equal(term.to < 0, i == count - 1);
        sum = pare_tree_add(waiting, term, number(first + i));
    }
    return sum;
}

static void sums_are_trees(void **state)
{
    int other = 0;
    (void)state;
    for (int count = 1; count <= MOST; count++) {
        double in_order = 0;
        for (int i = 0; i < count; i++) in_order += number(i);
        assert_true(add_up(0, count) == tree(0, count));
        other += in_order != tree(0, count);
    }
    assert_true(other > 10);
}

static void blocks_are_subtrees(void **state)
{
    (void)state;
    for (int each = 1; each <= 16; each *= 2)
        for (int blocks = 1; blocks <= 5; blocks++) {
            double waiting[PARE_TREE_LEVELS], sum = 0;
            for (int i = 0; i < blocks; i++)
                sum = pare_tree_add(waiting, pare_tree_term_of(i, blocks), add_up(i * each, each));
            assert_true(sum == tree(0, each * blocks));
        }
}

static void levels_are_as_few_as_it_takes(void **state)
{
    static const int levels[][2] = {{1, 0}, {2, 1}, {3, 2}, {4, 2}, {5, 3}, {8, 3}, {9, 4}};
    (void)state;
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
        assert_int_equal(pare_tree_levels(levels[i][0]), levels[i][1]);
    assert_int_equal(pare_tree_levels(INT32_MAX), PARE_TREE_LEVELS);
    assert_int_equal(pare_tree_term_of(INT32_MAX - 3, INT32_MAX).to, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums_are_trees),
                                       cmocka_unit_test(blocks_are_subtrees),
                                       cmocka_unit_test(levels_are_as_few_as_it_takes)};
    return cmocka_run_group_tests_name("base/tree_sum", tests, NULL, NULL);
}

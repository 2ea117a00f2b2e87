/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of requests' bodies: what is used again, and what is pinned. */
#include "tools/serve/bodies.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* Memory is used again where it fits, and as much of it is kept as may be, the last. */
static void memory_of_bodies(void **state)
{
    (void)state;
    enum { SIZE = 100 << 10 };
    pare_bodies all;
    pare_body *body[4];
    pare_bodies_init(&all, 3 * SIZE);
    for (int i = 0; i < 4; i++) {
        body[i] = pare_bodies_get(&all, SIZE);
        assert_non_null(body[i]);
        assert_int_equal((uintptr_t)body[i]->data % PARE_BODY_PAGE, 0);
        memset(body[i]->data, i, body[i]->room);
    }
    for (int i = 0; i < 4; i++) pare_bodies_put(body[i]);
    assert_int_equal(all.kept, 3 * SIZE);
    pare_body *small = pare_bodies_get(&all, 64), *large = pare_bodies_get(&all, 4 * SIZE),
              *half = pare_bodies_get(&all, SIZE / 3);
    assert_int_equal(all.kept, 3 * SIZE);
    for (int i = 3; i > 0; i--) {
        pare_body *again = pare_bodies_get(&all, SIZE - 1);
        assert_ptr_equal(again, body[i]);
        pare_bodies_put(NULL);
        body[i] = again;
    }
    assert_int_equal(all.kept, 0);
    for (int i = 1; i < 4; i++) pare_bodies_put(body[i]);
    pare_bodies_put(small);
    pare_bodies_put(large);
    pare_bodies_put(half);
    assert_true(all.kept <= 3 * SIZE);
    pare_bodies_free(&all);
}

typedef struct pinner {
    size_t bytes[8]; /* of what is pinned, in the order of pinning; 0: it went */
    void *memory[8];
    int count;
    bool is_busy; /* nothing is pinned or unpinned */
} pinner;

static void *pin(void *user, size_t bytes)
{
    pinner *p = user;
    if (p->is_busy || p->count == 8) return NULL;
    p->bytes[p->count] = bytes;
    return p->memory[p->count++] = malloc(bytes);
}

static bool unpin(void *user, void *memory)
{
    pinner *p = user;
    for (int i = 0; i < p->count && !p->is_busy; i++)
        if (p->memory[i] == memory) p->bytes[i] = 0;
    if (!p->is_busy) free(memory);
    return !p->is_busy;
}

/* Pinned memory that no one uses makes room for what has another size; one body has an eighth. */
static void memory_that_is_pinned(void **state)
{
    (void)state;
    enum { STEP = 256 << 10, MOST = 64 * STEP };
    pinner p = {0};
    pare_bodies all;
    pare_body *large[4];
    pare_bodies_init_pinned(&all, MOST, pin, unpin, &p);
    assert_null(pare_bodies_get(&all, MOST / 8 + 1));
    assert_null(pare_bodies_get(&all, PARE_BODY_LARGE - 1));
    for (int i = 0; i < 4; i++) assert_non_null(large[i] = pare_bodies_get(&all, MOST / 8));
    all.most = MOST / 2 + STEP - 1; /* of which all but a part of a step is pinned */
    assert_null(pare_bodies_get(&all, STEP / 4));
    pare_bodies_put(large[2]);
    pare_bodies_put(large[0]);
    p.is_busy = true;
    assert_null(pare_bodies_get(&all, STEP / 4));
    assert_int_equal(all.kept, MOST / 2);
    p.is_busy = false;
    pare_body *small = pare_bodies_get(&all, STEP / 4);
    assert_non_null(small);
    assert_int_equal(p.bytes[0] + p.bytes[2], MOST / 8); /* one went */
    assert_int_equal(all.kept, MOST / 2 - MOST / 8 + STEP);
    pare_bodies_put(small);
    pare_bodies_put(large[1]);
    pare_bodies_put(large[3]);
    pare_bodies_free(&all);
    for (int i = 0; i < p.count; i++) assert_int_equal(p.bytes[i], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_of_bodies),
        cmocka_unit_test(memory_that_is_pinned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

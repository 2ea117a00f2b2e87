/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are cut, damaged or hostile: a status and a message each time, and no crash. */
#include "formats/file.h"
#include "formats/onnx.h"
#include "tests/formats/bytes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

typedef struct rig {
    pare_ctx ctx;
    char folder[64], path[96];
    bytes file;
} rig;

/* A model with something of everything: typed and raw numbers, strings, a subgraph, a sparse
   tensor, metadata, unknown fields. */
static bytes rich_model(void)
{
    bytes graph = {.size = 0}, t, node, attr = {.size = 0}, sub = {.size = 0}, sparse = {.size = 0};
    put_text(&graph, 2, "g");
    t = make_tensor("w", 1, 2, (int64_t[]){1, 2});
    put_block(&t, 9, (float[]){1, 2}, 8);
    put_bytes(&graph, 5, &t);
    t = make_tensor("i", 7, 1, (int64_t[]){2});
    put_block(&t, 7, "\x81\x01\x7f", 3);
    put_bytes(&graph, 5, &t);
    t = make_tensor("text", 8, 1, (int64_t[]){1});
    put_text(&t, 6, "word");
    put_bytes(&graph, 5, &t);
    t = make_tensor("sv", 1, 1, (int64_t[]){1});
    put_float(&t, 4, 5);
    put_bytes(&sparse, 1, &t);
    t = make_tensor("", 7, 1, (int64_t[]){1});
    put_int(&t, 7, 3);
    put_bytes(&sparse, 2, &t);
    put_int(&sparse, 3, 6);
    put_bytes(&graph, 15, &sparse);
    bytes info = make_info("x", 1, 2, (int64_t[]){-1, 3});
    put_bytes(&graph, 11, &info);
    put_bytes(&graph, 13, &info);
    info = make_info("y", 1, 0, NULL);
    put_bytes(&graph, 12, &info);
    node = make_node("Neg", "inner", "x", "o");
    put_bytes(&sub, 1, &node);
    info = make_info("o", 1, 0, NULL);
    put_bytes(&sub, 12, &info);
    put_text(&attr, 1, "body");
    put_bytes(&attr, 6, &sub);
    put_int(&attr, 20, 5);
    node = make_node("If", "n", "x w - i", "y");
    put_bytes(&node, 5, &attr);
    attr.size = 0;
    put_text(&attr, 1, "list");
    put_text(&attr, 9, "a");
    put_int(&attr, 20, 8);
    put_int(&attr, 77, 5);
    put_bytes(&node, 5, &attr);
    put_bytes(&graph, 1, &node);
    return make_model(&graph);
}

static int setup(void **state)
{
    rig *r = calloc(1, sizeof *r);
    pare_ctx_init(&r->ctx);
    strcpy(r->folder, "/tmp/pare-onnx-XXXXXX");
    if (!mkdtemp(r->folder)) return -1;
    snprintf(r->path, sizeof r->path, "%s/m.onnx", r->folder);
    r->file = rich_model();
    *state = r;
    return 0;
}

static int teardown(void **state)
{
    rig *r = *state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", r->folder);
    int failed = system(command);
    free(r);
    return failed;
}

/* Reads size bytes from a block of exactly that size, so that the sanitizer sees every overrun. */
static pare_status read_exactly(rig *r, const uint8_t *data, size_t size)
{
    pare_model *m = NULL;
    uint8_t *copy = malloc(size ? size : 1);
    memcpy(copy, data, size);
    pare_ctx_clear(&r->ctx);
    pare_status st = pare_onnx_read_memory(&r->ctx, &m, copy, size, NULL);
    if (st == PARE_OK)
        pare_model_free(m);
    else
        assert_string_not_equal(r->ctx.message, "");
    free(copy);
    return st;
}

/* The graph is the last field, so that every cut but one damages it. */
static void every_cut_is_refused(void **state)
{
    rig *r = *state;
    assert_int_equal(read_exactly(r, r->file.data, r->file.size), PARE_OK);
    for (size_t cut = 0; cut < r->file.size; cut++)
        assert_int_not_equal(read_exactly(r, r->file.data, cut), PARE_OK);
}

static void damaged_bytes_never_crash(void **state)
{
    rig *r = *state;
    uint64_t random = 88172645463325252u;
    int refused = 0;
    for (int round = 0; round < 20000; round++) {
        bytes copy = r->file;
        for (int k = 0; k <= round % 4; k++) {
            random ^= random << 13; /* xorshift, Marsaglia 2003 */
            random ^= random >> 7;
            random ^= random << 17;
            copy.data[random % copy.size] = (uint8_t)(random >> 40);
        }
        refused += read_exactly(r, copy.data, copy.size) != PARE_OK;
    }
    assert_in_range(refused, 1000, 19999);
}

static void every_allocation_may_fail(void **state)
{
    rig *r = *state;
    long n = 0;
    for (;; n++) {
        r->ctx.fail_after = n;
        pare_status st = read_exactly(r, r->file.data, r->file.size);
        if (st == PARE_OK) break;
        assert_int_equal(st, PARE_MEMORY);
        assert_non_null(strstr(r->ctx.message, "out of memory"));
    }
    assert_true(n > 5);
}

/* --- external data --- */

static pare_status read_external(rig *r, const char *location, const char *offset,
                                 const char *length)
{
    bytes graph = {.size = 0}, t = make_tensor("w", 2, 1, (int64_t[]){8});
    const char *const keys[] = {"location", "offset", "length"}, *const values[] = {location,
                                                                                    offset, length};
    for (int i = 0; i < 3; i++) {
        bytes pair = {.size = 0};
        if (!values[i]) continue;
        put_text(&pair, 1, keys[i]);
        put_text(&pair, 2, values[i]);
        put_bytes(&t, 13, &pair);
    }
    put_int(&t, 14, 1);
    put_bytes(&graph, 5, &t);
    r->file = make_model(&graph);
    pare_model *m = NULL;
    pare_ctx_clear(&r->ctx);
    assert_int_equal(pare_file_write(&r->ctx, r->path, r->file.data, r->file.size), PARE_OK);
    pare_status st = pare_onnx_read(&r->ctx, &m, r->path);
    if (st == PARE_OK) {
        assert_memory_equal(pare_graph_find(m->graph, "w")->data->data, "01234567", 8);
        pare_model_free(m);
    }
    return st;
}

static void assert_message(rig *r, const char *words)
{
    char text[256];
    snprintf(text, sizeof text, "m.onnx|tensor 'w'|%s", words);
    for (char *save, *word = strtok_r(text, "|", &save); word; word = strtok_r(NULL, "|", &save))
        if (!strstr(r->ctx.message, word)) fail_msg("no '%s' in: %s", word, r->ctx.message);
}

static void external_data_stays_in_the_folder(void **state)
{
    rig *r = *state;
    char outside[96], inside[128], link[128], absolute[128];
    snprintf(outside, sizeof outside, "%s/outside", r->folder);
    snprintf(inside, sizeof inside, "%s/model/w.bin", r->folder);
    snprintf(link, sizeof link, "%s/model/link.bin", r->folder);
    snprintf(absolute, sizeof absolute, "%s", inside);
    snprintf(r->path, sizeof r->path, "%s/model", r->folder);
    char command[256];
    snprintf(command, sizeof command, "mkdir -p %s/model/sub %s/model2", r->folder, r->folder);
    assert_int_equal(system(command), 0);
    snprintf(r->path, sizeof r->path, "%s/model/m.onnx", r->folder);
    assert_int_equal(pare_file_write(&r->ctx, outside, "01234567", 8), PARE_OK);
    assert_int_equal(pare_file_write(&r->ctx, inside, "..01234567", 10), PARE_OK);
    assert_int_equal(symlink(outside, link), 0);

    assert_int_equal(read_external(r, "w.bin", "2", "8"), PARE_OK);
    assert_int_equal(read_external(r, "./sub/../w.bin", "2", "8"), PARE_INPUT);
    assert_message(r, "'..' is not allowed");
    assert_int_equal(read_external(r, "sub/..", NULL, NULL), PARE_INPUT);
    assert_message(r, "'..' is not allowed");
    assert_int_equal(read_external(r, absolute, "2", "8"), PARE_INPUT);
    assert_message(r, "absolute path is not allowed|own folder");
    assert_int_equal(read_external(r, "link.bin", "0", "8"), PARE_INPUT);
    assert_message(r, "link that leads out of the model's folder");
    assert_int_equal(unlink(link), 0);
    snprintf(command, sizeof command, "%s/model2",
             r->folder); /* a folder whose name begins alike */
    assert_int_equal(symlink(command, link), 0);
    assert_int_equal(read_external(r, "link.bin", "0", "8"), PARE_INPUT);
    assert_message(r, "link that leads out");
    assert_int_equal(unlink(link), 0);
    assert_int_equal(symlink("w.bin", link), 0);
    assert_int_equal(read_external(r, "link.bin", "2", NULL), PARE_OK);
    assert_int_equal(read_external(r, "gone.bin", "0", "8"), PARE_IO);
    assert_message(r, "gone.bin|is not there");
    assert_int_equal(read_external(r, "sub", "0", "8"), PARE_IO);
    assert_message(r, "is a folder");
    assert_int_equal(read_external(r, NULL, "0", "8"), PARE_INPUT);
    assert_message(r, "no location");
}

static void external_sizes_are_checked(void **state)
{
    rig *r = *state;
    char data[128];
    snprintf(data, sizeof data, "%s/w.bin", r->folder);
    assert_int_equal(pare_file_write(&r->ctx, data, "..01234567", 10), PARE_OK);
    assert_int_equal(read_external(r, "w.bin", "2", NULL), PARE_OK);
    assert_int_equal(read_external(r, "w.bin", "3", "8"), PARE_INPUT);
    assert_message(r, "needs bytes 3 to 11 of 'w.bin', which has 10|too short");
    assert_int_equal(read_external(r, "w.bin", "2", "7"), PARE_INPUT);
    assert_message(r, "has 7 bytes, uint8 [8] needs 8");
    const char *const odd[] = {"-2", "18446744073709551615", "99999999999999999999", "2x", "",
                               " 2"};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        assert_int_equal(read_external(r, "w.bin", odd[i], "8"), PARE_INPUT);
        assert_message(r, "not both numbers");
    }
    assert_int_equal(read_external(r, "w.bin", "9223372036854775000", "8"), PARE_INPUT);
    assert_message(r, "too short");
}

/* --- every problem at once --- */

static void note(void *user, const char *problem)
{
    bytes *all = user;
    put_block(all, 1, problem, strlen(problem));
}

static void all_problems_are_reported(void **state)
{
    rig *r = *state;
    bytes graph = {.size = 0}, t = make_tensor("w", 1, 1, (int64_t[]){3}), all = {.size = 0};
    put_block(&t, 9, "1234", 4);
    put_bytes(&graph, 5, &t);
    put_bytes(&graph, 5, &t);
    t = make_tensor("q", 77, 1, (int64_t[]){3});
    put_bytes(&graph, 5, &t);
    bytes node = make_node("A", "one", "w", "y");
    put_bytes(&graph, 1, &node);
    node = make_node("B", "two", "w", "y");
    put_bytes(&graph, 1, &node);
    r->file = make_model(&graph);
    assert_int_equal(pare_file_write(&r->ctx, r->path, r->file.data, r->file.size), PARE_OK);
    pare_model *m;
    assert_int_equal(pare_onnx_read_all(&r->ctx, &m, r->path, note, &all), PARE_OK);
    assert_string_equal(r->ctx.message, "");
    assert_int_equal(m->graph->node_count, 2);
    pare_model_free(m);
    all.data[all.size] = 0;
    for (size_t i = 0; i < all.size; i++)
        if (!all.data[i]) all.data[i] = ' ';
    const char *const words[] = {"tensor 'w': it holds 4 bytes, float [3] needs 12",
                                 "two initializers are called 'w'", "data type 77",
                                 "node 'two' (B): its output 'y' is defined twice"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strstr((char *)all.data, words[i]))
            fail_msg("no '%s' in %s", words[i], (char *)all.data);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_cut_is_refused),       TEST(damaged_bytes_never_crash),
        TEST(every_allocation_may_fail),  TEST(external_data_stays_in_the_folder),
        TEST(external_sizes_are_checked), TEST(all_problems_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

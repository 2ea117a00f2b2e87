/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/file.h"
#include "formats/onnx.h"
#include "tests/formats/bytes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

typedef struct rig {
    pare_ctx ctx;
    char folder[64], path[96], data_path[96];
    pare_model *model, *back;
} rig;

static int setup(void **state)
{
    rig *r = calloc(1, sizeof *r);
    pare_ctx_init(&r->ctx);
    strcpy(r->folder, "/tmp/pare-onnx-XXXXXX");
    if (!mkdtemp(r->folder)) return -1;
    snprintf(r->path, sizeof r->path, "%s/m.onnx", r->folder);
    snprintf(r->data_path, sizeof r->data_path, "%s/n.onnx", r->folder);
    *state = r;
    return pare_model_new(&r->ctx, &r->model, "made.onnx");
}

static int teardown(void **state)
{
    rig *r = *state;
    char command[128];
    pare_model_free(r->model);
    pare_model_free(r->back);
    snprintf(command, sizeof command, "rm -rf %s", r->folder);
    int failed = system(command);
    free(r);
    return failed;
}

#define OK(call) assert_int_equal((call), PARE_OK)

/* x [batch,4] -> Relu -> y, with initializers w (f32 [2,300]) and s (s64 [2]) that nothing reads.
 */
static void make_model_by_hand(rig *r)
{
    pare_model *m = r->model;
    pare_value *x, *y, *v;
    float w[600];
    for (int i = 0; i < 600; i++) w[i] = (float)i / 7;
    m->ir_version = 8;
    m->graph->name = "hand";
    OK(pare_model_set_opset(m, "", 17));
    OK(pare_value_new(m->graph, &x, "x"));
    OK(pare_value_new(m->graph, &y, "y"));
    pare_shape shape = {.rank = 2, .dim = {-1, 4}, .name = {"batch"}};
    pare_value_set_type(x, PARE_f32, &shape);
    pare_value_set_type(y, PARE_f32, NULL);
    x->is_input = y->is_output = true;
    OK(pare_values_add(m->graph, &m->graph->in, x));
    OK(pare_values_add(m->graph, &m->graph->out, y));
    pare_node *n;
    OK(pare_node_new(m->graph, &n, 0, "Relu", "", "relu", &x, 1, &y, 1));
    OK(pare_node_set_ints(n, "axes", (int64_t[]){1, -1}, 2));
    OK(pare_node_set_float(n, "alpha", 0.5f));
    OK(pare_node_set_int(n, "zero", 0));
    OK(pare_node_set_string(n, "mode", "linear"));
    OK(pare_init_new(m->graph, &v, "w", PARE_f32, 2, (int64_t[]){2, 300}, w));
    OK(pare_init_new(m->graph, &v, "s", PARE_s64, 1, (int64_t[]){2}, (int64_t[]){-1, 7}));
}

static void write_and_read(rig *r, bool external)
{
    pare_onnx_write_options options = {.external_data = external};
    OK(pare_onnx_write(&r->ctx, r->model, r->path, &options));
    OK(pare_onnx_read(&r->ctx, &r->back, r->path));
}

/* Sets data_path to the file an external tensor is in: m.onnx.<8 hex digits>.data. */
static void data_of(rig *r, const pare_tensor *t)
{
    const char *location = t->external.item[0].value;
    assert_int_equal(strlen(location), strlen("m.onnx.01234567.data"));
    assert_int_equal(strncmp(location, "m.onnx.", 7), 0);
    assert_int_equal(strspn(location + 7, "0123456789abcdef"), 8);
    assert_string_equal(location + 15, ".data");
    snprintf(r->data_path, sizeof r->data_path, "%s/%s", r->folder, location);
}

static void assert_same(rig *r)
{
    char text[256];
    const char *difference = pare_model_compare(r->model, r->back, text, sizeof text);
    if (difference) fail_msg("%s", difference);
}

static void a_model_made_here_comes_back(void **state)
{
    rig *r = *state;
    make_model_by_hand(r);
    write_and_read(r, false);
    assert_same(r);
    const pare_value *x = pare_graph_find(r->back->graph, "x");
    char text[64];
    assert_string_equal(pare_shape_text(&x->shape, text, sizeof text), "[batch,4]");
    assert_int_equal(access(r->data_path, F_OK), -1);
}

/* The bytes of a small model, written out by hand from the field numbers of onnx.proto. */
static void bytes_are_as_published(void **state)
{
    rig *r = *state;
    pare_model *m = r->model;
    pare_value *y, *v;
    m->ir_version = 8;
    m->graph->name = "g";
    OK(pare_model_set_opset(m, "d", 300));
    OK(pare_value_new(m->graph, &y, "y"));
    OK(pare_node_new(m->graph, NULL, 0, "Op", "d", "n", NULL, 0, &y, 1));
    OK(pare_init_new(m->graph, &v, "w", PARE_u8, 1, (int64_t[]){3}, "abc"));
    write_and_read(r, false);
    const char expected[] = "\x08\x08" /* ir_version 8 */
                            "\x3a\x20" /* graph */
                            "\x0a\x0d\x12\x01y\x1a\x01n\x22\x02Op\x3a\x01"
                            "d"                                         /* node */
                            "\x12\x01g"                                 /* name */
                            "\x2a\x0c\x08\x03\x10\x02\x42\x01w\x4a\x03" /* initializer */
                            "abc"
                            "\x42\x06\x0a\x01"
                            "d\x10\xac\x02"; /* opset_import d, 300 */
    pare_map map;
    OK(pare_map_open(&r->ctx, &map, r->path));
    assert_int_equal(map.size, sizeof expected - 1);
    assert_memory_equal(map.data, expected, map.size);
    pare_map_close(&map);
}

/* Payloads of 1 KiB and more leave the file: w has 2,400 bytes, s 16. */
static void large_payloads_go_outside(void **state)
{
    rig *r = *state;
    make_model_by_hand(r);
    write_and_read(r, true);
    assert_same(r);
    const pare_tensor *w = pare_graph_find(r->back->graph, "w")->data;
    const pare_tensor *s = pare_graph_find(r->back->graph, "s")->data;
    assert_int_equal(w->encoding, PARE_EXTERNAL);
    assert_int_equal(s->encoding, PARE_RAW);
    assert_string_equal(w->external.item[0].key, "location");
    data_of(r, w);
    pare_map map;
    OK(pare_map_open(&r->ctx, &map, r->data_path));
    assert_int_equal(map.size, 2400);
    assert_memory_equal(map.data, w->data, 2400);
    pare_map_close(&map);
    /* read, then written over itself, still external and equal */
    pare_model_free(r->model);
    r->model = r->back;
    write_and_read(r, true);
    assert_same(r);
    pare_model_free(r->model);
    r->model = r->back;
    write_and_read(r, false);
    assert_int_equal(pare_graph_find(r->back->graph, "w")->data->encoding, PARE_RAW);
    assert_same(r);
    assert_int_equal(access(r->data_path, F_OK), -1); /* nothing reads it any more */
}

/* Other content has another name, and the old file goes with the model that read it; a model that
   is the source keeps its data. */
static void other_data_have_another_name(void **state)
{
    rig *r = *state;
    float other[600] = {1};
    char old[128], copy[128];
    make_model_by_hand(r);
    write_and_read(r, true);
    data_of(r, pare_graph_find(r->back->graph, "w")->data);
    strcpy(old, r->data_path);
    pare_value *w = pare_graph_find(r->model->graph, "w");
    pare_tensor changed = *w->data;
    changed.data = other;
    w->data = &changed;
    pare_model_free(r->back);
    write_and_read(r, true);
    data_of(r, pare_graph_find(r->back->graph, "w")->data);
    assert_string_not_equal(old, r->data_path);
    assert_int_equal(access(old, F_OK), -1);
    assert_int_equal(access(r->data_path, F_OK), 0);
    assert_same(r);
    /* the target's data stay where the source, a copy of the target, reads them, too */
    pare_map map;
    snprintf(copy, sizeof copy, "%s/source.onnx", r->folder);
    OK(pare_map_open(&r->ctx, &map, r->path));
    OK(pare_file_write(&r->ctx, copy, map.data, map.size));
    pare_map_close(&map);
    pare_model_free(r->model);
    OK(pare_onnx_read(&r->ctx, &r->model, copy));
    OK(pare_onnx_write(&r->ctx, r->model, r->path, NULL));
    assert_int_equal(access(r->data_path, F_OK), 0);
}

/* What a pass put in a tensor's place is written, not the file's old bytes. */
static void changed_numbers_are_written(void **state)
{
    rig *r = *state;
    bytes graph = {.size = 0}, t = make_tensor("w", 1, 1, (int64_t[]){2});
    put_block(&t, 4, (float[]){1, 2}, 8);
    put_bytes(&graph, 5, &t);
    bytes file = make_model(&graph);
    pare_model_free(r->model);
    r->model = NULL;
    OK(pare_onnx_read_memory(&r->ctx, &r->model, file.data, file.size, NULL));
    pare_value *w = pare_graph_find(r->model->graph, "w");
    assert_int_equal(w->data->encoding, PARE_TYPED);
    pare_tensor changed = *w->data; /* copied with its typed encoding, given other numbers */
    float numbers[] = {3, 4};
    changed.data = numbers;
    w->data = &changed;
    write_and_read(r, false);
    assert_memory_equal(pare_graph_find(r->back->graph, "w")->data->data, numbers, 8);
}

static void a_clone_is_written_alike(void **state)
{
    rig *r = *state;
    pare_model *clone;
    make_model_by_hand(r);
    OK(pare_onnx_write(&r->ctx, r->model, r->path, NULL));
    OK(pare_onnx_read(&r->ctx, &r->back, r->path));
    OK(pare_model_clone(&r->ctx, &clone, r->back));
    OK(pare_onnx_write(&r->ctx, clone, r->data_path, NULL));
    pare_model_free(clone);
    pare_hash a, b;
    OK(pare_file_hash(&r->ctx, r->path, &a));
    OK(pare_file_hash(&r->ctx, r->data_path, &b));
    assert_memory_equal(&a, &b, sizeof a);
}

/* Half of 3 GiB of numbers that no one touches: refused inside, and the hint says what to do. */
static void two_gigabytes_are_refused(void **state)
{
    rig *r = *state;
    size_t size = (size_t)3 << 29;
    void *room = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) skip();
    pare_tensor t[2] = {{.name = "a"}, {.name = "b"}};
    int64_t dims = (int64_t)size;
    for (int i = 0; i < 2; i++) {
        pare_value *v;
        t[i] = (pare_tensor){.name = t[i].name,
                             .dtype = PARE_u8,
                             .rank = 1,
                             .dims = &dims,
                             .count = dims,
                             .data = room,
                             .bytes = size};
        OK(pare_value_new(r->model->graph, &v, t[i].name));
        OK(pare_value_set_init(v, &t[i]));
    }
    r->model->ir_version = 8;
    assert_int_equal(pare_onnx_write(&r->ctx, r->model, r->path, NULL), PARE_INPUT);
    assert_non_null(strstr(r->ctx.message, "--external-data"));
    assert_int_equal(access(r->path, F_OK), -1);
    munmap(room, size);
}

/* A tensor of 3 GiB in a sparse file: opening maps it and reads none of it. */
static void huge_external_data_is_not_read(void **state)
{
    rig *r = *state;
    bytes graph = {.size = 0}, t = make_tensor("w", 1, 2, (int64_t[]){3 << 14, 1 << 14});
    const char *const text[] = {"location", "w.bin"};
    bytes entry = {.size = 0};
    char path[128];
    snprintf(path, sizeof path, "%s/w.bin", r->folder);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    if (ftruncate(fileno(file), (off_t)3 << 30)) {
        fclose(file);
        skip();
    }
    fclose(file);
    put_text(&entry, 1, text[0]);
    put_text(&entry, 2, text[1]);
    put_bytes(&t, 13, &entry);
    put_int(&t, 14, 1);
    put_bytes(&graph, 5, &t);
    bytes model = make_model(&graph);
    OK(pare_file_write(&r->ctx, r->path, model.data, model.size));
    OK(pare_onnx_read(&r->ctx, &r->back, r->path));
    const pare_tensor *w = pare_graph_find(r->back->graph, "w")->data;
    assert_int_equal(w->bytes, (size_t)3 << 30);
    assert_int_equal(((const float *)w->data)[((size_t)3 << 28) - 1] == 0, 1);
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    assert_true(usage.ru_maxrss < 200 << 10);
    uint64_t size;
    OK(pare_onnx_hash(&r->ctx, r->path, NULL, &size));
    assert_int_equal(size, ((uint64_t)3 << 30) + model.size);
    assert_int_equal(pare_onnx_write(&r->ctx, r->back, r->path, NULL), PARE_INPUT);
    assert_non_null(strstr(r->ctx.message, "--external-data"));
}

static void runtime_operators_are_not_written(void **state)
{
    rig *r = *state;
    pare_value *y;
    OK(pare_value_new(r->model->graph, &y, "y"));
    OK(pare_node_new(r->model->graph, NULL, 0, "FusedConv", "pare", "f", NULL, 0, &y, 1));
    assert_int_equal(pare_onnx_write(&r->ctx, r->model, r->path, NULL), PARE_UNSUPPORTED);
    assert_non_null(strstr(r->ctx.message, "node 'f' (FusedConv)"));
    assert_int_equal(access(r->path, F_OK), -1);
}

static void a_failed_write_leaves_nothing(void **state)
{
    rig *r = *state;
    char path[128];
    pare_onnx_write_options options = {.external_data = true};
    make_model_by_hand(r);
    snprintf(path, sizeof path, "%s/none/m.onnx", r->folder);
    assert_int_equal(pare_onnx_write(&r->ctx, r->model, path, &options), PARE_IO);
    assert_non_null(strstr(r->ctx.message, path));
    long n = 0;
    for (;; n++) {
        pare_ctx_clear(&r->ctx);
        r->ctx.fail_after = n;
        pare_status st = pare_onnx_write(&r->ctx, r->model, r->path, &options);
        if (st == PARE_OK) break;
        assert_int_equal(st, PARE_MEMORY);
        assert_non_null(strstr(r->ctx.message, "out of memory"));
        assert_int_equal(access(r->path, F_OK), -1);
    }
    assert_true(n > 3);
    r->ctx.fail_after = -1;
    OK(pare_onnx_read(&r->ctx, &r->back, r->path));
    assert_same(r);
}

static void the_hash_covers_external_payloads(void **state)
{
    rig *r = *state;
    char before[33], again[33], after[33];
    uint64_t size;
    make_model_by_hand(r);
    write_and_read(r, true);
    OK(pare_onnx_hash(&r->ctx, r->path, before, &size));
    OK(pare_onnx_hash(&r->ctx, r->path, again, NULL));
    assert_string_equal(before, again);
    assert_int_equal(strlen(before), 32);
    pare_map map;
    OK(pare_map_open(&r->ctx, &map, r->path));
    assert_int_equal(size, map.size + 2400);
    pare_map_close(&map);
    uint8_t other[2400] = {1};
    data_of(r, pare_graph_find(r->back->graph, "w")->data);
    OK(pare_file_write(&r->ctx, r->data_path, other, sizeof other));
    OK(pare_onnx_hash(&r->ctx, r->path, after, &size));
    assert_string_not_equal(before, after);
    OK(pare_onnx_hash(&r->ctx, r->path, NULL, &size));
}

static void a_tensor_has_a_file_of_its_own(void **state)
{
    rig *r = *state;
    pare_arena arena;
    pare_tensor *t;
    bytes file = make_tensor("t", 1, 2, (int64_t[]){1, 2});
    put_block(&file, 9, (float[]){1, 2}, 8);
    OK(pare_file_write(&r->ctx, r->path, file.data, file.size));
    pare_arena_init(&arena, &r->ctx);
    OK(pare_onnx_read_tensor(&r->ctx, &arena, &t, r->path));
    assert_int_equal(t->rank, 2);
    assert_memory_equal(t->data, ((float[]){1, 2}), 8);
    for (size_t cut = 0; cut < file.size; cut++) {
        OK(pare_file_write(&r->ctx, r->path, file.data, cut));
        pare_ctx_clear(&r->ctx);
        assert_int_not_equal(pare_onnx_read_tensor(&r->ctx, &arena, &t, r->path), PARE_OK);
        assert_non_null(strstr(r->ctx.message, r->path));
    }
    pare_arena_free(&arena);
}

/* The hash in memory is that of the file; one weight makes another. */
static void content_hash_is_the_files(void **state)
{
    rig *r = *state;
    pare_hash memory, file, other;
    make_model_by_hand(r);
    write_and_read(r, false);
    OK(pare_file_hash(&r->ctx, r->path, &file));
    OK(pare_onnx_content_hash(&r->ctx, r->model, &memory));
    assert_memory_equal(&memory, &file, sizeof file);
    OK(pare_onnx_content_hash(&r->ctx, r->back, &memory));
    assert_memory_equal(&memory, &file, sizeof file);
    const pare_value *w = pare_graph_find_own(r->model->graph, "w");
    ((float *)(uintptr_t)w->data->data)[599] += 1;
    OK(pare_onnx_content_hash(&r->ctx, r->model, &other));
    assert_memory_not_equal(&memory, &other, sizeof other);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(content_hash_is_the_files),      TEST(a_model_made_here_comes_back),
        TEST(bytes_are_as_published),         TEST(large_payloads_go_outside),
        TEST(changed_numbers_are_written),    TEST(a_clone_is_written_alike),
        TEST(two_gigabytes_are_refused),      TEST(other_data_have_another_name),
        TEST(huge_external_data_is_not_read), TEST(runtime_operators_are_not_written),
        TEST(a_failed_write_leaves_nothing),  TEST(the_hash_covers_external_payloads),
        TEST(a_tensor_has_a_file_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/onnx.h"
#include "tests/formats/bytes.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

typedef struct rig {
    pare_ctx ctx;
    bytes graph, model;
} rig;

static int setup(void **state)
{
    rig *r = calloc(1, sizeof *r);
    pare_ctx_init(&r->ctx);
    put_text(&r->graph, 2, "g");
    *state = r;
    return 0;
}

static int teardown(void **state)
{
    free(*state);
    return 0;
}

static pare_status read_graph(rig *r, pare_model **out)
{
    pare_ctx_clear(&r->ctx);
    r->model = make_model(&r->graph);
    return pare_onnx_read_memory(&r->ctx, out, r->model.data, r->model.size, NULL);
}

/* The graph is refused with a message that holds each of the words, which "|" separates. */
static void assert_refused(rig *r, const char *words)
{
    pare_model *m;
    char text[256];
    assert_int_not_equal(read_graph(r, &m), PARE_OK);
    snprintf(text, sizeof text, "%s", words);
    for (char *save, *word = strtok_r(text, "|", &save); word; word = strtok_r(NULL, "|", &save))
        if (!strstr(r->ctx.message, word)) fail_msg("no '%s' in: %s", word, r->ctx.message);
}

static void add_tensor(rig *r, bytes tensor) { put_bytes(&r->graph, 5, &tensor); }
static void add_node(rig *r, bytes node) { put_bytes(&r->graph, 1, &node); }
static void add_info(rig *r, unsigned field, bytes info) { put_bytes(&r->graph, field, &info); }

static const pare_tensor *content(const pare_model *m, const char *name)
{
    const pare_value *v = pare_graph_find(m->graph, name);
    assert_non_null(v);
    assert_non_null(v->data);
    return v->data;
}

static void structure_is_read(void **state)
{
    rig *r = *state;
    pare_model *m;
    bytes node = make_node("Foo", "n1", "x - w", "y"), attr = {.size = 0};
    bytes w = make_tensor("w", 1, 2, (int64_t[]){1, 2});
    put_text(&attr, 1, "axes");
    put_int(&attr, 7 + 1, 5);
    put_int(&attr, 8, -7);
    put_int(&attr, 20, 7);
    put_bytes(&node, 5, &attr);
    put_text(&node, 7, "ai.onnx");
    put_block(&w, 9, (float[]){1.5f, -2}, 8);
    add_node(r, make_node("Bar", "n0", "y", "z"));
    add_node(r, node);
    add_tensor(r, w);
    add_info(r, 11, make_info("x", 1, 3, (int64_t[]){-1, 3, 4}));
    add_info(r, 12, make_info("z", 10, 0, NULL));
    assert_int_equal(read_graph(r, &m), PARE_OK);

    assert_int_equal(m->ir_version, 8);
    assert_int_equal(pare_model_opset(m, ""), 17);
    assert_string_equal(m->graph->name, "g");
    assert_int_equal(m->graph->node_count, 2);
    const pare_node *n = m->graph->node[1]; /* the file's order stays */
    assert_string_equal(n->name, "n1");
    assert_string_equal(n->domain, "");
    assert_int_equal(n->in_count, 3);
    assert_null(n->in[1]);
    assert_ptr_equal(n->out[0]->producer, n);
    assert_ptr_equal(m->graph->node[0]->in[0], n->out[0]);
    assert_ptr_equal(n->out[0]->user[0], m->graph->node[0]);
    int count;
    const int64_t *axes = pare_node_ints(n, "axes", &count);
    assert_int_equal(count, 2);
    assert_int_equal(axes[1], -7);
    const pare_value *x = m->graph->in.item[0], *z = m->graph->out.item[0];
    char text[64];
    assert_string_equal(pare_shape_text(&x->shape, text, sizeof text), "[batch,3,4]");
    assert_int_equal(x->dtype, PARE_f32);
    assert_int_equal(z->dtype, PARE_f16);
    assert_int_equal(z->shape.rank, 0);
    assert_true(z->is_output && x->is_input);
    assert_true(((const float *)content(m, "w")->data)[1] == -2);
    assert_int_equal(pare_graph_sort(m->graph), PARE_OK);
    assert_string_equal(m->graph->node[0]->name, "n1");
    pare_model_free(m);
}

/* Numbers in every typed field; values and encodings by hand from ONNX's TensorProto. */
static void typed_numbers_are_decoded(void **state)
{
    rig *r = *state;
    pare_model *m;
    bytes t = make_tensor("f", 1, 1, (int64_t[]){3});
    put_float(&t, 4, 1);                  /* element by element, */
    put_block(&t, 4, (float[]){2, 3}, 8); /* and packed */
    add_tensor(r, t);
    t = make_tensor("s8", 3, 1, (int64_t[]){2});
    put_block(&t, 5, "\xfb\xff\xff\xff\xff\xff\xff\xff\xff\x01\x7f", 11); /* -5, 127 */
    add_tensor(r, t);
    t = make_tensor("f16", 10, 1, (int64_t[]){2});
    put_block(&t, 5, "\x80\x78\x80\xf8\x03", 5); /* 0x3c00, 0xfc00 */
    add_tensor(r, t);
    t = make_tensor("s4", 22, 1, (int64_t[]){3});
    put_block(&t, 5, "\xf1\x01\x02", 3); /* bytes 0xf1, 0x02 */
    add_tensor(r, t);
    t = make_tensor("s64", 7, 1, (int64_t[]){1});
    put_int(&t, 7, INT64_MIN);
    add_tensor(r, t);
    t = make_tensor("f64", 11, 0, NULL);
    put_block(&t, 10, (double[]){0.1}, 8);
    add_tensor(r, t);
    t = make_tensor("u32", 12, 1, (int64_t[]){1});
    put_int(&t, 11, 4000000000);
    add_tensor(r, t);
    t = make_tensor("text", 8, 1, (int64_t[]){2});
    put_block(&t, 6, "a\0b", 3);
    put_block(&t, 6, "", 0);
    add_tensor(r, t);
    t = make_tensor("none", 1, 2, (int64_t[]){0, 5});
    add_tensor(r, t);
    assert_int_equal(read_graph(r, &m), PARE_OK);

    assert_memory_equal(content(m, "f")->data, ((float[]){1, 2, 3}), 12);
    assert_int_equal(content(m, "f")->encoding, PARE_TYPED);
    assert_memory_equal(content(m, "s8")->data, "\xfb\x7f", 2);
    assert_memory_equal(content(m, "f16")->data, "\x00\x3c\x00\xfc", 4);
    assert_memory_equal(content(m, "s4")->data, "\xf1\x02", 2);
    assert_int_equal(content(m, "s4")->bytes, 2);
    assert_true(*(const int64_t *)content(m, "s64")->data == INT64_MIN);
    assert_true(*(const double *)content(m, "f64")->data == 0.1);
    assert_int_equal(*(const uint32_t *)content(m, "u32")->data, 4000000000u);
    const pare_bytes *text = content(m, "text")->data;
    assert_int_equal(text[0].size, 3);
    assert_memory_equal(text[0].data, "a\0b", 3);
    assert_int_equal(text[1].size, 0);
    assert_int_equal(content(m, "none")->count, 0);
    pare_model_free(m);
}

/* Payloads stay in the caller's bytes where they are aligned or are large. */
static void payloads_are_borrowed(void **state)
{
    rig *r = *state;
    pare_model *m;
    bytes t = make_tensor("w", 3, 1, (int64_t[]){1000}), raw = {.size = 1000};
    memset(raw.data, 7, 1000);
    put_bytes(&t, 9, &raw);
    add_tensor(r, t);
    assert_int_equal(read_graph(r, &m), PARE_OK);
    const uint8_t *data = content(m, "w")->data;
    assert_true(data > r->model.data && data + 1000 <= r->model.data + r->model.size);
    assert_true(m->arena.bytes < 16384);
    pare_model_free(m);
}

static bytes branch(const char *returns, const char *reads)
{
    bytes graph = {.size = 0}, info = make_info(returns, 1, 0, NULL);
    put_text(&graph, 2, "branch");
    if (reads) {
        bytes node = make_node("Neg", "inner", reads, returns);
        put_bytes(&graph, 1, &node);
    }
    put_bytes(&graph, 12, &info);
    return graph;
}

/* One branch returns an outer value as it is, the other reads what a later node makes. */
static void subgraphs_capture_outer_values(void **state)
{
    rig *r = *state;
    pare_model *m;
    bytes node = make_node("If", "if", "c", "out");
    bytes body[2] = {branch("x", NULL), branch("negated", "late")};
    for (int i = 0; i < 2; i++) {
        bytes attr = {.size = 0};
        put_text(&attr, 1, i ? "else_branch" : "then_branch");
        put_bytes(&attr, 6, &body[i]);
        put_int(&attr, 20, 5);
        put_bytes(&node, 5, &attr);
    }
    add_info(r, 11, make_info("c", 9, 0, NULL));
    add_info(r, 12, make_info("out", 1, 0, NULL));
    add_node(r, node);
    add_node(r, make_node("Const", "n1", "", "late"));
    add_node(r, make_node("Const", "n2", "", "x"));
    assert_int_equal(read_graph(r, &m), PARE_OK);
    const pare_value *x = pare_graph_find_own(m->graph, "x");
    const pare_value *late = pare_graph_find_own(m->graph, "late");
    pare_graph *then = pare_node_attr(m->graph->node[0], "then_branch")->graph;
    assert_ptr_equal(then->out.item[0], x);
    assert_ptr_equal(then->parent, m->graph);
    assert_true(x->is_output);
    assert_int_equal(late->user_count, 1);
    assert_string_equal(late->user[0]->name, "inner");
    assert_int_equal(pare_graph_sort(m->graph), PARE_OK);
    assert_string_equal(m->graph->node[2]->name, "if");
    assert_int_equal(pare_graph_sweep(m->graph), 0);
    pare_model_free(m);
}

/* Files older than IR 4 list initializers among the inputs. */
static void an_input_may_have_an_initializer(void **state)
{
    rig *r = *state;
    pare_model *m;
    bytes t = make_tensor("w", 1, 1, (int64_t[]){1});
    put_block(&t, 9, "\0\0\0\0", 4);
    add_info(r, 11, make_info("w", 1, 1, (int64_t[]){1}));
    add_tensor(r, t);
    assert_int_equal(read_graph(r, &m), PARE_OK);
    const pare_value *w = m->graph->in.item[0];
    assert_true(w->is_input && w->is_init && w->data);
    assert_ptr_equal(m->graph->init.item[0], w);
    pare_model_free(m);
}

/* values [5, 7] at linear positions 1 and 5 of a 2x3 tensor. */
static void sparse_initializers_become_dense(void **state)
{
    rig *r = *state;
    pare_model *m;
    bytes sparse = {.size = 0}, values = make_tensor("s", 1, 1, (int64_t[]){2});
    bytes indices = make_tensor("i", 7, 1, (int64_t[]){2});
    put_block(&values, 9, (float[]){5, 7}, 8);
    put_block(&indices, 9, (int64_t[]){1, 5}, 16);
    put_bytes(&sparse, 1, &values);
    put_bytes(&sparse, 2, &indices);
    put_int(&sparse, 3, 2);
    put_int(&sparse, 3, 3);
    put_bytes(&r->graph, 15, &sparse);
    assert_int_equal(read_graph(r, &m), PARE_OK);
    assert_memory_equal(content(m, "s")->data, ((float[]){0, 5, 0, 0, 0, 7}), 24);
    assert_int_equal(m->graph->sparse_init_count, 1);
    assert_int_equal(m->graph->init.count, 0);
    pare_model_free(m);
}

static void wrong_payloads_are_refused(void **state)
{
    rig *r = *state;
    const struct {
        int type, rank;
        int64_t dims[2];
        unsigned field;
        const char *payload;
        size_t size;
        const char *words;
    } cases[] = {
        {1, 1, {3}, 9, "12345678", 8, "tensor 'w'|8 bytes|float [3] needs 12"},
        {1, 1, {-1}, 9, "", 0, "negative or overflow"},
        {1, 2, {INT64_MAX / 2, 8}, 9, "", 0, "negative or overflow"},
        {1, 1, {INT64_MAX / 2}, 9, "", 0, "negative or overflow"},
        {99, 1, {1}, 9, "1234", 4, "data type 99 is unknown"},
        {0, 1, {1}, 9, "1234", 4, "data type 0 is unknown"},
        {1, 1, {1}, 7, "\1", 1, "are in int64_data, expected float_data"},
        {1, 1, {1}, 4, "12345678", 8, "float_data holds 8 bytes, too many for float [1]"},
        {7, 1, {1ll << 40}, 7, "\1\1", 2, "int64_data holds 2 bytes, too few"},
        {7, 1, {2}, 7, "\1\x81\1", 3, NULL},
        {7, 1, {2}, 7, "\1\1\1", 3, "holds 3 numbers"},
        {7, 1, {1}, 7, "\x81", 1, "ends inside a number"},
        {2, 1, {1}, 5, "\x80\2", 2, "number 256 in int32_data does not fit uint8"},
        {3, 1, {1}, 5, "\x80\1", 2, "number 128 in int32_data does not fit int8"},
        {8, 1, {2}, 6, "a", 1, "1 strings, its shape needs 2"},
        {8, 1, {1}, 9, "a", 1, "0 strings"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bytes t = make_tensor("w", cases[i].type, cases[i].rank, cases[i].dims);
        put_block(&t, cases[i].field, cases[i].payload, cases[i].size);
        r->graph.size = 0;
        add_tensor(r, t);
        if (cases[i].words) {
            assert_refused(r, cases[i].words);
        } else {
            pare_model *m;
            assert_int_equal(read_graph(r, &m), PARE_OK);
            pare_model_free(m);
        }
    }
}

static void wrong_names_are_refused(void **state)
{
    rig *r = *state;
    bytes w = make_tensor("w", 1, 1, (int64_t[]){0}), unnamed = {.size = 0};
    add_tensor(r, w);
    add_tensor(r, w);
    assert_refused(r, "two initializers are called 'w'");
    r->graph.size = 0;
    put_int(&unnamed, 2, 1);
    add_tensor(r, unnamed);
    assert_refused(r, "initializer 0 has no name");
    r->graph.size = 0;
    add_info(r, 11, make_info("x", 1, 0, NULL));
    add_info(r, 11, make_info("x", 1, 0, NULL));
    assert_refused(r, "two graph inputs are called 'x'");
    r->graph.size = 0;
    add_node(r, make_node("A", "first", "", "y"));
    add_node(r, make_node("B", "second", "", "y"));
    assert_refused(r, "node 'second' (B)|output 'y' is defined twice");
    r->graph.size = 0;
    add_node(r, make_node("", "n", "", "y"));
    assert_refused(r, "node 'n' ()|has no op_type");
    r->graph.size = 0;
    bytes own = make_node("FusedConv", "n", "", "y");
    put_block(&own, 7, "pare", 4);
    add_node(r, own);
    assert_refused(r, "node 'n' (FusedConv)|domain 'pare' exist at run time only");
    r->graph.size = 0;
    bytes node = make_node("A", "", "", "y");
    put_block(&node, 3, "a\0b", 3);
    add_node(r, node);
    assert_refused(r, "node name 'a' continues after a NUL byte");
    r->graph.size = 0;
    bytes info = {.size = 0};
    put_int(&info, 99, 1);
    add_info(r, 12, info);
    assert_refused(r, "has no name");
}

static void what_is_no_model_is_refused(void **state)
{
    rig *r = *state;
    pare_model *m;
    assert_int_equal(pare_onnx_read_memory(&r->ctx, &m, "", 0, "/tmp/a.onnx"), PARE_INPUT);
    assert_non_null(strstr(r->ctx.message, "/tmp/a.onnx: is empty"));
    pare_ctx_clear(&r->ctx);
    assert_int_equal(pare_onnx_read_memory(&r->ctx, &m, "hello world", 11, NULL), PARE_INPUT);
    assert_non_null(strstr(r->ctx.message, "not ONNX"));
    pare_ctx_clear(&r->ctx);
    assert_int_equal(pare_onnx_read_memory(&r->ctx, &m, "\x08\x08", 2, NULL), PARE_INPUT);
    assert_non_null(strstr(r->ctx.message, "is not an ONNX model: it has no graph"));
    pare_ctx_clear(&r->ctx);
    assert_int_equal(pare_onnx_read_memory(&r->ctx, &m, "\x08\x0e\x3a\x00", 4, NULL),
                     PARE_UNSUPPORTED);
    assert_non_null(strstr(r->ctx.message, "IR version 14 is unknown, expected 1 to 13"));
    pare_ctx_clear(&r->ctx);
    /* an opset_import with a field of number 2^29 and more */
    assert_int_equal(pare_onnx_read_memory(&r->ctx, &m,
                                           "\x08\x08\x42\x08\x48\x48\xb8\xb7\xb7\xd2\x48\x48"
                                           "\x3a\x00",
                                           14, NULL),
                     PARE_INPUT);
    assert_non_null(strstr(r->ctx.message, "a field has an impossible number"));
    pare_ctx_clear(&r->ctx);
    assert_int_equal(pare_onnx_read(&r->ctx, &m, "/nowhere/a.onnx"), PARE_IO);
    assert_non_null(strstr(r->ctx.message, "/nowhere/a.onnx"));
}

/* 3,000 graphs inside each other would overflow the stack of a parser that trusts them. */
static void deep_nesting_is_refused(void **state)
{
    rig *r = *state;
    pare_model *m;
    enum { LEVELS = 3000, ROOM = LEVELS * 16 };
    uint8_t *deep = malloc(ROOM), head[16];
    size_t size = 0;
    for (int i = 0; i < LEVELS; i++) /* graph <- attribute.g <- node.attribute <- graph.node */
        for (int k = 0; k < 3; k++) {
            bytes key = {.size = 0};
            put_varint(&key, (k == 0 ? 6u : k == 1 ? 5u : 1u) << 3 | 2);
            put_varint(&key, size);
            memcpy(head, key.data, key.size);
            assert_true(size + key.size <= ROOM);
            memmove(deep + key.size, deep, size);
            memcpy(deep, head, key.size);
            size += key.size;
        }
    uint8_t *model = malloc(size + 16);
    bytes key = {.size = 0};
    put_int(&key, 1, 8);
    put_varint(&key, 7 << 3 | 2);
    put_varint(&key, size);
    memcpy(model, key.data, key.size);
    memcpy(model + key.size, deep, size);
    assert_int_equal(pare_onnx_read_memory(&r->ctx, &m, model, size + key.size, NULL),
                     PARE_UNSUPPORTED);
    assert_non_null(strstr(r->ctx.message, "nest deeper than 64"));
    free(model);
    free(deep);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(structure_is_read),
        TEST(typed_numbers_are_decoded),
        TEST(payloads_are_borrowed),
        TEST(subgraphs_capture_outer_values),
        TEST(an_input_may_have_an_initializer),
        TEST(sparse_initializers_become_dense),
        TEST(wrong_payloads_are_refused),
        TEST(wrong_names_are_refused),
        TEST(what_is_no_model_is_refused),
        TEST(deep_nesting_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

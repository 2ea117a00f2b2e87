/* SPDX-License-Identifier: Apache-2.0 */
/* Labels of classes: the file's lines, classes with them, and files that are not read. */
#include "tests/tools/serve_desk.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define OUTPUT(file)                                                                               \
    "output { name: 'logits' data_type: TYPE_FP32 dims: 10 label_filename: '" file "' }"

static void reads(desk *d, const char *text, const char *const *want, int64_t count)
{
    char path[128];
    pare_arena arena;
    pare_labels *labels;
    pare_arena_init(&arena, &d->ctx);
    desk_put_text(d, "some", text);
    snprintf(path, sizeof path, "%s/some", d->folder);
    assert_int_equal(pare_labels_read(&arena, &labels, path, "some"), PARE_OK);
    assert_int_equal(labels->count, count);
    for (int64_t i = 0; i < count; i++)
        if (want[i])
            assert_string_equal(pare_labels_at(labels, i), want[i]);
        else
            assert_null(pare_labels_at(labels, i));
    assert_null(pare_labels_at(labels, count));
    assert_null(pare_labels_at(labels, -1));
    pare_arena_free(&arena);
}

static void a_label_is_a_line(void **state)
{
    desk *d = *state;
    reads(d, "", NULL, 0);
    reads(d, "\n", (const char *[]){NULL}, 1);
    reads(d, "a", (const char *[]){"a"}, 1);
    reads(d, "a\n", (const char *[]){"a"}, 1);
    reads(d, "a b\r\n\r\nc:d\n\xc3\xa9", (const char *[]){"a b", NULL, "c:d", "\xc3\xa9"}, 4);
    assert_null(pare_labels_at(NULL, 0));
    pare_arena arena;
    pare_labels *labels;
    char path[128];
    pare_arena_init(&arena, &d->ctx);
    desk_put_text(d, "some", "a\n\xe9\n");
    snprintf(path, sizeof path, "%s/some", d->folder);
    assert_int_equal(pare_labels_read(&arena, &labels, path, "some"), PARE_INPUT);
    assert_non_null(strstr(d->ctx.message, "/some: is no text in UTF-8"));
    pare_arena_free(&arena);
}

/* The largest of ten logits of a black picture, as the reply's JSON has it. */
static void classifies(desk *d, const char *words)
{
    static char body[8192];
    char *at =
        body + sprintf(body, "{\"inputs\": [{\"name\": \"input\", \"shape\": [1, 1, 28, 28], "
                             "\"datatype\": \"FP32\", \"data\": [0");
    for (int i = 1; i < 28 * 28; i++) at += sprintf(at, ",0");
    sprintf(at, "]}], \"outputs\": [{\"name\": \"logits\", \"parameters\": {\"classification\": "
                "10}}]}");
    desk_gives(d, "POST", "/v2/models/net/infer", body, 200, words);
}

static void classes_have_labels(void **state)
{
    desk *d = *state;
    const pare_serve_config config = desk_config(32, 0, 1);
    desk_put_text(d, "net/labels.txt", "T-shirt\nTrouser\n\nDress\n");
    desk_put_text(d, "net/config.pbtxt", OUTPUT("labels.txt"));
    desk_put_text(d, "net/1/model.onnx", "");
    desk_run("cp datasets/zoo/mlp.onnx '%s'%s", d->folder, "/net/1/model.onnx");
    desk_open(d, d->path, 1, &config);
    desk_gives(d, "GET", "/v2/models/net/config", "", 200, "\"label_filename\":\"labels.txt\"");
    classifies(d, ":0:T-shirt\"");
    classifies(d, ":1:Trouser\"");
    classifies(d, ":2\""); /* whose line is empty */
    classifies(d, ":3:Dress\"");
    classifies(d, ":4\""); /* which has no line */
    desk_put_text(d, "net/config.pbtxt", "");
    desk_gives(d, "POST", "/v2/repository/models/net/load", "", 200, "");
    classifies(d, ":0\"");
}

static void labels_are_of_the_models_folder(void **state)
{
    desk *d = *state;
    const pare_serve_config config = desk_config(32, 0, 1);
    char path[128];
    desk_put_text(d, "labels.txt", "secret\n");
    desk_put_text(d, "net/1/model.onnx", "");
    desk_run("cp datasets/zoo/mlp.onnx '%s'%s", d->folder, "/net/1/model.onnx");
    desk_open(d, d->path, 1, &config);
    desk_put_text(d, "net/config.pbtxt", OUTPUT("../labels.txt"));
    desk_gives(d, "POST", "/v2/repository/models/net/load", "", 400,
               "outside of the model's folder");
    desk_put_text(d, "net/config.pbtxt", OUTPUT("link.txt"));
    desk_gives(d, "POST", "/v2/repository/models/net/load", "", 400, "link.txt: No such file");
    snprintf(path, sizeof path, "%s/net/link.txt", d->folder);
    assert_int_equal(symlink("../labels.txt", path), 0);
    desk_gives(d, "POST", "/v2/repository/models/net/load", "", 400,
               "outside of the model's folder");
    desk_put_text(d, "net/config.pbtxt", OUTPUT("1"));
    desk_gives(d, "POST", "/v2/repository/models/net/load", "", 500, "net/1");
    desk_put_text(d, "net/config.pbtxt", OUTPUT("1/labels.txt"));
    desk_put_text(d, "net/1/labels.txt", "first\n");
    desk_gives(d, "POST", "/v2/repository/models/net/load", "", 200, "");
    classifies(d, ":0:first\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_label_is_a_line, desk_setup, desk_teardown),
        cmocka_unit_test_setup_teardown(classes_have_labels, desk_setup, desk_teardown),
        cmocka_unit_test_setup_teardown(labels_are_of_the_models_folder, desk_setup, desk_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

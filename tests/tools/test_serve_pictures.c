/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures as inputs: a served model gets the bytes that a data set of the same pictures gives, and
   a wrong picture fails its own request alone. */
#include "formats/data.h"
#include "formats/import.h"
#include "tests/formats/pictures.h"
#include "tests/tools/serve_desk.h"
#include "tools/serve/infer_job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { SIDE = 8, VALUES = 3 * SIDE * SIDE };
#define SCALED "resize 10, crop 8, mean 0.485 0.456 0.406, std 0.229 0.224 0.225"

/* --- models and pictures --- */

/* A model whose output is its input. */
static void put_model(const desk *d, const char *name, pare_dtype dtype, int rank,
                      const int64_t *dims, const char *config)
{
    graph_case g;
    graph_open(&g, 17);
    graph_input(&g, "image", dtype, rank, dims);
    graph_node(&g, "Identity", "image", "same");
    graph_output(&g, "same");
    desk_put_graph(d, &g, name, config);
}

static const char *parameters(const char *text)
{
    static char config[512];
    snprintf(config, sizeof config,
             "parameters { key: \"preprocess\" value { string_value: \"%s\" } }", text);
    return config;
}

static void open_folder(desk *d, int64_t delay)
{
    const pare_serve_config config = desk_config(16, delay, 1);
    desk_open(d, d->path, 1, &config);
}

/* A file whole. */
typedef struct content {
    char data[8192];
    size_t bytes;
} content;

static void load_file(content *out, const char *folder, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    out->bytes = fread(out->data, 1, sizeof out->data, file);
    assert_true(out->bytes < sizeof out->data);
    fclose(file);
}

/* FOLDER/set/x/{1.png,2.jpg,3.png}, of different sizes. */
enum { PICTURES = 3 };
static void put_pictures(const desk *d, content *out)
{
    static const struct {
        const char *name;
        int width, height;
    } files[PICTURES] = {{"set/x/1.png", 20, 12}, {"set/x/2.jpg", 16, 31}, {"set/x/3.png", 5, 5}};
    char path[256];
    desk_put_text(d, "set/x/1.png", "");
    for (int i = 0; i < PICTURES; i++) {
        pare_image image;
        paint(&image, files[i].width, files[i].height);
        snprintf(path, sizeof path, "%s/%s", d->folder, files[i].name);
        if (i == 1)
            write_jpeg(path, &image);
        else
            write_png(path, &image, PNG_OF_RGB);
        free(image.rgb);
        load_file(&out[i], d->folder, files[i].name);
    }
}

/* What a data set of the pictures gives a model. */
static void import(desk *d, pare_dtype dtype, const char *layout, void *out, size_t bytes)
{
    static const float mean[] = {0.485f, 0.456f, 0.406f}, std[] = {0.229f, 0.224f, 0.225f};
    char folder[256], path[256];
    const int64_t order[PICTURES] = {0, 1, 2};
    const bool last = layout && !strcmp(layout, "nhwc");
    pare_data *data;
    pare_reader *reader;
    pare_batch batch;
    const pare_import_options o = {
        .mean = mean, .std = std, .channels = 3, .layout = layout, .resize = 10, .crop = SIDE};
    const pare_data_input input = {
        "input", dtype, {4, {-1, last ? SIDE : 3, SIDE, last ? 3 : SIDE}, {0}}, NULL};
    snprintf(folder, sizeof folder, "%s/set", d->folder);
    snprintf(path, sizeof path, "%s/set.h5", d->folder);
    if (pare_import_images(&d->ctx, path, folder, &o) != PARE_OK ||
        pare_data_open(&d->ctx, &data, path, &input, 1) != PARE_OK)
        fail_msg("%s", d->ctx.message);
    assert_int_equal(pare_reader_open(&d->ctx, &reader, data, order, PICTURES, PICTURES, 1),
                     PARE_OK);
    assert_int_equal(pare_reader_next(reader, &batch), PARE_OK);
    memcpy(out, batch.input[0], bytes);
    pare_reader_close(reader);
    pare_data_close(data);
    unlink(path);
    desk_run("rm -rf '%s'%s", folder, ""); /* it is no model */
}

/* --- requests --- */

static ask *send_pictures(desk *d, const char *model, const content *pictures, int count)
{
    static char body[65536];
    char json[512], path[128];
    size_t bytes = 0;
    for (int i = 0; i < count; i++) bytes += 4 + pictures[i].bytes;
    const int n = snprintf(json, sizeof json,
                           "{\"parameters\": {\"binary_data_output\": true}, \"inputs\": [{"
                           "\"name\": \"image\", \"shape\": [%d, 1], \"datatype\": \"BYTES\", "
                           "\"parameters\": {\"binary_data_size\": %zu}}]}",
                           count, bytes);
    assert_true((size_t)n + bytes <= sizeof body);
    memcpy(body, json, (size_t)n);
    char *at = body + n;
    for (int i = 0; i < count; i++) {
        const uint32_t size = (uint32_t)pictures[i].bytes;
        memcpy(at, &size, sizeof size);
        memcpy(at + sizeof size, pictures[i].data, size);
        at += sizeof size + size;
    }
    snprintf(path, sizeof path, "/v2/models/%s/infer", model);
    return desk_send(d, "POST", path, body, (size_t)n + bytes, (size_t)n);
}

static void takes(ask *a, const void *want, size_t bytes)
{
    ask_await(a);
    const pare_reply *r = &a->x.reply;
    if (r->code != 200) fail_msg("%d %.*s", r->code, (int)r->bytes, r->body);
    assert_int_equal(r->bytes - r->json_bytes, bytes);
    assert_memory_equal(r->body + r->json_bytes, want, bytes);
    ask_forget(a);
}

static void refuses(ask *a, int code, const char *words)
{
    ask_await(a);
    const pare_reply *r = &a->x.reply;
    char *text = strndup(r->body ? r->body : "", r->bytes);
    if (r->code != code || !strstr(text, words))
        fail_msg("%d %s, expected %d %s", r->code, text, code, words);
    free(text);
    ask_forget(a);
}

/* --- tests --- */

static void a_model_gets_what_a_data_set_gives(void **state)
{
    desk *d = *state;
    const int64_t nchw[] = {-1, 3, SIDE, SIDE}, nhwc[] = {-1, SIDE, -1, 3};
    static content pictures[PICTURES];
    static float floats[PICTURES][VALUES], last[PICTURES][VALUES];
    static uint8_t bytes[PICTURES][VALUES];
    put_pictures(d, pictures);
    import(d, PARE_f32, NULL, floats, sizeof floats);
    put_pictures(d, pictures);
    import(d, PARE_f32, "nhwc", last, sizeof last);
    put_pictures(d, pictures);
    import(d, PARE_u8, NULL, bytes, sizeof bytes);
    put_model(d, "first", PARE_f32, 4, nchw, parameters(SCALED));
    put_model(d, "last", PARE_f32, 4, nhwc, parameters(SCALED ", input image"));
    put_model(d, "half", PARE_f16, 4, nchw, parameters(SCALED));
    put_model(d, "raw", PARE_u8, 4, nchw, parameters("resize 10, crop 8"));
    open_folder(d, 0);
    assert_string_equal(warning, "");
    desk_gives(d, "GET", "/v2/models/first", "", 200,
               "\"inputs\":[{\"name\":\"image\",\"datatype\":\"BYTES\",\"shape\":[-1,1]}]");
    desk_gives(d, "GET", "/v2/models/first/config", "", 200,
               "\"data_type\":\"TYPE_STRING\",\"dims\":[1]");
    desk_gives(d, "GET", "/v2/models/first/config", "", 200, "\"string_value\":\"" SCALED "\"");
    takes(send_pictures(d, "first", pictures, PICTURES), floats, sizeof floats);
    takes(send_pictures(d, "last", pictures, PICTURES), last, sizeof last);
    takes(send_pictures(d, "raw", pictures, PICTURES), bytes, sizeof bytes);
    static uint16_t halves[PICTURES * VALUES];
    for (int i = 0; i < PICTURES * VALUES; i++)
        pare_type(PARE_f16)->from_f32_ref(&halves[i], floats[i / VALUES][i % VALUES]);
    takes(send_pictures(d, "half", pictures, PICTURES), halves, sizeof halves);
    for (int i = 0; i < PICTURES; i++)
        takes(send_pictures(d, "first", pictures + i, 1), floats[i], sizeof floats[i]);
}

/* Pixels in place of a file give the same. */
static void decoded_pictures_are_taken(void **state)
{
    desk *d = *state;
    static char body[4096];
    static const struct {
        int width, height, channels, code;
        const char *words;
    } cases[] = {
        {20, 12, 3, 200, NULL},
        {20, 12, 4, 400, "model 'net': input 'image' is UINT8, expected BYTES"},
        {30, 21, 3, 400, "picture 0: is 30 x 21, expected 1 to 600 pixels"},
        {0, 12, 3, 400, "picture 0: is 0 x 12, expected 1 to 600 pixels"},
    };
    const int64_t nchw[] = {-1, 3, SIDE, SIDE};
    static content pictures[PICTURES];
    static uint8_t want[PICTURES][VALUES];
    put_pictures(d, pictures);
    import(d, PARE_u8, NULL, want, sizeof want);
    put_model(d, "net", PARE_u8, 4, nchw, parameters("resize 10, crop 8, pixels 600"));
    open_folder(d, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const size_t bytes = (size_t)(cases[i].width * cases[i].height * cases[i].channels);
        const int n = snprintf(body, sizeof body,
                               "{\"parameters\": {\"binary_data_output\": true}, \"inputs\": [{"
                               "\"name\": \"image\", \"shape\": [1, %d, %d, %d], \"datatype\": "
                               "\"UINT8\", \"parameters\": {\"binary_data_size\": %zu}}]}",
                               cases[i].height, cases[i].width, cases[i].channels, bytes);
        uint8_t *at = (uint8_t *)body + n;
        for (int y = 0; y < cases[i].height; y++)
            for (int x = 0; x < cases[i].width; x++)
                for (int c = 0; c < cases[i].channels; c++) *at++ = pixel(x, y, c);
        ask *a = desk_send(d, "POST", "/v2/models/net/infer", body, (size_t)n + bytes, (size_t)n);
        if (cases[i].words)
            refuses(a, cases[i].code, cases[i].words);
        else
            takes(a, want[0], sizeof want[0]); /* of 1.png */
    }
}

/* A body without JSON is one picture, with a model that takes one without an axis of samples, too.
 */
static void a_body_may_be_a_picture(void **state)
{
    desk *d = *state;
    const int64_t nchw[] = {-1, 3, SIDE, SIDE}, whole[] = {3, SIDE, SIDE}, fixed[] = {2, 3, 8, 8};
    static content pictures[PICTURES];
    put_pictures(d, pictures);
    desk_run("rm -rf '%s'/set%s", d->folder, "");
    put_model(d, "net", PARE_u8, 4, nchw, parameters("resize 10, crop 8"));
    put_model(d, "one", PARE_u8, 3, whole, parameters("resize 10, crop 8"));
    put_model(d, "two", PARE_u8, 4, fixed, parameters("resize 10, crop 8"));
    put_model(d, "plain", PARE_u8, 4, nchw, NULL);
    open_folder(d, 0);
    desk_gives(d, "GET", "/v2/models/one", "", 200, "\"shape\":[1]");
    desk_gives(d, "GET", "/v2/models/two", "", 200, "\"shape\":[2]");
    const content *p = &pictures[1];
    for (int i = 0; i < 2; i++) {
        ask *a = desk_send(d, "POST", i ? "/v2/models/one/infer" : "/v2/models/net/infer", p->data,
                           p->bytes, 0);
        refuses(a, 200, i ? "\"shape\":[3,8,8],\"data\":[" : "\"shape\":[1,3,8,8],\"data\":[");
    }
    refuses(desk_send(d, "POST", "/v2/models/plain/infer", p->data, p->bytes, 0), 400,
            "model 'plain': Inference-Header-Content-Length is 0");
    refuses(desk_send(d, "POST", "/v2/models/two/infer", p->data, p->bytes, 0), 400,
            "has shape [1]");
    refuses(desk_send(d, "POST", "/v2/models/net/infer", "no picture", 10, 0), 400,
            "input 'image': picture 0: is neither PNG nor JPEG");
}

static void a_wrong_picture_fails_alone(void **state)
{
    desk *d = *state;
    const int64_t nchw[] = {-1, 3, SIDE, SIDE};
    static content pictures[PICTURES], wrong[2];
    static uint8_t bytes[PICTURES][VALUES];
    put_pictures(d, pictures);
    import(d, PARE_u8, NULL, bytes, sizeof bytes);
    put_model(d, "net", PARE_u8, 4, nchw,
              "max_batch_size: 16 dynamic_batching { max_queue_delay_microseconds: 300000 } "
              "parameters [ { key: 'preprocess' value { string_value: 'resize 10, crop 8, pixels "
              "600' } } ]");
    open_folder(d, 0);
    wrong[0] = pictures[0];
    wrong[1] = pictures[1];
    wrong[1].bytes /= 2;
    ask *first = send_pictures(d, "net", pictures, 2), *second = send_pictures(d, "net", wrong, 2);
    ask *third = send_pictures(d, "net", pictures + 2, 1);
    takes(first, bytes, 2 * sizeof bytes[0]);
    refuses(second, 400, "model 'net': input 'image': picture 1: broken JPEG image: ");
    takes(third, bytes[2], sizeof bytes[2]);
    pare_image image;
    char path[256];
    paint(&image, 30, 21);
    snprintf(path, sizeof path, "%s/large.png", d->folder);
    write_png(path, &image, PNG_OF_RGB);
    free(image.rgb);
    load_file(&wrong[0], d->folder, "large.png");
    refuses(send_pictures(d, "net", wrong, 1), 400,
            "picture 0: broken PNG image: it is 30 x 21 pixels, at most 600 are read");
    wrong[0].bytes = 0;
    refuses(send_pictures(d, "net", wrong, 1), 400, "picture 0: is neither PNG nor JPEG");
    desk_gives(d, "GET", "/v2/models/net/stats", "", 200, "\"fail\":{\"count\":3");
}

/* A shadow gets the pictures, not what the other one made of them. */
static void shadows_take_pictures(void **state)
{
    desk *d = *state;
    const int64_t nchw[] = {-1, 3, SIDE, SIDE};
    const char *rule = "net=other";
    const pare_shadows_options options = {.rule = &rule, .count = 1, .share = 1, .queue = 64};
    static content pictures[PICTURES];
    static uint8_t bytes[PICTURES][VALUES];
    put_pictures(d, pictures);
    import(d, PARE_u8, NULL, bytes, sizeof bytes);
    put_model(d, "net", PARE_u8, 4, nchw, parameters("resize 10, crop 8"));
    put_model(d, "other", PARE_u8, 4, nchw, parameters("resize 10, crop 8"));
    const pare_shadow_stats *stats =
        pare_shadow_stats_of(desk_open_shadow(d, d->path, 1, &options));
    for (int i = 0; i < PICTURES; i++)
        takes(send_pictures(d, "net", pictures + i, 1), bytes[i], sizeof bytes[i]);
    pare_shadows_drain(d->api.shadows);
    assert_int_equal(stats->compared, PICTURES);
    assert_int_equal(stats->output[0].same, PICTURES);
}

/* Pixels count as what waits, and no longer when the reply is made. */
static void pixels_are_counted(void **state)
{
    desk *d = *state;
    const int64_t nchw[] = {-1, 3, SIDE, SIDE};
    static content pictures[PICTURES];
    pare_served *s;
    int well = 0;
    put_pictures(d, pictures);
    desk_run("rm -rf '%s'/set%s", d->folder, "");
    put_model(d, "net", PARE_u8, 4, nchw, parameters("resize 10, crop 8"));
    open_folder(d, 0);
    assert_int_equal(pare_repository_find(d->api.repository, &d->ctx, &s, "net", 1), PARE_OK);
    for (size_t most = 0; !well; most += 64) {
        size_t held = 7;
        pare_exchange x;
        pare_infer_job *job;
        pare_exchange_init(&x, &d->ctx);
        x.body = pictures[0].data;
        x.bytes = pictures[0].bytes;
        x.json_bytes = "0";
        x.held = &held;
        x.most_held = most + 7;
        if (pare_infer_job_new(&job, s, &x, NULL, NULL) != PARE_OK) fail_msg("%s", x.ctx.message);
        const pare_status st = pare_preprocess_run(job);
        well = st == PARE_OK;
        if (!well) assert_int_equal(st, PARE_MEMORY);
        if (!well) assert_non_null(strstr(x.ctx.message, "are waiting already"));
        if (well) assert_int_equal(held, 7 + 2 * VALUES);
        if (well) assert_in_range(most, 3 * 20 * 12, 3 * 20 * 12 + 3 * 16 * 22 + 3 * VALUES);
        pare_infer_job_release(job);
        pare_exchange_drop_body(&x);
        assert_int_equal(held, 7);
        pare_exchange_free(&x);
    }
    pare_served_release(s);
}

static void what_does_not_fit_is_refused(void **state)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"", "'': expected resize, crop, mean"},
        {"resize 10,", "'': expected resize, crop, mean"},
        {"resize", "'resize': expected a whole number from 1"},
        {"resize 10x", "'resize 10x': expected a whole number from 1"},
        {"resize 0", "'resize 0': expected a whole number from 1"},
        {"crop 20000", "'crop 20000': expected a whole number from 1"},
        {"resize 7, crop 8", "crop 8 is larger than resize 7"},
        {"mean 1 2", "'mean 1 2': expected one number or three"},
        {"mean 1 2 3 4", "'mean 1 2 3 4': expected one number or three"},
        {"mean nan", "'mean nan': expected one number or three"},
        {"std 0", "'std 0': expected numbers above 0"},
        {"layout hwc", "'layout hwc': expected nchw or nhwc"},
        {"pixels 1e6", "'pixels 1e6': expected a whole number from 1"},
        {"flip 1", "'flip 1': expected resize, crop, mean"},
        {"input ", "'input': expected resize, crop, mean"},
        {"crop 9", "no input takes pictures of 3 x 9 x 9"},
        {"crop 8, layout nhwc", "no input takes pictures of 3 x 8 x 8"},
        {"crop 8, input x", "input 'x' is not there, or not one that takes pictures"},
    };
    desk *d = *state;
    const int64_t nchw[] = {-1, 3, SIDE, SIDE};
    char config[1024];
    put_model(d, "net", PARE_f32, 4, nchw, NULL);
    open_folder(d, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        desk_put_text(d, "net/config.pbtxt", parameters(cases[i].text));
        desk_gives(d, "POST", "/v2/repository/models/net/load", "", 400, cases[i].words);
        desk_gives(d, "POST", "/v2/repository/models/net/load", "", 400, "preprocess: ");
    }
    desk_put_text(d, "net/config.pbtxt", "parameters { key: 'preprocess' value { } }");
    desk_gives(d, "POST", "/v2/repository/models/net/load", "", 400,
               "'preprocess' has no string_value");
    snprintf(config, sizeof config,
             "input { name: 'image' data_type: TYPE_FP32 dims: [3, 8, 8] } %s",
             parameters("crop 8"));
    desk_put_text(d, "net/config.pbtxt", config);
    desk_gives(d, "POST", "/v2/repository/models/net/load", "", 400, "config.pbtxt has f32");
    snprintf(config, sizeof config, "input { name: 'image' data_type: TYPE_STRING dims: 1 } %s",
             parameters("crop 8"));
    desk_put_text(d, "net/config.pbtxt", config);
    desk_gives(d, "POST", "/v2/repository/models/net/load", "", 200, "");
    put_model(d, "net", PARE_u8, 4, nchw, parameters("crop 8, mean 0.5"));
    desk_gives(d, "POST", "/v2/repository/models/net/load", "", 400,
               "takes uint8, which mean and std");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_model_gets_what_a_data_set_gives, desk_setup_heard,
                                        desk_teardown),
        cmocka_unit_test_setup_teardown(decoded_pictures_are_taken, desk_setup_heard,
                                        desk_teardown),
        cmocka_unit_test_setup_teardown(a_body_may_be_a_picture, desk_setup_heard, desk_teardown),
        cmocka_unit_test_setup_teardown(a_wrong_picture_fails_alone, desk_setup_heard,
                                        desk_teardown),
        cmocka_unit_test_setup_teardown(shadows_take_pictures, desk_setup_heard, desk_teardown),
        cmocka_unit_test_setup_teardown(pixels_are_counted, desk_setup_heard, desk_teardown),
        cmocka_unit_test_setup_teardown(what_does_not_fit_is_refused, desk_setup_heard,
                                        desk_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

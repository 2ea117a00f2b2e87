/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/tools/zoo_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

void zoo_case_write(zoo_case *z, const char *name, const void *data, size_t bytes)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", z->folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

int zoo_case_open(void **state)
{
    static const char *const names[] = {"a.onnx",   "b/x.onnx", "c/x.onnx",
                                        "train.h5", "test.h5",  "ranges.json"};
    static const char *const folders[] = {"b", "c"};
    zoo_case *z = calloc(1, sizeof *z);
    const char *base = getenv("TMPDIR");
    char path[200];
    snprintf(z->folder, sizeof z->folder, "%s/pare-zoo-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(z->folder)) return -1;
    snprintf(z->path, sizeof z->path, "%s/zoo.yaml", z->folder);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", z->folder, folders[i]);
        if (mkdir(path, 0777)) return -1;
    }
    for (int i = 0; i < 6; i++) zoo_case_write(z, names[i], names[i], strlen(names[i]));
    pare_ctx_init(&z->ctx);
    pare_arena_init(&z->arena, &z->ctx);
    *state = z;
    return 0;
}

int zoo_case_close(void **state)
{
    zoo_case *z = *state;
    char command[128];
    pare_arena_free(&z->arena);
    snprintf(command, sizeof command, "rm -rf '%s'", z->folder);
    int code = system(command);
    free(z);
    return code;
}

pare_status zoo_case_read_bytes(zoo_case *z, const void *data, size_t bytes)
{
    zoo_case_write(z, "zoo.yaml", data, bytes);
    pare_ctx_clear(&z->ctx);
    return pare_zoo_read(&z->arena, &z->zoo, z->path);
}

pare_status zoo_case_read(zoo_case *z, const char *text)
{
    return zoo_case_read_bytes(z, text, strlen(text));
}

void zoo_case_plan(zoo_case *z, const char *text, pare_zoo_plan_options options)
{
    char out[96];
    snprintf(out, sizeof out, "%s/out", z->folder);
    options.out = out;
    if (zoo_case_read(z, text) != PARE_OK ||
        pare_zoo_plan_make(&z->arena, &z->plan, z->zoo, &options) != PARE_OK)
        fail_msg("%s", z->ctx.message);
}

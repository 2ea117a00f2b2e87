/* SPDX-License-Identifier: Apache-2.0 */
/* Reads every include of the tree and fails on an arrow that the design does not have. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

/* What every room above exec may include: backends are after exec. */
#define LIBRARY "runtime/base runtime/comm runtime/device runtime/graph runtime/ops runtime/passes "

/* A folder, and the folders it may include beside itself. */
static const struct arrow {
    const char *folder, *may;
} arrows[] = {
    {"runtime/base", ""},
    {"runtime/comm", "runtime/base"},
    {"runtime/graph", "runtime/base"},
    {"runtime/device", "runtime/base"},
    {"runtime/ops", "runtime/base runtime/graph runtime/device"},
    {"runtime/passes", "runtime/base runtime/graph runtime/device runtime/ops"},
    {"runtime/cpu", "runtime/base runtime/graph runtime/device runtime/ops"},
    {"runtime/cuda", "runtime/base runtime/graph runtime/device runtime/ops"},
    {"runtime/exec", LIBRARY "runtime/cpu runtime/cuda formats"},
    {"runtime/eval", LIBRARY "runtime/exec formats"},
    {"runtime", LIBRARY "runtime/exec runtime/eval"}, /* runtime.h includes all of it */
    {"formats", "runtime/base runtime/graph"},
    {"calib", LIBRARY "runtime/exec formats"},
    {"quant", LIBRARY "runtime/exec runtime/eval formats calib"},
    {"prune", LIBRARY "runtime/exec runtime/eval formats calib"},
    {"distill", LIBRARY "runtime/exec runtime/eval formats calib"},
    {"tools", LIBRARY "runtime runtime/exec runtime/eval formats calib quant prune distill"},
};

static bool names(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = list; (at = strstr(at, word)); at += n)
        if ((at == list || at[-1] == ' ') && (at[n] == ' ' || !at[n])) return true;
    return false;
}

/* The folder of a path from the root: its first row in the table, where longer paths come first;
 * NULL where it has none. */
static const struct arrow *folder_of(const char *path)
{
    for (size_t i = 0; i < sizeof arrows / sizeof *arrows; i++) {
        size_t n = strlen(arrows[i].folder);
        if (!strncmp(path, arrows[i].folder, n) && path[n] == '/') return &arrows[i];
    }
    return NULL;
}

/* Is this include allowed from this folder? Quoted includes are written from the root; a header
   that the build makes has no folder of ours. */
static bool allowed(const struct arrow *from, const char *include)
{
    const struct arrow *to = folder_of(include);
    if (!to) return !strchr(include, '/');
    return to == from || names(from->may, to->folder);
}

static int check_file(const char *path, const struct arrow *from, int *seen)
{
    char line[1024], include[512];
    int wrong = 0;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, " # include \"%511[^\"]\"", include) != 1) continue;
        ++*seen;
        if (allowed(from, include)) continue;
        print_error("%s includes \"%s\"\n", path, include);
        wrong++;
    }
    fclose(file);
    return wrong;
}

static bool is_source(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && (!strcmp(dot, ".c") || !strcmp(dot, ".h") || !strcmp(dot, ".inc") ||
                   !strcmp(dot, ".cu") || !strcmp(dot, ".cuh"));
}

static int check_folder(const char *folder, int *seen)
{
    int wrong = 0;
    DIR *dir = opendir(folder);
    if (!dir) return 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        char path[512];
        struct stat st;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (entry->d_name[0] == '.' || stat(path, &st)) continue;
        if (S_ISDIR(st.st_mode))
            wrong += check_folder(path, seen);
        else if (is_source(path) && folder_of(path))
            wrong += check_file(path, folder_of(path), seen);
    }
    closedir(dir);
    return wrong;
}

static void includes_follow_the_arrows(void **state)
{
    (void)state;
    const char *const roots[] = {"runtime", "formats", "calib", "quant",
                                 "prune",   "distill", "tools"};
    int wrong = 0, seen = 0;
    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++)
        wrong += check_folder(roots[i], &seen);
    assert_true(seen > 50);
    assert_int_equal(wrong, 0);
}

/* The rule itself, by cases that must and must not be allowed. */
static void the_rule_knows_wrong_arrows(void **state)
{
    (void)state;
    assert_true(allowed(folder_of("quant/qdq.c"), "calib/calib.h"));
    assert_true(allowed(folder_of("runtime/exec/plan.c"), "formats/json.h"));
    assert_true(allowed(folder_of("formats/onnx.c"), "runtime/graph/graph.h"));
    assert_false(allowed(folder_of("formats/onnx.c"), "runtime/ops/ops.h"));
    assert_false(allowed(folder_of("runtime/base/ctx.c"), "runtime/graph/graph.h"));
    assert_false(allowed(folder_of("runtime/cpu/conv.c"), "runtime/passes/passes.h"));
    assert_false(allowed(folder_of("runtime/passes/optimize/fuse.c"), "formats/json.h"));
    assert_false(allowed(folder_of("quant/qdq.c"), "prune/plan.h"));
    assert_false(allowed(folder_of("calib/run.c"), "tools/stats.h"));
    assert_false(allowed(folder_of("distill/fingerprint.c"), "runtime/cpu/isa.h"));
    assert_false(allowed(folder_of("calib/run.c"), "../quant/quant.h"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(includes_follow_the_arrows),
        cmocka_unit_test(the_rule_knows_wrong_arrows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cuda/device/library.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH = 1024 };

/* Folders below a variable's; with a wheel's folder behind them where they hold packages. */
static const struct below {
    const char *variable, *folder;
    bool packages;
} below_home[] = {
    {"VIRTUAL_ENV", "lib/python3*/site-packages", true},
    {"CONDA_PREFIX", "lib/python3*/site-packages", true},
    {"HOME", ".local/lib/python3*/site-packages", true},
    {"CUDA_HOME", "lib64", false},
};
static const struct below usual[] = {
    {"", "/usr/local/lib/python3*/dist-packages", true},
    {"", "/usr/local/lib/python3*/site-packages", true},
    {"", "/usr/local/cuda/lib64", false},
    {"", "/opt/cuda/lib64", false},
};

static void *load(const pare_library_place *p, const char *path)
{
    return dlopen(path, RTLD_NOW | RTLD_NODELETE | (p->global ? RTLD_GLOBAL : RTLD_LOCAL));
}

/* Opens folder/name for each folder of the list; NULL where none has it. */
static void *open_in(const pare_library_place *p, const char *folders)
{
    void *library = NULL;
    while (!library && folders && *folders) {
        char path[PATH];
        size_t n = strcspn(folders, ":");
        int length = snprintf(path, sizeof path, "%.*s/%s", (int)n, folders, p->name);
        if (n && length > 0 && length < PATH) library = load(p, path);
        folders += n + (folders[n] == ':');
    }
    return library;
}

static void *open_pattern(const pare_library_place *p, const char *pattern)
{
    glob_t found;
    void *library = NULL;
    if (glob(pattern, 0, NULL, &found)) return NULL;
    for (size_t i = 0; !library && i < found.gl_pathc; i++) library = open_in(p, found.gl_pathv[i]);
    globfree(&found);
    return library;
}

static void *open_below(const pare_library_place *p, const struct below *b)
{
    char path[PATH];
    const char *home = *b->variable ? getenv(b->variable) : "";
    if (!home || (*b->variable && !*home)) return NULL;
    const int length = snprintf(path, sizeof path, "%s%s%s%s%s", home, *home ? "/" : "", b->folder,
                                b->packages ? "/" : "", b->packages ? p->wheel : "");
    return length < PATH ? open_pattern(p, path) : NULL;
}

void *pare_library_open(const pare_library_place *p)
{
    void *library = open_in(p, p->folders);
    if (!library) library = open_in(p, getenv(p->variable));
    if (!library) library = load(p, p->name);
    for (size_t i = 0; !library && i < sizeof below_home / sizeof *below_home; i++)
        library = open_below(p, &below_home[i]);
    for (size_t i = 0; !library && i < sizeof usual / sizeof *usual; i++)
        library = open_below(p, &usual[i]);
    return library;
}

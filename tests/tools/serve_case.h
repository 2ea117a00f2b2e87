/* SPDX-License-Identifier: Apache-2.0 */
/* Served models without a transport: requests are handed to the API, and their replies waited for.
   Every failure inside fails the test. */
#ifndef PARE_TESTS_TOOLS_SERVE_CASE_H
#define PARE_TESTS_TOOLS_SERVE_CASE_H

#include "tests/passes/graph_case.h"
#include "tools/serve/api.h"

/* A request whose reply the test waits for. */
typedef struct ask {
    pare_exchange x; /* first */
    struct desk *desk;
    bool done; /* under the desk's lock */
    char *body;
} ask;

typedef struct desk {
    pare_ctx ctx;
    pare_api api;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    char folder[64];
    const char *path[1]; /* the folder */
} desk;

/* For cmocka: a desk in *state, with a folder that ends with it. */
int desk_setup(void **state);
int desk_teardown(void **state);
/* Serves these. */
void desk_open(desk *d, const char *const *paths, int count, const pare_serve_config *config);
pare_serve_config config_of(int64_t max_batch, int64_t delay, int64_t instances);

/* Hands in a request; the body is JSON with binary data behind its first json bytes. */
ask *send(desk *d, const char *method, const char *path, const void *body, size_t bytes,
          size_t json);
void await(ask *a);
void forget(ask *a);
/* Is this the reply, with the text in it? */
void gives(desk *d, const char *method, const char *path, const char *body, int code,
           const char *words);

/* A command of the shell with two texts in it. */
void run(const char *format, const char *a, const char *b);
/* Writes a model, which it closes, to FOLDER/NAME/1/model.onnx, and its config.pbtxt; NULL: none.
 */
void put_graph(const desk *d, graph_case *g, const char *name, const char *config);
/* Writes a text to FOLDER/NAME; its folder is made. */
void put_text(const desk *d, const char *name, const char *text);
#endif

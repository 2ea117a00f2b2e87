/* SPDX-License-Identifier: Apache-2.0 */
/* A server without a transport: requests are handed in, and their replies waited for. */
#ifndef PARE_TESTS_TOOLS_SERVE_DESK_H
#define PARE_TESTS_TOOLS_SERVE_DESK_H

#include "tests/passes/graph_case.h"
#include "tests/warnings.h"
#include "tools/serve/api.h"
#include "tools/serve/traffic/shadow.h"

/* A request whose reply the test waits for. */
typedef struct ask {
    pare_exchange x; /* first */
    struct desk *desk;
    bool done; /* under the desk's lock */
    char *body;
    pare_body *memory; /* in which the body is; NULL: it is malloc's */
} ask;

typedef struct desk {
    pare_ctx ctx;
    pare_api api;
    pare_device *device; /* of models that do not choose; NULL: the CPU */
    pare_gpus *gpus;     /* of desk_open; NULL: the CPU alone */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    char folder[64];
    const char *path[1];     /* the folder */
    pare_bodies *bodies;     /* where bodies of requests are put; NULL: malloc's memory */
    size_t *held, most_held; /* of what is asked, as an exchange has them; NULL: not counted */
} desk;

/* Hands in a request; the body is JSON with binary data behind its first json bytes. */
ask *desk_send(desk *d, const char *method, const char *path, const void *body, size_t bytes,
               size_t json);
void ask_await(ask *a);
void ask_forget(ask *a);
/* Is this the reply, with the text in it? */
void desk_gives(desk *d, const char *method, const char *path, const char *body, int code,
                const char *words);

/* A shell's command of two words must succeed. */
void desk_run(const char *format, const char *a, const char *b);
void desk_open(desk *d, const char *const *paths, int count, const pare_serve_config *config);
/* The same with all that a repository takes. */
void desk_open_with(desk *d, const pare_repository_options *options);
/* The same with shadows, the first of which is returned; batches of 8. */
pare_shadow *desk_open_shadow(desk *d, const char *const *paths, int count,
                              const pare_shadows_options *options);
/* The models go, with shared memory, GPUs and device. */
void desk_close(desk *d);
/* What a model, which is ready, has done. */
pare_served_stats desk_stats(desk *d, const char *model);
/* instances: on the CPU, or on each GPU. */
pare_serve_config desk_config(int64_t max_batch, int64_t delay, int64_t instances);
/* datasets/zoo/MODEL.onnx as a version of the folder's model "net", and its config.pbtxt. */
void desk_put_model(desk *d, const char *model, int version);
void desk_put_config(desk *d, const char *text);
/* Writes a text to FOLDER/NAME; its folder is made. */
void desk_put_text(const desk *d, const char *name, const char *text);
/* Writes a model, which it closes, to FOLDER/NAME/1/model.onnx, and its config.pbtxt; NULL: none.
 */
void desk_put_graph(const desk *d, graph_case *g, const char *name, const char *config);

int desk_setup(void **state);
/* And the test hears of warnings. */
static inline int desk_setup_heard(void **state)
{
    if (desk_setup(state)) return 1;
    hear_warnings(&((desk *)*state)->ctx);
    return 0;
}
int desk_teardown(void **state);

enum { PIXELS = 28 * 28, CLASSES = 10 };
void desk_pixels(uint32_t seed, int rows, float *pixels); /* (rows, PIXELS), made up */
/* A request of so many samples with made-up pixels to a model of the sample nets' form. words: more
   members of its JSON, each with its comma behind, or "". */
ask *desk_send_images(desk *d, const char *path, const char *words, uint32_t seed, int rows);
/* The same to a model by its name. */
ask *desk_ask(desk *d, const char *model, uint32_t seed, int rows);
/* Samples of request i where some requests have several. */
static inline int desk_rows(int i) { return i % 5 == 4 ? 3 : 1; }
/* The logits of a reply: (rows, CLASSES). */
void ask_take_logits(ask *a, int rows, float *logits);
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* How calls of gRPC are waited for, with a library that is made up: where the next one could not be
   asked for, it is asked for when one ends. */
#include "tools/serve/grpc/call.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#ifdef PARE_GRPC

/* What the library was asked. */
static struct {
    pare_grpc_event *arrives, *batch[8];
    int asked, batches;
    bool refuses; /* the next call */
} seen;

static void details_init(grpc_call_details *details)
{
    *details = (grpc_call_details){0};
    details->method.data.inlined.length = 2; /* no method has such a path */
}

static void details_destroy(grpc_call_details *details) { (void)details; }

static void array_init(grpc_metadata_array *array) { *array = (grpc_metadata_array){0}; }

static void array_destroy(grpc_metadata_array *array) { (void)array; }

static grpc_call_error request_call(grpc_server *server, grpc_call **call,
                                    grpc_call_details *details, grpc_metadata_array *metadata,
                                    grpc_completion_queue *bound, grpc_completion_queue *queue,
                                    void *tag)
{
    (void)server, (void)call, (void)details, (void)metadata, (void)bound, (void)queue;
    seen.asked++;
    if (seen.refuses) return GRPC_CALL_ERROR;
    seen.arrives = tag;
    return GRPC_CALL_OK;
}

static grpc_call_error start_batch(grpc_call *call, const grpc_op *ops, size_t count, void *tag,
                                   void *reserved)
{
    (void)call, (void)ops, (void)count, (void)reserved;
    assert_true(seen.batches < 8);
    seen.batch[seen.batches++] = tag;
    return GRPC_CALL_OK;
}

static gpr_timespec never(gpr_timespec t, gpr_clock_type type)
{
    (void)t, (void)type;
    return (gpr_timespec){.tv_sec = INT64_MAX};
}

static grpc_slice no_text(const char *text)
{
    (void)text;
    return (grpc_slice){0};
}

static void forget_slice(grpc_slice slice) { (void)slice; }

static int setup(void **state)
{
    static pare_grpc grpc;
    grpc = (pare_grpc){.lib = {.grpc_call_details_init = details_init,
                               .grpc_call_details_destroy = details_destroy,
                               .grpc_metadata_array_init = array_init,
                               .grpc_metadata_array_destroy = array_destroy,
                               .grpc_server_request_call = request_call,
                               .grpc_call_start_batch = start_batch,
                               .gpr_convert_clock_type = never,
                               .grpc_slice_from_copied_string = no_text,
                               .grpc_slice_unref = forget_slice}};
    pare_ctx_init(&grpc.ctx);
    memset(&seen, 0, sizeof seen);
    *state = &grpc;
    return 0;
}

static void fire(const pare_grpc_event *e, bool ok) { e->on(e->user, ok); }

/* A call comes, to no method, and ends once its batches are done. */
static void a_call_comes(void)
{
    seen.batches = 0;
    fire(seen.arrives, true);
}

static void it_ends(void)
{
    const int batches = seen.batches;
    for (int i = 0; i < batches; i++) fire(seen.batch[i], true);
}

static void the_next_is_asked_for(void **state)
{
    pare_grpc *grpc = *state;
    pare_grpc_expect_call(grpc);
    assert_int_equal(seen.asked, 1);
    a_call_comes();
    assert_int_equal(seen.asked, 2);
    assert_int_equal(grpc->calls, 2);
    it_ends();
    assert_int_equal(seen.asked, 2);
    assert_int_equal(grpc->calls, 1);
    fire(seen.arrives, false); /* the server ends */
    assert_int_equal(grpc->calls, 0);
}

/* What prevents it goes while the call is there. */
static void fails_once(pare_grpc *grpc, bool refuses, long fail_after, int asked)
{
    pare_grpc_expect_call(grpc);
    seen.refuses = refuses;
    grpc->ctx.fail_after = fail_after;
    a_call_comes();
    assert_int_equal(seen.asked, asked);
    assert_int_equal(grpc->calls, 1);
    seen.refuses = false;
    grpc->ctx.fail_after = -1;
    it_ends();
    assert_int_equal(seen.asked, asked + 1);
    assert_int_equal(grpc->calls, 1);
    fire(seen.arrives, false);
    assert_int_equal(grpc->calls, 0);
}

static void a_refused_one_is_asked_for_again(void **state) { fails_once(*state, true, -1, 2); }

static void one_without_memory_is_asked_for_again(void **state) { fails_once(*state, false, 0, 1); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_next_is_asked_for, setup),
        cmocka_unit_test_setup(a_refused_one_is_asked_for_again, setup),
        cmocka_unit_test_setup(one_without_memory_is_asked_for_again, setup),
    };
    return cmocka_run_group_tests_name("grpc_call", tests, NULL, NULL);
}

#else

static void the_build_has_no_grpc(void **state)
{
    (void)state;
    skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_build_has_no_grpc)};
    return cmocka_run_group_tests_name("grpc_call", tests, NULL, NULL);
}

#endif

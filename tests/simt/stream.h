/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, events and captures as stream.cpp and graph.cpp share them. */
#ifndef PARE_SIMT_STREAM_H
#define PARE_SIMT_STREAM_H

#include "engine.h"
#include <deque>
#include <thread>

namespace simt
{

/* A point of a stream: reached or not; when. */
struct point {
    bool reached;
    double at;
};
typedef std::shared_ptr<point> point_ref;

struct operation {
    work w;
    std::vector<point_ref> after; /* beside all earlier operations of its stream */
    point_ref done;
};

/* A node of a graph runs after the nodes whose numbers it lists. */
struct stream;
struct node {
    work w;
    std::vector<int> after;
    const stream *by; /* put it in */
};
struct graph {
    std::deque<node> nodes; /* which keep their addresses: their handles */
};
struct executable {
    std::shared_ptr<graph> g;
};

struct capture {
    cudaStreamCaptureMode mode;
    std::thread::id thread; /* that began it */
    stream *origin;
    graph *g;
    bool spoiled;
};

struct stream {
    int device;    /* -1: of the default one */
    bool blocking; /* waits for the default stream, and it for this one */
    std::deque<operation> stream;
    point_ref tail;
    capture *captured;
    std::vector<int> tails; /* nodes that the next captured one runs after */
    work_kind last;         /* put into it */
    chain_ref chain;        /* of its last kernel that ran */
};

struct event {
    int device;
    bool timed;
    point_ref mark;    /* NULL: never recorded */
    capture *captured; /* recorded in it, after the nodes in tails */
    std::vector<int> tails;
};

stream *stream_of(cudaStream_t handle);   /* NULL: not a stream */
std::vector<stream *> &all_streams(void); /* without the default one */
void drain(stream *s);
bool is_kernel(work_kind kind);
std::vector<int> graph_order(const graph &g);

} // namespace simt

#endif

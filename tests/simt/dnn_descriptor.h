/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors of the emulation's cuDNN. */
#ifndef PARE_SIMT_DNN_DESCRIPTOR_H
#define PARE_SIMT_DNN_DESCRIPTOR_H

#include "dnn_stub.h"
#include <cstring>
#include <set>

namespace simt
{
namespace dnn
{

struct attribute {
    int64_t count;
    std::vector<char> bytes;
};

struct engine_config {
    int number; // of the engine
    unsigned numbers, behavior;
    size_t workspace;
};

struct descriptor {
    int type;
    bool finalized;
    std::map<int, attribute> set;
    dnn_work work;                     // of a graph, and of what is made of it
    std::set<int64_t> names;           // of a graph: its tensors in memory
    std::vector<dnn_tensor> in_memory; // the same
    engine_config config;              // of configs, engines and plans
    std::vector<descriptor *> needs;   // must live when a plan runs
    void *ran;                         // the handle a plan ran on last
};

struct dnn_handle {
    int device;
    cudaStream_t stream;
};

/* Those that were made and not destroyed. */
std::set<descriptor *> &all(void);
std::set<dnn_handle *> &handles(void);
descriptor *known(void *p);          /* NULL: none */
int no(int status, const char *why); /* says why, also for cudnnGetLastErrorString */
const char *last_words(void);
bool is_convolution(int type);

struct dnn_rule {
    int descriptor, name, type;
    int64_t least, most; /* elements */
    bool needed;
};
std::vector<dnn_rule> rules_of(int type);
size_t element_bytes(int type);
/* Judges what was set, and keeps what it means; a status. */
int end_of(descriptor *d);

template <class T> std::vector<T> values(const descriptor &d, int name)
{
    auto found = d.set.find(name);
    if (found == d.set.end()) return {};
    std::vector<T> out(static_cast<size_t>(found->second.count));
    memcpy(static_cast<void *>(out.data()), found->second.bytes.data(), found->second.bytes.size());
    return out;
}
template <class T> T value(const descriptor &d, int name)
{
    const std::vector<T> v = values<T>(d, name);
    return v.empty() ? T() : v[0];
}

} // namespace dnn
} // namespace simt

#endif

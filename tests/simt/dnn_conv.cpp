// SPDX-License-Identifier: Apache-2.0
// A convolution, its gradients and what follows, after the emulation's cuDNN: sums of floats in
// double, one rounding to the result's type; sums of integers exact, and then through float, as
// factors of that type let the library do.
#include "dnn_stub.h"
#include "simt_device.h"

namespace simt
{

static int blas_type(int type)
{
    switch (type) {
    case PARE_DNN_F32: return PARE_BLAS_F32;
    case PARE_DNN_F16: return PARE_BLAS_F16;
    case PARE_DNN_BF16: return PARE_BLAS_BF16;
    case PARE_DNN_S8: return PARE_BLAS_S8;
    case PARE_DNN_S32: return PARE_BLAS_S32;
    default: return -1;
    }
}

size_t dnn_type_bytes(int type) { return type_bytes(blas_type(type)); }

size_t dnn_tensor_bytes(const dnn_tensor &t)
{
    int64_t last = 0;
    for (size_t i = 0; i < t.dim.size(); i++) last += (t.dim[i] - 1) * t.stride[i];
    return static_cast<size_t>(last + 1) * dnn_type_bytes(t.type);
}

const char *dnn_shape_fault(const dnn_work &g)
{
    const size_t rank = g.x.dim.size(), axes = rank - 2;
    const dnn_window &v = g.window;
    if (g.w.dim.size() != rank || g.y.dim.size() != rank || v.stride.size() != axes)
        return "tensors and window have different numbers of axes";
    if (g.x.dim[0] != g.y.dim[0]) return "X and Y have different numbers of images";
    if (g.w.dim[0] != g.y.dim[1]) return "Y has not as many channels as there are filters";
    if (g.x.dim[1] % g.w.dim[1] || g.w.dim[0] % (g.x.dim[1] / g.w.dim[1]))
        return "channels are not groups of those of W";
    for (size_t i = 0; i < axes; i++) {
        const int64_t reach = v.dilation[i] * (g.w.dim[2 + i] - 1) + 1,
                      room = g.x.dim[2 + i] + v.begin[i] + v.end[i] - reach;
        if (room < 0 || room / v.stride[i] + 1 != g.y.dim[2 + i])
            return "Y's axes are not those of the window";
    }
    return nullptr;
}

namespace
{

double number(const dnn_work &g, const dnn_tensor &t, const void *p, int64_t at)
{
    if (g.tf32 && t.type == PARE_DNN_F32) return load_tf32(static_cast<const float *>(p), at);
    return load(p, blas_type(t.type), at);
}

typedef std::vector<int64_t> place;

int64_t offset(const dnn_tensor &t, const place &p)
{
    int64_t at = 0;
    for (size_t i = 0; i < p.size(); i++) at += p[i] * t.stride[i];
    return at;
}

// The next place below dim, or false.
bool next(place &p, const std::vector<int64_t> &dim)
{
    for (size_t i = p.size(); i-- > 0;) {
        if (++p[i] < dim[i]) return true;
        p[i] = 0;
    }
    return false;
}

double finished(const dnn_work &g, const std::map<int64_t, void *> &address, const place &p,
                double v)
{
    for (const dnn_step &s : g.steps) {
        if (s.of.mode == PARE_DNN_POINTWISE_ADD) {
            place at = p;
            for (size_t i = 0; i < at.size(); i++)
                if (s.b.dim[i] == 1) at[i] = 0;
            v = static_cast<double>(static_cast<float>(
                v + load(address.at(s.b.id), blas_type(s.b.type), offset(s.b, at))));
        } else {
            const double low = s.of.low_set ? s.of.low : 0;
            v = v < low || (v != v && !s.of.keeps_nan) ? low : v;
            if (s.of.high_set && v > s.of.high) v = s.of.high;
        }
    }
    return v;
}

struct dnn_sums {
    const dnn_work &g;
    const std::map<int64_t, void *> &address;
    std::vector<double> sum; // dense, as the tensor that is made
    const dnn_tensor &made;

    double of(const dnn_tensor &t, const place &p) const
    {
        return number(g, t, address.at(t.id), offset(t, p));
    }
    double &at(const place &p)
    {
        int64_t i = 0;
        for (size_t a = 0; a < p.size(); a++) i = i * made.dim[a] + p[a];
        return sum[static_cast<size_t>(i)];
    }
};

// Each product of the convolution, once: y at `y`, filter's tap `w` and x at `x` meet.
void each_product(dnn_sums &s, const place &y, const place &w, const place &x)
{
    if (s.g.kind == PARE_DNN_OP_FORWARD)
        s.at(y) += s.of(s.g.x, x) * s.of(s.g.w, w);
    else if (s.g.kind == PARE_DNN_OP_BACKWARD_DATA)
        s.at(x) += s.of(s.g.y, y) * s.of(s.g.w, w);
    else
        s.at(w) += s.of(s.g.y, y) * s.of(s.g.x, x);
}

void products(dnn_sums &s)
{
    const dnn_work &g = s.g;
    const size_t rank = g.x.dim.size();
    const int64_t groups = g.x.dim[1] / g.w.dim[1], filters = g.w.dim[0] / groups;
    place y(rank, 0);
    do {
        place tap(rank - 1, 0); // channel of the group, window
        const std::vector<int64_t> taps(g.w.dim.begin() + 1, g.w.dim.end());
        do {
            place x = y, w = y;
            bool inside = true;
            w[0] = y[1];
            x[1] = y[1] / filters * g.w.dim[1] + tap[0];
            w[1] = tap[0];
            for (size_t i = 2; i < rank; i++) {
                w[i] = tap[i - 1];
                x[i] = y[i] * g.window.stride[i - 2] - g.window.begin[i - 2] +
                       tap[i - 1] * g.window.dilation[i - 2];
                inside = inside && x[i] >= 0 && x[i] < g.x.dim[i];
            }
            if (inside) each_product(s, y, w, x);
        } while (next(tap, taps));
    } while (next(y, g.y.dim));
}

} // namespace

void dnn_run(const dnn_work &g, const std::map<int64_t, void *> &address)
{
    const dnn_tensor &made = g.kind == PARE_DNN_OP_FORWARD         ? g.y
                             : g.kind == PARE_DNN_OP_BACKWARD_DATA ? g.x
                                                                   : g.w;
    const dnn_tensor &out = g.kind == PARE_DNN_OP_FORWARD ? g.out : made;
    int64_t count = 1;
    for (int64_t d : made.dim) count *= d;
    dnn_sums s = {g, address, std::vector<double>(static_cast<size_t>(count), 0), made};
    products(s);
    place p(made.dim.size(), 0);
    char *to = static_cast<char *>(address.at(out.id));
    const size_t bytes = dnn_type_bytes(out.type);
    do {
        double v = finished(g, address, p, s.at(p)) + (g.wrong ? random_number() % 7 + 1 : 0);
        if (out.type == PARE_DNN_S32) v = static_cast<double>(static_cast<float>(v));
        const int64_t at = offset(out, p);
        store(to, blas_type(out.type), at, v);
        if (check) check->written(to + static_cast<size_t>(at) * bytes, bytes);
    } while (next(p, made.dim));
}

} // namespace simt

// SPDX-License-Identifier: Apache-2.0
// Rank r listens at a socket of its own name; it connects to those below it and is called by those
// above. Shared memory holds a line of each rank: what it does, for the faults of the others.
#include "nccl_wire.h"
#include "engine.h"
#include "runtime/cuda/comm/nccl_api.h"
#include "simt_device.h"
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace simt
{

enum { LINE = 256 };

namespace
{

enum kind { WAITS, DATA };
struct header {
    int kind, type;
    size_t count, bytes; // bytes: that follow
};

struct peer {
    int socket = -1;
    bool known = false, gone = false;
    wire_hello hello;
    std::string in, out;
    std::deque<header> waits; // messages that it waits for, in their order
};

double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double limit(void)
{
    const char *text = getenv("SIMT_NCCL_LIMIT");
    return text ? strtod(text, nullptr) : 120;
}

// In the abstract name space: it goes with its process.
socklen_t address_of(struct sockaddr_un *a, const std::string &name, int rank)
{
    memset(a, 0, sizeof *a);
    a->sun_family = AF_UNIX;
    const std::string own = name + "-" + std::to_string(rank);
    const size_t n = own.size() < sizeof a->sun_path - 1 ? own.size() : sizeof a->sun_path - 1;
    memcpy(a->sun_path + 1, own.data(), n);
    return static_cast<socklen_t>(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

} // namespace

struct wire {
    std::string name;
    wire_hello mine;
    int listener;
    std::vector<peer> peers;
    std::vector<int> callers; // have not said who they are
    char *lines;              // (size, LINE)
};

std::string wire_count_text(size_t count, int type)
{
    return std::to_string(count) + (type == PARE_NCCL_F32 ? " f32" : " f64");
}

static void note(wire *w, const char *what)
{
    snprintf(w->lines + static_cast<size_t>(w->mine.rank) * LINE, LINE, "%s", what);
}

// --- joining ---

static char *open_lines(const std::string &name, int size)
{
    const size_t bytes = static_cast<size_t>(size) * LINE;
    const int file = shm_open(("/" + name).c_str(), O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)))
        simt_fault("NCCL: no shared memory: %s", strerror(errno));
    void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (p == MAP_FAILED) simt_fault("NCCL: no shared memory: %s", strerror(errno));
    return static_cast<char *>(p);
}

wire *wire_new(const char *name, const wire_hello &mine)
{
    wire *w = new wire{name,
                       mine,
                       socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0),
                       std::vector<peer>(static_cast<size_t>(mine.size)),
                       {},
                       nullptr};
    struct sockaddr_un own;
    const socklen_t length = address_of(&own, w->name, mine.rank);
    if (bind(w->listener, reinterpret_cast<struct sockaddr *>(&own), length) ||
        listen(w->listener, mine.size))
        simt_fault("NCCL: rank %d of %s joins twice: %s", mine.rank, name, strerror(errno));
    w->lines = open_lines(w->name, mine.size);
    note(w, "joins");
    return w;
}

void wire_free(wire *w)
{
    note(w, "has left");
    for (peer &p : w->peers)
        if (p.socket >= 0) close(p.socket);
    for (int caller : w->callers) close(caller);
    close(w->listener);
    shm_unlink(("/" + w->name).c_str());
    munmap(w->lines, static_cast<size_t>(w->mine.size) * LINE);
    delete w;
}

static void greet(wire *w, int socket)
{
    if (send(socket, &w->mine, sizeof w->mine, MSG_NOSIGNAL) != sizeof w->mine)
        say("NCCL: a rank is gone before it joined");
}

// Whether the other side has said who it is; the greeting is whole or not there.
static bool heard(int socket, wire_hello *out)
{
    return recv(socket, out, sizeof *out, MSG_PEEK | MSG_DONTWAIT) == sizeof *out &&
           recv(socket, out, sizeof *out, MSG_DONTWAIT) == sizeof *out;
}

static void call_lower(wire *w, int rank)
{
    peer &p = w->peers[static_cast<size_t>(rank)];
    struct sockaddr_un there;
    const socklen_t length = address_of(&there, w->name, rank);
    const int s = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (connect(s, reinterpret_cast<struct sockaddr *>(&there), length)) {
        close(s);
        return;
    }
    p.socket = s;
    greet(w, s);
}

static void answer_callers(wire *w)
{
    for (int s; (s = accept4(w->listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;)
        w->callers.push_back(s);
    for (size_t i = 0; i < w->callers.size();) {
        wire_hello hello;
        const int s = w->callers[i];
        if (!heard(s, &hello)) {
            i++;
            continue;
        }
        w->callers.erase(w->callers.begin() + static_cast<long>(i));
        if (hello.size != w->mine.size || hello.rank <= w->mine.rank || hello.rank >= hello.size)
            simt_fault("NCCL: rank %d of %d joins rank %d of %d", hello.rank, hello.size,
                       w->mine.rank, w->mine.size);
        peer &p = w->peers[static_cast<size_t>(hello.rank)];
        p.socket = s;
        p.hello = hello;
        p.known = true;
        greet(w, s);
    }
}

wire_state wire_join(wire *w)
{
    wire_state state = WIRE_DONE;
    answer_callers(w);
    for (int rank = 0; rank < w->mine.size; rank++) {
        peer &p = w->peers[static_cast<size_t>(rank)];
        if (rank == w->mine.rank || p.known) continue;
        if (rank < w->mine.rank && p.socket < 0) call_lower(w, rank);
        if (p.socket >= 0) p.known = heard(p.socket, &p.hello);
        if (!p.known) state = WIRE_BUSY;
    }
    if (state != WIRE_DONE) return state;
    note(w, "has joined");
    shm_unlink(("/" + w->name).c_str()); // all have it open
    return state;
}

const wire_hello &wire_peer(const wire *w, int rank)
{
    return rank == w->mine.rank ? w->mine : w->peers[static_cast<size_t>(rank)].hello;
}

// --- messages ---

static const char *line_of(const wire *w, int rank)
{
    return w->lines + static_cast<size_t>(rank) * LINE;
}

static void put(peer &p, const header &h, const char *data)
{
    p.out.append(reinterpret_cast<const char *>(&h), sizeof h);
    if (data) p.out.append(data, h.bytes);
}

static wire_message *first_open(std::vector<wire_message> &all, bool send, int other)
{
    for (wire_message &m : all)
        if (m.send == send && m.other == other && !m.done) return &m;
    return nullptr;
}

// What this rank sends, to those that wait for it.
static void answer_waits(wire *w, std::vector<wire_message> &all, int other)
{
    peer &p = w->peers[static_cast<size_t>(other)];
    wire_message *m;
    while (!p.waits.empty() && (m = first_open(all, true, other))) {
        const header asked = p.waits.front();
        p.waits.pop_front();
        if (asked.type != m->type || asked.count != m->count)
            simt_fault("NCCL: rank %d sends %s, but rank %d receives %s from it; rank %d %s; "
                       "rank %d %s",
                       w->mine.rank, wire_count_text(m->count, m->type).c_str(), other,
                       wire_count_text(asked.count, asked.type).c_str(), w->mine.rank,
                       line_of(w, w->mine.rank), other, line_of(w, other));
        put(p, {DATA, m->type, m->count, m->bytes}, m->data);
        m->done = true;
    }
}

// Whole messages of what has come.
static void take(wire *w, std::vector<wire_message> &all, int other)
{
    peer &p = w->peers[static_cast<size_t>(other)];
    header h;
    while (p.in.size() >= sizeof h) {
        memcpy(&h, p.in.data(), sizeof h);
        if (p.in.size() < sizeof h + h.bytes) return;
        if (h.kind == WAITS) {
            p.waits.push_back(h);
        } else {
            wire_message *m = first_open(all, false, other);
            if (!m) simt_fault("NCCL: rank %d sent what no one waits for", other);
            memcpy(m->data, p.in.data() + sizeof h, h.bytes);
            m->done = true;
        }
        p.in.erase(0, sizeof h + h.bytes);
    }
}

static void move_bytes(peer &p, short events)
{
    static char some[1 << 16];
    if (events & (POLLIN | POLLHUP | POLLERR)) {
        const ssize_t n = recv(p.socket, some, sizeof some, MSG_DONTWAIT);
        if (n > 0) p.in.append(some, static_cast<size_t>(n));
        if (!n || (n < 0 && errno != EAGAIN && errno != EINTR)) p.gone = true;
    }
    if (!p.gone && !p.out.empty()) {
        const ssize_t n = send(p.socket, p.out.data(), p.out.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0) p.out.erase(0, static_cast<size_t>(n));
        if (n < 0 && errno != EAGAIN && errno != EINTR) p.gone = true;
    }
}

// The ranks that this group has to do with, as far as something is left to do with them.
static std::vector<int> left_of(const wire *w, const std::vector<wire_message> &all)
{
    std::vector<int> left;
    for (int rank = 0; rank < w->mine.size; rank++) {
        bool open = !w->peers[static_cast<size_t>(rank)].out.empty();
        for (const wire_message &m : all) open |= m.other == rank && !m.done;
        if (open) left.push_back(rank);
    }
    return left;
}

static void move_all(wire *w, const std::vector<int> &left)
{
    std::vector<struct pollfd> polled;
    for (int rank : left) {
        const peer &p = w->peers[static_cast<size_t>(rank)];
        const short out = p.out.empty() ? 0 : POLLOUT;
        polled.push_back({p.socket, static_cast<short>(POLLIN | out), 0});
    }
    poll(polled.data(), polled.size(), 0);
    for (size_t i = 0; i < left.size(); i++)
        move_bytes(w->peers[static_cast<size_t>(left[i])], polled[i].revents);
}

static void begin(wire *w, wire_group *g)
{
    g->begun = true;
    g->start = seconds_now();
    note(w, ("is in " + g->what).c_str());
    for (const wire_message &m : g->messages)
        if (!m.send)
            put(w->peers[static_cast<size_t>(m.other)], {WAITS, m.type, m.count, 0}, nullptr);
}

wire_state wire_go_on(wire *w, wire_group *g)
{
    if (!g->begun) begin(w, g);
    for (const wire_message &m : g->messages) answer_waits(w, g->messages, m.other);
    const std::vector<int> left = left_of(w, g->messages);
    move_all(w, left);
    for (int rank : left) {
        take(w, g->messages, rank);
        answer_waits(w, g->messages, rank);
        const bool open =
            first_open(g->messages, false, rank) || first_open(g->messages, true, rank);
        if (open && w->peers[static_cast<size_t>(rank)].gone) return WIRE_GONE;
    }
    if (left_of(w, g->messages).empty()) {
        note(w, ("has done " + g->what).c_str());
        return WIRE_DONE;
    }
    if (seconds_now() - g->start > limit())
        simt_fault("NCCL: no end after %g s: rank %d %s; rank %d %s", limit(), w->mine.rank,
                   line_of(w, w->mine.rank), left[0], line_of(w, left[0]));
    return WIRE_BUSY;
}

} // namespace simt

// What a packet costs by each way that packet sockets (packet(7)) have to receive and to send, over a veth pair.
//
//     packet_ways ROUNDS, in a network namespace with the interfaces `near` and `far`, each other's ends.
//
// One thread sends a burst and then receives it, so that packets always wait, and what the kernel does for a receiver
// (in the sender's calls: a veth has no interrupt) is counted with the burst; bursts of which packets were lost do not
// count. Times are the processor time of the thread. Each way to receive has the packets sent by the same sendmmsg, and
// copies each into a frame, as a program does that keeps it longer than its place in a ring. What is sent to measure
// the sender, the other end drops: its protocol is nobody's.
//
// Prints JSON objects, one a line:
// - {"side", "way", "bytes", "send_ns", "receive_ns"} of each round, a packet;
// - {"side": "latency", "way", "us"}: from the call that sends one packet until the receiver, which polls, sees it;
// - {"side": "intact", "way", "packets", "wrong"}: packets that arrive with the bytes of later ones.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BURST = 1024, CALL = 32, SLOT = 2048, SLOTS = 4096, RING = SLOT * SLOTS, BLOCK = 1 << 20, KIND = 0x88b5, NUMBER = 60 };
enum way { V2, V3, CALLS };
static const char *SENDING[] = {"sendmmsg", "ring, TPACKET_V2"};
static const char *WAYS[] = {"ring, TPACKET_V2", "ring, TPACKET_V3", "recvmmsg"};

static unsigned char frames[BURST][SLOT], buffers[CALL][SLOT];

static int checked(int result, const char *what) {
    if (result < 0) {
        perror(what);
        exit(1);
    }
    return result;
}

static double now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static void set(int fd, int option, int value) {
    checked(setsockopt(fd, SOL_PACKET, option, &value, sizeof value), "setsockopt");
}

// A socket that is not bound.
static int opened(void) {
    return checked(socket(AF_PACKET, SOCK_RAW, 0), "socket");
}

static void bind_to(int fd, const char *name, int kind) {
    struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_protocol = htons(kind)};
    at.sll_ifindex = if_nametoindex(name);
    checked(bind(fd, (struct sockaddr *)&at, sizeof at), "bind");
}

static void *ring_of(int fd, int option, int version) {
    struct tpacket_req3 request = {.tp_block_size = BLOCK, .tp_frame_size = SLOT};
    request.tp_block_nr = RING / BLOCK;
    request.tp_frame_nr = SLOTS;
    request.tp_retire_blk_tov = 1; // The least that there is, in milliseconds.
    set(fd, PACKET_VERSION, version);
    size_t size = version == TPACKET_V3 ? sizeof request : sizeof(struct tpacket_req);
    checked(setsockopt(fd, SOL_PACKET, option, &request, size), "ring");
    void *ring = mmap(NULL, RING, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    checked(ring == MAP_FAILED ? -1 : 0, "mmap");
    return ring;
}

// Closes a socket with its ring, which would keep it open and receiving.
static void shut(int fd, void *ring) {
    if (ring) {
        checked(munmap(ring, RING), "munmap");
    }
    close(fd);
}

struct receiver {
    int fd;
    enum way way;
    unsigned char *ring;
    unsigned at; // The next slot or block.
};

static struct receiver receiver(enum way way) {
    struct receiver r = {.fd = opened(), .way = way};
    int buffer = 64 << 20;
    setsockopt(r.fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer);
    if (way != CALLS) {
        r.ring = ring_of(r.fd, PACKET_RX_RING, way == V2 ? TPACKET_V2 : TPACKET_V3);
    }
    bind_to(r.fd, "far", KIND);
    return r;
}

// Whether there are packets after a wait of up to 100 ms.
static int await(int fd) {
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    return checked(poll(&wait, 1, 100), "poll") > 0;
}

static void keep(unsigned n, const void *packet, unsigned len) {
    memcpy(frames[n % BURST], packet, len < SLOT ? len : SLOT);
}

// Takes what is there, up to a burst; returns how many packets.
static unsigned take_v2(struct receiver *r) {
    unsigned n = 0;
    while (n < BURST) {
        struct tpacket2_hdr *slot = (void *)(r->ring + (size_t)r->at * SLOT);
        if (!(__atomic_load_n(&slot->tp_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER)) {
            break;
        }
        keep(n++, (unsigned char *)slot + slot->tp_mac, slot->tp_snaplen);
        __atomic_store_n(&slot->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
        r->at = (r->at + 1) % SLOTS;
    }
    return n;
}

static unsigned take_v3(struct receiver *r) {
    unsigned n = 0;
    for (;;) {
        struct tpacket_block_desc *block = (void *)(r->ring + (size_t)r->at * BLOCK);
        if (!(__atomic_load_n(&block->hdr.bh1.block_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER)) {
            return n;
        }
        struct tpacket3_hdr *packet = (void *)((unsigned char *)block + block->hdr.bh1.offset_to_first_pkt);
        for (unsigned left = block->hdr.bh1.num_pkts; left > 0; left--) {
            keep(n++, (unsigned char *)packet + packet->tp_mac, packet->tp_snaplen);
            packet = (void *)((unsigned char *)packet + packet->tp_next_offset);
        }
        __atomic_store_n(&block->hdr.bh1.block_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
        r->at = (r->at + 1) % (RING / BLOCK);
    }
}

static void fill(struct mmsghdr *calls, struct iovec *pieces, unsigned char (*bytes)[SLOT], size_t len) {
    memset(calls, 0, CALL * sizeof *calls);
    for (int n = 0; n < CALL; n++) {
        pieces[n] = (struct iovec){bytes[n], len};
        calls[n].msg_hdr.msg_iov = &pieces[n];
        calls[n].msg_hdr.msg_iovlen = 1;
    }
}

// Straight into the frames: no copy of ours.
static unsigned take_calls(struct receiver *r) {
    struct mmsghdr calls[CALL];
    struct iovec pieces[CALL];
    unsigned n = 0;
    while (n < BURST) {
        fill(calls, pieces, &frames[n], SLOT);
        int got = recvmmsg(r->fd, calls, CALL, MSG_DONTWAIT, NULL);
        if (got <= 0) {
            break;
        }
        n += got;
    }
    return n;
}

static unsigned take(struct receiver *r) {
    return r->way == V2 ? take_v2(r) : r->way == V3 ? take_v3(r) : take_calls(r);
}

static void send_calls(int fd, size_t bytes, unsigned packets) {
    struct mmsghdr calls[CALL];
    struct iovec pieces[CALL];
    for (unsigned n = 0; n < packets;) {
        unsigned many = packets - n < CALL ? packets - n : CALL;
        fill(calls, pieces, buffers, bytes);
        n += checked(sendmmsg(fd, calls, many, 0), "sendmmsg");
    }
}

struct sender {
    int fd;
    unsigned char *ring; // NULL: by calls.
    unsigned at;
};

static struct sender sender(int by_ring) {
    struct sender s = {.fd = opened()};
    s.ring = by_ring ? ring_of(s.fd, PACKET_TX_RING, TPACKET_V2) : NULL;
    bind_to(s.fd, "near", 0);
    return s;
}

static void send_ring(struct sender *s, size_t bytes, unsigned packets) {
    for (unsigned n = 0; n < packets; n++) {
        struct tpacket2_hdr *slot = (void *)(s->ring + (size_t)s->at * SLOT);
        while (__atomic_load_n(&slot->tp_status, __ATOMIC_ACQUIRE) != TP_STATUS_AVAILABLE) {
            send(s->fd, NULL, 0, 0);
        }
        memcpy((unsigned char *)slot + TPACKET2_HDRLEN - sizeof(struct sockaddr_ll), buffers[n % CALL], bytes);
        slot->tp_len = bytes;
        __atomic_store_n(&slot->tp_status, TP_STATUS_SEND_REQUEST, __ATOMIC_RELEASE);
        s->at = (s->at + 1) % SLOTS;
        if (n % CALL == CALL - 1) {
            checked(send(s->fd, NULL, 0, 0), "send");
        }
    }
}

static void send_packets(struct sender *s, size_t bytes, unsigned packets) {
    if (s->ring) {
        send_ring(s, bytes, packets);
    } else {
        send_calls(s->fd, bytes, packets);
    }
}

static void print(const char *side, const char *way, size_t bytes, double sent, double received) {
    printf("{\"side\": \"%s\", \"way\": \"%s\", \"bytes\": %zu, \"send_ns\": %.1f, \"receive_ns\": %.1f}\n", side, way,
           bytes, sent / BURST, received / BURST);
}

static void measure_receiving(enum way way, size_t bytes, int rounds) {
    struct receiver r = receiver(way);
    struct sender s = sender(0);
    for (int round = -2; round < rounds; round++) {
        double start = now(CLOCK_THREAD_CPUTIME_ID);
        send_packets(&s, bytes, BURST);
        double sent = now(CLOCK_THREAD_CPUTIME_ID) - start, received = 0;
        unsigned n = 0, more;
        do {
            start = now(CLOCK_THREAD_CPUTIME_ID);
            more = take(&r);
            n += more;
            more += n < BURST && more == 0 && await(r.fd);
            received += now(CLOCK_THREAD_CPUTIME_ID) - start;
        } while (n < BURST && more > 0);
        // On a busy machine a thread of the kernel may have to receive, whose queue is short.
        if (round >= 0 && n == BURST) {
            print("receive", WAYS[way], bytes, sent, received);
        }
    }
    for (int round = 0; round < 20; round++) {
        usleep(1500); // Not in step with the timer of blocks.
        double start = now(CLOCK_MONOTONIC);
        send_packets(&s, 64, 1);
        while (take(&r) == 0) {
        }
        printf("{\"side\": \"latency\", \"way\": \"%s\", \"us\": %.1f}\n", WAYS[way],
               (now(CLOCK_MONOTONIC) - start) / 1e3);
    }
    shut(s.fd, s.ring);
    shut(r.fd, r.ring);
}

static void measure_sending(int by_ring, size_t bytes, int rounds) {
    struct sender s = sender(by_ring);
    for (int round = -2; round < rounds; round++) {
        double start = now(CLOCK_THREAD_CPUTIME_ID);
        send_packets(&s, bytes, BURST);
        double sent = now(CLOCK_THREAD_CPUTIME_ID) - start;
        if (round >= 0) {
            print("send", SENDING[by_ring], bytes, sent, 0);
        }
    }
    shut(s.fd, s.ring);
}

// Sends twice as many numbered packets as a ring has slots, which all wait at the other end before one is read.
static void check_sending(int by_ring) {
    struct receiver r = receiver(CALLS);
    struct sender s = sender(by_ring);
    unsigned got = 0, next = 0, wrong = 0;
    for (unsigned n = 0; n < 2 * SLOTS; n += CALL) {
        for (unsigned k = 0; k < CALL; k++) {
            unsigned number = n + k;
            memcpy(&buffers[k][NUMBER], &number, sizeof number);
        }
        send_packets(&s, NUMBER + sizeof n, CALL);
    }
    for (unsigned more; (more = take(&r)) > 0; got += more) {
        for (unsigned k = 0; k < more; k++) {
            unsigned number;
            memcpy(&number, &frames[k][NUMBER], sizeof number);
            wrong += number < next;
            next = number + 1;
        }
    }
    printf("{\"side\": \"intact\", \"way\": \"%s\", \"packets\": %u, \"wrong\": %u}\n", SENDING[by_ring], got, wrong);
    shut(s.fd, s.ring);
    shut(r.fd, r.ring);
}

int main(int count, char **arguments) {
    int rounds = count > 1 ? atoi(arguments[1]) : 20;
    for (int n = 0; n < CALL; n++) {
        struct ether_header *header = (void *)buffers[n];
        memset(buffers[n], n, SLOT);
        memset(header->ether_dhost, 0xff, sizeof header->ether_dhost);
        header->ether_shost[0] = 2;
        header->ether_type = htons(KIND);
    }
    for (size_t size = 0; size < 2; size++) {
        size_t bytes = size == 0 ? 64 : 1400;
        for (enum way way = V2; way <= CALLS; way++) {
            measure_receiving(way, bytes, rounds);
        }
        measure_sending(0, bytes, rounds);
        measure_sending(1, bytes, rounds);
    }
    check_sending(0);
    check_sending(1);
}

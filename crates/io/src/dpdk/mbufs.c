/* Mbufs of DPDK over a pool's frames.
 *
 * This file and devices.c hold the few functions that binding.rs calls, so that the compiler checks them
 * against DPDK's own headers, most of whose functions are inline.
 *
 * An mbuf stands for each frame of a pool. Mbufs lie in memory of their own, and the buffer of each is
 * its frame. A mempool has all of them, but holds none: it takes them from the purse of the calling
 * thread, and puts them there (`current`). Purses are filled with the mbufs of frames that were lent,
 * and what drivers have put there is taken out again. So drivers allocate and free frames of the pool,
 * without a lock, on threads that DPDK does not know.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_errno.h>
#include <rte_ethdev.h>

#include "mbufs.h"

#define OPS "thalweg"
/* No frame. */
#define NONE UINT32_MAX
/* Bytes before the mbuf in an element of a mempool. */
#define ELEMENT_HEADER RTE_ALIGN_CEIL(sizeof(struct rte_mempool_objhdr), RTE_MEMPOOL_ALIGN)
/* An mbuf, and the count of the references to its buffer. */
#define ELEMENT_SIZE RTE_ALIGN_CEIL(sizeof(struct rte_mbuf) + sizeof(struct rte_mbuf_ext_shared_info), \
                                    RTE_MEMPOOL_ALIGN)
#define ELEMENT (ELEMENT_HEADER + ELEMENT_SIZE)

struct arrival {
    uint32_t frame;
    uint32_t len;
    uint16_t place;
    uint16_t flags;
};
#define BAD_CHECKSUM 1
#define SEVERAL_BUFFERS 2

struct departure {
    uint32_t frame;
    uint16_t place;
    uint16_t len;
};

__thread struct purse *thalweg_dpdk_current;

/* The operations of the mempool. */

static int pool_alloc(struct rte_mempool *pool)
{
    pool->pool_data = pool->pool_config;
    return 0;
}

static void pool_free(struct rte_mempool *pool)
{
    (void)pool;
}

static int pool_enqueue(struct rte_mempool *pool, void *const *objects, unsigned n)
{
    struct mbufs *mbufs = pool->pool_data;
    struct purse *purse = current;

    if (!mbufs->strays)
        return 0; /* The mempool is being made: nothing is lent yet. */
    if (likely(purse && purse->owner == mbufs)) {
        memcpy(&purse->mbufs[purse->count], objects, n * sizeof *objects);
        purse->count += n;
        return 0;
    }
    pthread_mutex_lock(&mbufs->lock);
    memcpy(&mbufs->strays->mbufs[mbufs->strays->count], objects, n * sizeof *objects);
    mbufs->strays->count += n;
    pthread_mutex_unlock(&mbufs->lock);
    return 0;
}

static int pool_dequeue(struct rte_mempool *pool, void **objects, unsigned n)
{
    struct purse *purse = current;

    if (unlikely(!purse || purse->owner != pool->pool_data || purse->count < n))
        return -ENOBUFS;
    purse->count -= n;
    memcpy(objects, &purse->mbufs[purse->count], n * sizeof *objects);
    return 0;
}

static unsigned pool_count(const struct rte_mempool *pool)
{
    (void)pool;
    return current ? current->count : 0;
}

static const struct rte_mempool_ops operations = {
    .name = OPS,
    .alloc = pool_alloc,
    .free = pool_free,
    .enqueue = pool_enqueue,
    .dequeue = pool_dequeue,
    .get_count = pool_count,
};

int thalweg_dpdk_register(void)
{
    return rte_mempool_register_ops(&operations);
}

/* Mbufs and purses. */

size_t thalweg_dpdk_headers_size(size_t frames)
{
    return frames * ELEMENT;
}

static struct rte_mbuf *mbuf_of(const struct mbufs *mbufs, uint32_t frame)
{
    return (struct rte_mbuf *)(mbufs->headers + (size_t)frame * ELEMENT + ELEMENT_HEADER);
}

/* The frame for which an mbuf stands; NONE if it is not ours. */
static uint32_t frame_of(const struct mbufs *mbufs, const struct rte_mbuf *mbuf)
{
    size_t at = (size_t)((const char *)mbuf - mbufs->headers);

    if ((uintptr_t)mbuf < (uintptr_t)mbufs->headers || at / ELEMENT >= mbufs->count)
        return NONE;
    return (uint32_t)(at / ELEMENT);
}

static void make_whole(const struct mbufs *mbufs, uint32_t frame)
{
    struct rte_mbuf *mbuf = mbuf_of(mbufs, frame);

    mbuf->buf_addr = mbufs->frames + frame * mbufs->stride;
    mbuf->buf_iova = (rte_iova_t)(uintptr_t)mbuf->buf_addr;
    mbuf->buf_len = mbufs->frame_size;
    mbuf->data_off = RTE_PKTMBUF_HEADROOM;
    mbuf->ol_flags = RTE_MBUF_F_EXTERNAL;
    mbuf->nb_segs = 1;
    mbuf->next = NULL;
    rte_mbuf_refcnt_set(mbuf, 1);
    rte_mbuf_ext_refcnt_set(mbuf->shinfo, 1);
}

static void never_called(void *address, void *opaque)
{
    (void)address, (void)opaque;
}

static void make_mbuf(struct rte_mempool *pool, void *opaque, void *object, unsigned number)
{
    struct mbufs *mbufs = opaque;
    struct rte_mbuf *mbuf = object;

    if (mbuf != mbuf_of(mbufs, number)) {
        mbufs->count = 0; /* DPDK divides the memory differently. */
        return;
    }
    rte_pktmbuf_init(pool, NULL, object, number);
    mbuf->shinfo = (struct rte_mbuf_ext_shared_info *)(mbuf + 1);
    mbuf->shinfo->free_cb = never_called;
    mbuf->shinfo->fcb_opaque = NULL;
    make_whole(mbufs, number);
}

struct purse *thalweg_dpdk_purse_new(const struct mbufs *mbufs)
{
    struct purse *purse = calloc(1, sizeof *purse + mbufs->count * sizeof(struct rte_mbuf *));

    if (purse)
        purse->owner = mbufs;
    return purse;
}

void thalweg_dpdk_purse_free(struct purse *purse)
{
    free(purse);
}

void thalweg_dpdk_mbufs_free(struct mbufs *mbufs)
{
    if (mbufs->pool)
        rte_mempool_free(mbufs->pool);
    rte_extmem_unregister(mbufs->frames, frames_len(mbufs));
    pthread_mutex_destroy(&mbufs->lock);
    free(mbufs->strays);
    free(mbufs);
}

/* Mbufs over `count` frames at `frames`, in `headers_size` bytes at `headers`; NULL after an error,
 * whose number is then in `error`. Both begin at a page. */
struct mbufs *thalweg_dpdk_mbufs_new(const char *name, char *frames, uint32_t count, size_t stride,
                                     uint16_t frame_size, char *headers, int *error)
{
    struct rte_pktmbuf_pool_private private = {
        .mbuf_data_room_size = frame_size,
        .mbuf_priv_size = 0,
        .flags = RTE_PKTMBUF_POOL_F_PINNED_EXT_BUF,
    };
    struct mbufs *mbufs = calloc(1, sizeof *mbufs);
    struct purse *strays;
    size_t len = RTE_ALIGN_CEIL(count * stride, 4096);
    int made;

    *error = ENOMEM;
    if (!mbufs)
        return NULL;
    *mbufs = (struct mbufs){ .headers = headers, .frames = frames, .count = count,
                             .stride = stride, .frame_size = frame_size };
    strays = thalweg_dpdk_purse_new(mbufs);
    if (!strays) {
        free(mbufs);
        return NULL;
    }
    pthread_mutex_init(&mbufs->lock, NULL);
    if (rte_extmem_register(frames, len, NULL, 0, 4096) < 0) {
        *error = rte_errno;
        pthread_mutex_destroy(&mbufs->lock);
        free(mbufs);
        free(strays);
        return NULL;
    }
    mbufs->pool = rte_mempool_create_empty(
        name, count, sizeof(struct rte_mbuf) + sizeof(struct rte_mbuf_ext_shared_info), 0,
        sizeof private, SOCKET_ID_ANY, RTE_MEMPOOL_F_NO_SPREAD);
    *error = rte_errno;
    if (!mbufs->pool)
        goto failed;
    made = rte_mempool_set_ops_byname(mbufs->pool, OPS, mbufs);
    *error = -made;
    if (made < 0)
        goto failed;
    rte_pktmbuf_pool_init(mbufs->pool, &private);
    made = rte_mempool_populate_iova(mbufs->pool, headers, (rte_iova_t)(uintptr_t)headers,
                                     count * ELEMENT, NULL, NULL);
    *error = made < 0 ? -made : ENOTSUP;
    if (made != (int)count)
        goto failed;
    rte_mempool_obj_iter(mbufs->pool, make_mbuf, mbufs);
    if (mbufs->count != count) {
        mbufs->count = count;
        goto failed;
    }
    mbufs->strays = strays;
    return mbufs;
failed:
    thalweg_dpdk_mbufs_free(mbufs);
    free(strays);
    return NULL;
}

uint32_t thalweg_dpdk_purse_count(const struct purse *purse)
{
    return purse->count;
}

/* Puts the mbuf of a frame into a purse. */
void thalweg_dpdk_lend(const struct mbufs *mbufs, struct purse *purse, uint32_t frame)
{
    make_whole(mbufs, frame);
    purse->mbufs[purse->count++] = mbuf_of(mbufs, frame);
}

static unsigned empty(const struct mbufs *mbufs, struct purse *purse, uint32_t *frames, unsigned most)
{
    unsigned n = 0;

    while (purse->count > 0 && n < most)
        frames[n++] = frame_of(mbufs, purse->mbufs[--purse->count]);
    return n;
}

/* Takes up to `most` mbufs out of a purse; returns the number of their frames. */
unsigned thalweg_dpdk_take_back(const struct mbufs *mbufs, struct purse *purse, uint32_t *frames,
                                unsigned most)
{
    return empty(mbufs, purse, frames, most);
}

/* The same of what threads without a purse have put. */
unsigned thalweg_dpdk_take_strays(struct mbufs *mbufs, uint32_t *frames, unsigned most)
{
    unsigned n;

    if (likely(!__atomic_load_n(&mbufs->strays->count, __ATOMIC_RELAXED)))
        return 0;
    pthread_mutex_lock(&mbufs->lock);
    n = empty(mbufs, mbufs->strays, frames, most);
    pthread_mutex_unlock(&mbufs->lock);
    return n;
}

/* Packets. */

/* Puts the VLAN tag back that a driver has taken out. */
static void insert_tag(struct rte_mbuf *mbuf)
{
    char *start;

    if (mbuf->data_len < 12 || rte_pktmbuf_headroom(mbuf) < 4)
        return;
    start = rte_pktmbuf_prepend(mbuf, 4);
    memmove(start, start + 4, 12);
    start[12] = (char)0x81, start[13] = 0;
    start[14] = (char)(mbuf->vlan_tci >> 8), start[15] = (char)mbuf->vlan_tci;
}

static void take_in(const struct mbufs *mbufs, struct rte_mbuf *mbuf, struct arrival *arrival)
{
    uint32_t frame = frame_of(mbufs, mbuf);
    uint64_t ip = mbuf->ol_flags & RTE_MBUF_F_RX_IP_CKSUM_MASK;
    uint64_t transport = mbuf->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK;

    *arrival = (struct arrival){ .frame = NONE, .len = mbuf->pkt_len };
    if (ip == RTE_MBUF_F_RX_IP_CKSUM_BAD || transport == RTE_MBUF_F_RX_L4_CKSUM_BAD)
        arrival->flags |= BAD_CHECKSUM;
    if (mbuf->nb_segs > 1)
        arrival->flags |= SEVERAL_BUFFERS;
    if (unlikely(frame == NONE || mbuf->nb_segs > 1 ||
                 mbuf->buf_addr != mbufs->frames + frame * mbufs->stride)) {
        rte_pktmbuf_free(mbuf);
        return;
    }
    if (unlikely(mbuf->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED))
        insert_tag(mbuf);
    arrival->frame = frame;
    arrival->place = mbuf->data_off;
    arrival->len = mbuf->data_len;
}

/* Receives up to `most` packets, at most 32. A packet that does not lie in one frame has no frame. */
unsigned thalweg_dpdk_receive(uint16_t port, uint16_t queue, const struct mbufs *mbufs,
                              struct purse *purse, struct arrival *arrivals, uint16_t most)
{
    struct rte_mbuf *packets[32];
    unsigned n, at;

    current = purse;
    n = rte_eth_rx_burst(port, queue, packets, RTE_MIN(most, 32));
    for (at = 0; at < n; at++)
        take_in(mbufs, packets[at], &arrivals[at]);
    current = NULL;
    return n;
}

/* Has the device send up to 32 packets; returns how many it has taken. */
unsigned thalweg_dpdk_send(uint16_t port, uint16_t queue, const struct mbufs *mbufs,
                           struct purse *purse, const struct departure *departures, uint16_t n)
{
    struct rte_mbuf *packets[32];
    unsigned at, sent;

    n = RTE_MIN(n, 32);
    for (at = 0; at < n; at++) {
        const struct departure *departure = &departures[at];

        make_whole(mbufs, departure->frame);
        packets[at] = mbuf_of(mbufs, departure->frame);
        packets[at]->data_off = departure->place;
        packets[at]->data_len = departure->len;
        packets[at]->pkt_len = departure->len;
    }
    current = purse;
    sent = rte_eth_tx_burst(port, queue, packets, n);
    current = NULL;
    return sent;
}

/* Has the driver return what it has sent, if it can. */
void thalweg_dpdk_reap(uint16_t port, uint16_t queue, struct purse *purse)
{
    current = purse;
    rte_eth_tx_done_cleanup(port, queue, 0);
    current = NULL;
}

/* What mbufs.c and devices.c share. binding.rs has the same structures as far as it uses them. */
#ifndef THALWEG_DPDK_MBUFS_H
#define THALWEG_DPDK_MBUFS_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include <rte_mbuf.h>
#include <rte_mempool.h>

/* Mbufs that are lent and not in use. It has room for all that there are. */
struct purse {
    const struct mbufs *owner;
    uint32_t count;
    struct rte_mbuf *mbufs[];
};

struct mbufs {
    struct rte_mempool *pool;
    char *headers;
    char *frames;
    uint32_t count;
    size_t stride;
    uint16_t frame_size;
    /* Of threads that have no purse: those of drivers. */
    pthread_mutex_t lock;
    struct purse *strays;
};

/* The purse of this thread during a call into a driver. */
extern __thread struct purse *thalweg_dpdk_current;
#define current thalweg_dpdk_current

/* The bytes of the frames, up to the end of a page. */
static inline size_t frames_len(const struct mbufs *mbufs)
{
    return RTE_ALIGN_CEIL(mbufs->count * mbufs->stride, 4096);
}

/* Makes the mempool's operations known to DPDK. */
int thalweg_dpdk_register(void);

#endif

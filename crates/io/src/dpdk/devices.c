/* Devices of DPDK, and DPDK itself: what binding.rs calls beside the functions of mbufs.c. */
#define _GNU_SOURCE
/* Mapping memory for a device is not part of the stable interface yet, in any version. */
#define ALLOW_EXPERIMENTAL_API
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_log.h>

#include "mbufs.h"

#define RSS_KEY_SIZE 256
/* The most packets that a queue of a virtual device keeps. Others never end. */
#define DRAINED 4096u
#define CHECKSUMS (RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_TCP_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM)

/* What a device is and can do. */
struct facts {
    uint16_t receive_queues;
    uint16_t transmit_queues;
    uint16_t least_descriptors;
    uint16_t most_descriptors;
    uint16_t most_mtu;
    uint8_t checks_checksums;
    uint8_t hashes;
    char driver[64];
};

/* How a device is to be set up. */
struct setup {
    uint16_t queues;
    uint16_t descriptors;
    uint16_t mtu;
    uint8_t promiscuous;
    uint8_t check_checksums;
};

struct counts {
    uint64_t missed;
    uint64_t errors;
    uint64_t starved;
    uint64_t unsent;
};

struct link {
    uint8_t up;
    uint32_t speed_mbps;
    uint16_t mtu;
};

/* The environment. */

typedef void (*log_to)(uint32_t level, const char *text, size_t len);
static log_to logger;

static ssize_t write_log(void *cookie, const char *text, size_t len)
{
    (void)cookie;
    logger((uint32_t)rte_log_cur_msg_loglevel(), text, len);
    return (ssize_t)len;
}

/* Starts DPDK, once in a process. */
int thalweg_dpdk_start(int argc, char **argv, log_to to)
{
    FILE *stream = fopencookie(NULL, "w", (cookie_io_functions_t){ .write = write_log });

    if (!stream)
        return -errno;
    logger = to;
    rte_openlog_stream(stream);
    if (thalweg_dpdk_register() < 0)
        return -ENOSPC;
    return rte_eal_init(argc, argv) < 0 ? -rte_errno : 0;
}

/* Devices. */

static int find(const char *name, uint16_t *port)
{
    struct rte_eth_dev_info info;
    uint16_t id;

    if (rte_eth_dev_get_port_by_name(name, port) == 0)
        return 0;
    RTE_ETH_FOREACH_DEV(id) {
        if (rte_eth_dev_info_get(id, &info) == 0 && info.device &&
            strcmp(rte_dev_name(info.device), name) == 0) {
            *port = id;
            return 0;
        }
    }
    return -ENODEV;
}

/* Has a driver attach the device that the arguments name; returns its port. */
int thalweg_dpdk_attach(const char *arguments, const char *name, uint16_t *port)
{
    int error;

    if (find(name, port) == 0)
        return -EEXIST;
    error = rte_dev_probe(arguments);
    return error < 0 ? error : find(name, port);
}

static struct rte_device *device_of(uint16_t port)
{
    struct rte_eth_dev_info info;

    return rte_eth_dev_info_get(port, &info) == 0 ? info.device : NULL;
}

/* Makes the frames known to the device's bus, which translates their addresses; -ENOTSUP if it does
 * not. */
int thalweg_dpdk_map(uint16_t port, const struct mbufs *mbufs)
{
    struct rte_device *device = device_of(port);
    size_t len = frames_len(mbufs);

    if (!device)
        return -ENODEV;
    return rte_dev_dma_map(device, mbufs->frames, (uint64_t)(uintptr_t)mbufs->frames, len) < 0
               ? -rte_errno : 0;
}

/* Frees what waits in a device: some virtual ones would keep it. */
static void drain(uint16_t port)
{
    struct rte_mbuf *packets[32];
    struct rte_eth_dev_info info;
    uint16_t queue, n;
    unsigned left;

    if (rte_eth_dev_info_get(port, &info) < 0)
        return;
    for (queue = 0; queue < info.nb_rx_queues; queue++) {
        for (left = DRAINED; left >= 32; left -= n) {
            n = rte_eth_rx_burst(port, queue, packets, 32);
            if (n == 0)
                break;
            rte_pktmbuf_free_bulk(packets, n);
        }
    }
}

/* Stops a device, and has its driver let go of it. What the driver has goes into `purse`. */
int thalweg_dpdk_detach(uint16_t port, const struct mbufs *mbufs, struct purse *purse, int is_started)
{
    struct rte_device *device = device_of(port);
    size_t len = frames_len(mbufs);
    int error;

    current = purse;
    if (is_started) {
        rte_eth_promiscuous_disable(port);
        drain(port);
        rte_eth_dev_stop(port);
    }
    error = rte_eth_dev_close(port);
    if (device) {
        rte_dev_dma_unmap(device, mbufs->frames, (uint64_t)(uintptr_t)mbufs->frames, len);
        error = rte_dev_remove(device);
    }
    current = NULL;
    return error;
}

int thalweg_dpdk_facts(uint16_t port, struct facts *facts)
{
    struct rte_eth_dev_info info;
    int error = rte_eth_dev_info_get(port, &info);
    uint16_t receive, transmit;

    if (error < 0)
        return error;
    receive = info.rx_desc_lim.nb_max, transmit = info.tx_desc_lim.nb_max;
    memset(facts, 0, sizeof *facts);
    facts->receive_queues = info.max_rx_queues;
    facts->transmit_queues = info.max_tx_queues;
    facts->least_descriptors = RTE_MAX(info.rx_desc_lim.nb_min, info.tx_desc_lim.nb_min);
    facts->most_descriptors = RTE_MIN(receive ? receive : UINT16_MAX, transmit ? transmit : UINT16_MAX);
    facts->most_mtu = info.max_mtu;
    facts->checks_checksums = (info.rx_offload_capa & CHECKSUMS) == CHECKSUMS;
    facts->hashes = info.flow_type_rss_offloads != 0;
    snprintf(facts->driver, sizeof facts->driver, "%s", info.driver_name ? info.driver_name : "");
    return 0;
}

static int configure(uint16_t port, const struct setup *setup, struct rte_eth_dev_info *info)
{
    static uint8_t key[RSS_KEY_SIZE];
    const uint64_t hashed = RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP;
    struct rte_eth_conf configuration = { 0 };
    unsigned at;

    /* With this key a hash is the same for both directions of a flow. */
    for (at = 0; at < sizeof key; at += 2)
        key[at] = 0x6d, key[at + 1] = 0x5a;
    if (setup->queues > 1 && (info->flow_type_rss_offloads & hashed)) {
        configuration.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
        configuration.rx_adv_conf.rss_conf.rss_hf = info->flow_type_rss_offloads & hashed;
        if (info->hash_key_size) {
            configuration.rx_adv_conf.rss_conf.rss_key = key;
            configuration.rx_adv_conf.rss_conf.rss_key_len = info->hash_key_size;
        }
    }
    configuration.rxmode.mtu = setup->mtu;
    if (setup->check_checksums)
        configuration.rxmode.offloads = CHECKSUMS;
    return rte_eth_dev_configure(port, setup->queues, setup->queues, &configuration);
}

static int set_up(uint16_t port, const struct mbufs *mbufs, const struct setup *setup,
                  uint16_t *descriptors, const char **step)
{
    struct rte_eth_dev_info info;
    struct rte_eth_rxconf receive;
    uint16_t rx = setup->descriptors, tx = setup->descriptors, queue;
    int socket = rte_eth_dev_socket_id(port);
    int error;

    *step = "its properties";
    if ((error = rte_eth_dev_info_get(port, &info)) < 0)
        return error;
    *step = "its configuration";
    if ((error = configure(port, setup, &info)) < 0)
        return error;
    *step = "the number of descriptors";
    if ((error = rte_eth_dev_adjust_nb_rx_tx_desc(port, &rx, &tx)) < 0)
        return error;
    *descriptors = rx;
    receive = info.default_rxconf;
    receive.rx_drop_en = 1; /* One full queue does not hold up the others. */
    for (queue = 0; queue < setup->queues; queue++) {
        *step = "a receive queue";
        if ((error = rte_eth_rx_queue_setup(port, queue, rx, socket, &receive, mbufs->pool)) < 0)
            return error;
        *step = "a transmit queue";
        if ((error = rte_eth_tx_queue_setup(port, queue, tx, socket, NULL)) < 0)
            return error;
    }
    *step = "its MTU";
    if (setup->mtu && (error = rte_eth_dev_set_mtu(port, setup->mtu)) < 0)
        return error;
    *step = "its start";
    if ((error = rte_eth_dev_start(port)) < 0)
        return error;
    *step = "promiscuous mode";
    if (setup->promiscuous && (error = rte_eth_promiscuous_enable(port)) < 0 && error != -ENOTSUP)
        return error;
    rte_eth_dev_set_link_up(port);
    return 0;
}

/* Sets a device up and starts it, with frames of `purse`. `step` names what has failed. */
int thalweg_dpdk_set_up(uint16_t port, const struct mbufs *mbufs, struct purse *purse,
                        const struct setup *setup, uint16_t *descriptors, const char **step)
{
    int error;

    current = purse;
    error = set_up(port, mbufs, setup, descriptors, step);
    current = NULL;
    return error;
}

void thalweg_dpdk_count(uint16_t port, struct counts *counts)
{
    struct rte_eth_stats stats;

    memset(counts, 0, sizeof *counts);
    if (rte_eth_stats_get(port, &stats) == 0)
        *counts = (struct counts){ .missed = stats.imissed, .errors = stats.ierrors,
                                   .starved = stats.rx_nombuf, .unsent = stats.oerrors };
}

/* Calls `each` with the device's own counters that are not 0. */
void thalweg_dpdk_each_count(uint16_t port, void (*each)(void *to, const char *name, uint64_t value),
                             void *to)
{
    int n = rte_eth_xstats_get_names(port, NULL, 0), at;
    struct rte_eth_xstat_name *names = n > 0 ? calloc((size_t)n, sizeof *names) : NULL;
    struct rte_eth_xstat *values = n > 0 ? calloc((size_t)n, sizeof *values) : NULL;

    if (names && values && rte_eth_xstats_get_names(port, names, (unsigned)n) == n &&
        rte_eth_xstats_get(port, values, (unsigned)n) == n) {
        for (at = 0; at < n; at++)
            if (values[at].value && values[at].id < (uint64_t)n)
                each(to, names[values[at].id].name, values[at].value);
    }
    free(names);
    free(values);
}

void thalweg_dpdk_link(uint16_t port, struct link *link)
{
    struct rte_eth_link state;

    memset(link, 0, sizeof *link);
    if (rte_eth_link_get_nowait(port, &state) == 0) {
        link->up = state.link_status == RTE_ETH_LINK_UP;
        if (state.link_speed != RTE_ETH_SPEED_NUM_UNKNOWN)
            link->speed_mbps = state.link_speed;
    }
    rte_eth_dev_get_mtu(port, &link->mtu);
}

int thalweg_dpdk_is_removed(uint16_t port)
{
    return rte_eth_dev_is_removed(port);
}

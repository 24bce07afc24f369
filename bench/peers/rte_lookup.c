/* Lookups of present keys in DPDK's rte_hash with the Jenkins hash and lock-free readers, one
 * by one and eight at a time: what `thalweg sim` simulates. The peer of bench/calibrate.py.
 *
 * Tables are three quarters full. A key of 16 bytes is written to one of 64 buffers just before
 * its lookup, as parsing a packet does.
 *
 *   cc -O3 -march=native rte_lookup.c -o rte_lookup $(pkg-config --cflags --libs libdpdk)
 *   ./rte_lookup --no-huge --no-shconf --no-pci --no-telemetry -m 2000 -- BITS...
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_hash.h>
#include <rte_jhash.h>

#include "common.h"
#include "eal.h"

#define ROUNDS 9
#define LOOKUPS (1u << 19)
#define BUFFERS 64
#define TOGETHER 8

static uint64_t buffers[BUFFERS][32] __attribute__((aligned(64)));
static uint32_t order[LOOKUPS];

static inline void make_key(uint64_t *key, uint64_t n)
{
    key[0] = n * 0x9e3779b97f4a7c15ull;
    key[1] = n;
}

static inline uint64_t *write_key(unsigned i, uint64_t n)
{
    uint64_t *key = buffers[i % BUFFERS];
    make_key(key, n);
    return key;
}

/* With `dependent` the next key needs the value of the last. */
static uint64_t one_by_one(const struct rte_hash *table, int dependent)
{
    uint64_t sum = 0, last = 0;
    for (unsigned i = 0; i < LOOKUPS; i++) {
        void *value;
        if (rte_hash_lookup_data(table, write_key(i, order[i] + last), &value) < 0)
            exit(1);
        sum += (uint64_t)value;
        if (dependent) {
            last = (uint64_t)value;
            /* 0, which the compiler does not know. */
            __asm__ volatile("and $0, %0" : "+r"(last));
        }
    }
    return sum;
}

static uint64_t together(const struct rte_hash *table)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < LOOKUPS; i += TOGETHER) {
        const void *keys[TOGETHER];
        void *values[TOGETHER];
        uint64_t hits;
        for (unsigned k = 0; k < TOGETHER; k++)
            keys[k] = write_key(i + k, order[i + k]);
        if (rte_hash_lookup_bulk_data(table, keys, TOGETHER, &hits, values) != TOGETHER)
            exit(1);
        for (unsigned k = 0; k < TOGETHER; k++)
            sum += (uint64_t)values[k];
    }
    return sum;
}

static int measure(unsigned bits)
{
    static const char *const streams[] = {"independent", "dependent", "bulk"};
    uint64_t keys = (1ull << bits) * 3 / 4, state = 42, key[2], sum = 0;
    struct rte_hash_parameters parameters = {
        .name = "bench", .entries = 1u << bits, .key_len = sizeof key,
        .hash_func = rte_jhash, .extra_flag = RTE_HASH_EXTRA_FLAGS_RW_CONCURRENCY_LF,
    };
    struct rte_hash *table = rte_hash_create(&parameters);
    if (!table)
        return fprintf(stderr, "no memory for 2^%u keys\n", bits), 1;
    for (uint64_t n = 0; n < keys; n++) {
        make_key(key, n);
        if (rte_hash_add_key_data(table, key, (void *)(n + 1)) < 0)
            return fprintf(stderr, "2^%u: no place for key %lu\n", bits, n), 1;
    }
    for (unsigned i = 0; i < LOOKUPS; i++)
        order[i] = splitmix64(&state) % keys;
    double ns[3][ROUNDS];
    for (int round = 0; round < ROUNDS; round++)
        for (int stream = 0; stream < 3; stream++) {
            double start = now();
            sum += stream == 2 ? together(table) : one_by_one(table, stream);
            ns[stream][round] = (now() - start) / LOOKUPS;
        }
    for (int stream = 0; stream < 3; stream++) {
        qsort(ns[stream], ROUNDS, sizeof **ns, by_value);
        /* The least: others on the machine only make it longer. */
        printf("{\"entries\": %u, \"stream\": \"%s\", \"ns\": %.3f, \"sum\": %lu}\n", 1u << bits,
               streams[stream], ns[stream][0], sum);
    }
    rte_hash_free(table);
    return 0;
}

static int of_size(const char *size)
{
    return measure(atoi(size));
}

int main(int argc, char **argv)
{
    return for_each_size(argc, argv, of_size);
}

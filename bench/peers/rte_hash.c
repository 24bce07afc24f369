/* Lookups of present keys in DPDK's rte_hash, in batches of 32, with lock-free
 * readers: the peer of bench/hash. Same keys in the same order, same lines printed.
 *
 *   cc -O3 -march=native rte_hash.c -o rte_hash $(pkg-config --cflags --libs libdpdk)
 *   ./rte_hash --no-huge --no-shconf --no-pci --no-telemetry -m 6000 -- BITS...
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_hash.h>
#include <rte_hash_crc.h>

#include "common.h"
#include "eal.h"

#define ROUNDS 7
#define LOOKUPS (1u << 20)
/* Timed together; their keys are made just before. */
#define CHUNK 1024
#define BATCH 32

static void make_key(uint64_t *key, unsigned words, uint64_t n)
{
    uint64_t state = n;
    for (unsigned i = 0; i < words; i++)
        key[i] = splitmix64(&state);
}

static int look_up(const struct rte_hash *table, const uint64_t *asked, unsigned words,
                   uint64_t *sum)
{
    for (unsigned i = 0; i < CHUNK; i += BATCH) {
        const void *keys[BATCH];
        int32_t positions[BATCH];
        for (unsigned k = 0; k < BATCH; k++)
            keys[k] = asked + (i + k) * words;
        rte_hash_lookup_bulk(table, keys, BATCH, positions);
        for (unsigned k = 0; k < BATCH; k++) {
            if (positions[k] < 0)
                return 1;
            *sum += positions[k];
        }
    }
    return 0;
}

static int measure(unsigned bits, unsigned words)
{
    uint64_t entries = (1ull << bits) * 9 / 10, key[8], state = 42, sum = 0;
    struct rte_hash_parameters parameters = {
        .name = "bench", .entries = 1u << bits, .key_len = 8 * words,
        .hash_func = rte_hash_crc, .extra_flag = RTE_HASH_EXTRA_FLAGS_RW_CONCURRENCY_LF,
    };
    struct rte_hash *table = rte_hash_create(&parameters);
    if (!table)
        return fprintf(stderr, "no memory for 2^%u keys of %u bytes\n", bits, 8 * words), 1;
    for (uint64_t n = 0; n < entries; n++) {
        make_key(key, words, n);
        if (rte_hash_add_key(table, key) < 0)
            return fprintf(stderr, "2^%u: no place for key %lu\n", bits, n), 1;
    }
    static uint64_t asked[CHUNK * 8];
    double ns[ROUNDS];
    for (unsigned round = 0; round < ROUNDS; round++) {
        double elapsed = 0;
        state = 42;
        for (unsigned i = 0; i < LOOKUPS; i += CHUNK) {
            for (unsigned k = 0; k < CHUNK; k++)
                make_key(asked + k * words, words, splitmix64(&state) % entries);
            double start = now();
            if (look_up(table, asked, words, &sum))
                return fprintf(stderr, "a key is missing\n"), 1;
            elapsed += now() - start;
        }
        ns[round] = elapsed / LOOKUPS;
    }
    qsort(ns, ROUNDS, sizeof *ns, by_value);
    printf("{\"table\": \"rte_hash\", \"key_bytes\": %u, \"entries\": %u, \"ns\": %.3f, \"sum\": %lu}\n",
           8 * words, 1u << bits, ns[ROUNDS / 2], sum);
    rte_hash_free(table);
    return 0;
}

static int of_size(const char *size)
{
    return measure(atoi(size), 2) || measure(atoi(size), 8);
}

int main(int argc, char **argv)
{
    return for_each_size(argc, argv, of_size);
}

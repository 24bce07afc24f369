/* Lookups in DPDK's rte_member as a Bloom filter (a vector of one), in bulks of 64:
 * the peer of bench/bloom. Same keys in the same order, same lines printed.
 *
 *   cc -O3 -march=native rte_member.c -o rte_member $(pkg-config --cflags --libs libdpdk)
 *   ./rte_member --no-huge --no-shconf --no-pci --no-telemetry -m 1500 -- SIZE...
 *
 * It takes a rate and finds the bits itself: the rate asked for is that of 10 bits a
 * key and 3 functions; its own choice of functions and bits differs.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_member.h>

#include "common.h"
#include "eal.h"

#define ROUNDS 9
#define LOOKUPS (1u << 20)
#define BULK 64
#define INSIDE (1u << 20)

static void measure(struct rte_member_setsum *filter, uint64_t bytes, unsigned hit_percent,
                    const uint32_t *inside, uint32_t count)
{
    static uint32_t asked[LOOKUPS], found[LOOKUPS];
    uint64_t state = 2, sum = 0;
    double keys_per_us[ROUNDS];
    for (unsigned i = 0; i < LOOKUPS; i++) {
        uint64_t random = splitmix64(&state);
        asked[i] = (random >> 32) % 100 < hit_percent ? inside[(uint32_t)random % count]
                                                      : (uint32_t)splitmix64(&state);
    }
    for (unsigned round = 0; round < ROUNDS; round++) {
        double start = now();
        uint32_t n = 0;
        for (unsigned i = 0; i < LOOKUPS; i += BULK) {
            const void *keys[BULK];
            member_set_t sets[BULK];
            for (unsigned k = 0; k < BULK; k++)
                keys[k] = &asked[i + k];
            rte_member_lookup_bulk(filter, keys, BULK, sets);
            for (unsigned k = 0; k < BULK; k++) {
                found[n] = asked[i + k];
                n += sets[k] != RTE_MEMBER_NO_MATCH;
            }
        }
        sum += n;
        keys_per_us[round] = LOOKUPS / (now() - start) * 1e3;
    }
    qsort(keys_per_us, ROUNDS, sizeof *keys_per_us, by_value);
    printf("{\"filter\": \"rte_member\", \"bytes\": %lu, \"hit_percent\": %u, \"keys_per_us\": %.3f, "
           "\"sum\": %lu}\n", bytes, hit_percent, keys_per_us[ROUNDS / 2], sum);
}

static int all_of_a_size(uint64_t bytes)
{
    static const unsigned hit_percents[] = {0, 10, 25, 50, 75, 100};
    static uint32_t inside[INSIDE];
    uint32_t keys = bytes * 8 / 10, count = keys < INSIDE ? keys : INSIDE;
    struct rte_member_parameters parameters = {
        .name = "bench", .type = RTE_MEMBER_TYPE_VBF, .num_keys = keys, .key_len = 4,
        .num_set = 1, .false_positive_rate = 0.0174f, .prim_hash_seed = 1, .sec_hash_seed = 2,
    };
    struct rte_member_setsum *filter = rte_member_create(&parameters);
    if (!filter)
        return fprintf(stderr, "no filter of %lu bytes\n", bytes), 1;
    uint64_t state = 1, hits = 0;
    for (uint32_t n = 0; n < keys; n++) {
        uint32_t key = splitmix64(&state);
        if (n < count)
            inside[n] = key;
        if (rte_member_add(filter, &key, 1) < 0)
            return fprintf(stderr, "a key cannot be added\n"), 1;
    }
    for (unsigned i = 0; i < sizeof hit_percents / sizeof *hit_percents; i++)
        measure(filter, bytes, hit_percents[i], inside, count);
    /* Some of these are in the set, as many as random keys are: nearly none but in the
     * largest filters, where the share is taken off. */
    state = 3;
    for (uint32_t n = 0; n < 1u << 22; n++) {
        uint32_t key = splitmix64(&state);
        member_set_t set;
        hits += rte_member_lookup(filter, &key, &set) == 1;
    }
    double inside_share = keys / 4294967296.0;
    printf("{\"filter\": \"rte_member\", \"bytes\": %lu, \"rate\": %f, \"theory\": 0.0174}\n", bytes,
           hits / (double)(1u << 22) - inside_share);
    rte_member_free(filter);
    return 0;
}

static int of_size(const char *size)
{
    return all_of_a_size(strtoull(size, NULL, 10));
}

int main(int argc, char **argv)
{
    return for_each_size(argc, argv, of_size);
}

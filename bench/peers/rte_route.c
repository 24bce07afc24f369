/* Longest-prefix match by DPDK: rte_lpm, rte_fib and rte_fib6, the latter two with AVX-512 where
 * the processor has it. The peer of bench/route.py, which says what lies in the folder.
 *
 *   cc -O3 -march=native rte_route.c -o rte_route $(pkg-config --cflags --libs libdpdk)
 *   ./rte_route --force-max-simd-bitwidth=512 ... -- FOLDER BURST...
 *
 * A fib's entries have 2 bytes, as ours, or 4 where groups are too many for 2.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_fib.h>
#include <rte_fib6.h>
#include <rte_lpm.h>

#include "common.h"

#define ROUNDS 100
#define MOST_BURST 4096

static size_t length;
/* Whether the fibs look up with AVX-512. */
static int vectors;

/* The whole of folder/name; its length in bytes is `length`. */
static void *slurp(const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (!file)
        exit(fprintf(stderr, "%s: cannot be read\n", path));
    fseek(file, 0, SEEK_END);
    length = ftell(file);
    rewind(file);
    void *bytes = aligned_alloc(64, (length + 63) & ~63ul);
    if (fread(bytes, 1, length, file) != length)
        exit(fprintf(stderr, "%s: cut\n", path));
    fclose(file);
    return bytes;
}

/* Gives the next hops' sum, if that is wanted. */
typedef uint64_t (*lookup_t)(void *table, const void *addresses, unsigned n, int sum_wanted);

static uint64_t lpm(void *table, const void *addresses, unsigned n, int sum_wanted)
{
    uint32_t hops[MOST_BURST];
    uint64_t sum = 0;
    rte_lpm_lookup_bulk(table, addresses, hops, n);
    for (unsigned i = 0; sum_wanted && i < n; i++)
        sum += hops[i] & RTE_LPM_LOOKUP_SUCCESS ? hops[i] & 0xffffff : 0;
    return sum;
}

static uint64_t fib(void *table, const void *addresses, unsigned n, int sum_wanted)
{
    uint64_t hops[MOST_BURST], sum = 0;
    rte_fib_lookup_bulk(table, (uint32_t *)addresses, hops, n);
    for (unsigned i = 0; sum_wanted && i < n; i++)
        sum += hops[i];
    return sum;
}

static uint64_t fib6(void *table, const void *addresses, unsigned n, int sum_wanted)
{
    uint64_t hops[MOST_BURST], sum = 0;
    rte_fib6_lookup_bulk(table, (uint8_t (*)[RTE_FIB6_IPV6_ADDR_SIZE])addresses, hops, n);
    for (unsigned i = 0; sum_wanted && i < n; i++)
        sum += hops[i];
    return sum;
}

static void measure(const char *name, void *table, lookup_t lookup, int version,
                    const char *folder, unsigned bursts, char **burst)
{
    static const char *const kinds[] = {"random", "zipf"};
    for (int kind = 0; kind < 2; kind++) {
        char file[64];
        snprintf(file, sizeof file, "%s%d", kinds[kind], version);
        const uint8_t *addresses = slurp(folder, file);
        size_t bytes = version == 4 ? 4 : 16, count = length / bytes;
        for (unsigned b = 0; b < bursts; b++) {
            unsigned n = atoi(burst[b]);
            double shortest = 1e18;
            uint64_t sum = 0;
            for (int round = 0; round <= ROUNDS; round++) {
                double start = now();
                for (size_t i = 0; i < count; i += n)
                    sum += lookup(table, addresses + i * bytes, n, !round);
                double ns = (now() - start) / count;
                shortest = round && ns < shortest ? ns : shortest;
            }
            printf("{\"table\": \"%s\", \"version\": %d, \"addresses\": \"%s\", \"burst\": %u, "
                   "\"ns\": %.4f, \"sum\": %lu, \"vectors\": %s}\n",
                   name, version, kinds[kind], n, shortest, sum,
                   vectors && lookup != lpm ? "true" : "false");
        }
    }
}

static void failed(const char *what)
{
    exit(fprintf(stderr, "%s: %s\n", what, rte_strerror(rte_errno)));
}

static void route4(const char *folder, unsigned bursts, char **burst)
{
    uint32_t *prefixes = slurp(folder, "prefixes4");
    size_t count = length / 4;
    uint16_t *hops = slurp(folder, "hops4");
    struct rte_lpm_config lpm_conf = {.max_rules = 1 << 20, .number_tbl8s = 1 << 14};
    struct rte_fib_conf fib_conf = {
        .type = RTE_FIB_DIR24_8, .max_routes = 1 << 20,
        .dir24_8 = {.nh_sz = RTE_FIB_DIR24_8_2B, .num_tbl8 = 32767},
    };
    struct rte_lpm *l = rte_lpm_create("lpm", SOCKET_ID_ANY, &lpm_conf);
    struct rte_fib *f = rte_fib_create("fib", SOCKET_ID_ANY, &fib_conf);
    if (!l || !f)
        failed("no table");
    for (size_t i = 0; i < count; i++)
        if (rte_lpm_add(l, prefixes[i], hops[2 * i], hops[2 * i + 1])
            || rte_fib_add(f, prefixes[i], hops[2 * i], hops[2 * i + 1]))
            failed("no room for a route");
    if (vectors && rte_fib_select_lookup(f, RTE_FIB_LOOKUP_DIR24_8_VECTOR_AVX512))
        failed("no AVX-512 for rte_fib");
    measure("rte_lpm", l, lpm, 4, folder, bursts, burst);
    measure("rte_fib", f, fib, 4, folder, bursts, burst);
}

static void route6(const char *folder, unsigned bursts, char **burst)
{
    uint8_t *prefixes = slurp(folder, "prefixes6");
    size_t count = length / 16;
    uint16_t *hops = slurp(folder, "hops6");
    struct rte_fib6 *f = NULL;
    for (int wide = 0; wide < 2 && !f; wide++) {
        struct rte_fib6_conf conf = {
            .type = RTE_FIB6_TRIE, .max_routes = 1 << 20,
            .trie = {.nh_sz = wide ? RTE_FIB6_TRIE_4B : RTE_FIB6_TRIE_2B,
                     .num_tbl8 = wide ? 1 << 18 : 32767},
        };
        f = rte_fib6_create("fib6", SOCKET_ID_ANY, &conf);
        if (!f)
            failed("no table");
        for (size_t i = 0; i < count; i++)
            if (rte_fib6_add(f, prefixes + 16 * i, hops[2 * i], hops[2 * i + 1])) {
                if (wide)
                    failed("no room for a route");
                rte_fib6_free(f);
                f = NULL;
                break;
            }
        fprintf(stderr, f ? "rte_fib6 with %d bytes\n" : "rte_fib6: no room with %d bytes\n",
                wide ? 4 : 2);
    }
    if (vectors && rte_fib6_select_lookup(f, RTE_FIB6_LOOKUP_TRIE_VECTOR_AVX512))
        failed("no AVX-512 for rte_fib6");
    measure("rte_fib6", f, fib6, 6, folder, bursts, burst);
}

int main(int argc, char **argv)
{
    int used = rte_eal_init(argc, argv);
    if (used < 0 || argc - used < 3)
        return 1;
    /* As DPDK asks; a processor that has it and a program that may not use it is an error. */
    vectors = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")
              && __builtin_cpu_supports("avx512bw");
    char **rest = argv + used + 1;
    unsigned bursts = argc - used - 2;
    route4(rest[0], bursts, rest + 1);
    route6(rest[0], bursts, rest + 1);
    return 0;
}

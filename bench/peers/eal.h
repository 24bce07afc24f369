/* What the peers that measure one size after the other do with DPDK. */
#ifndef THALWEG_BENCH_EAL_H
#define THALWEG_BENCH_EAL_H

#include <rte_eal.h>

/* Starts DPDK by its own arguments, and calls `measure` for each of the others until one fails;
 * what main gives back. */
static inline int for_each_size(int argc, char **argv, int (*measure)(const char *size))
{
    int used = rte_eal_init(argc, argv);
    if (used < 0)
        return 1;
    for (int i = used + 1; i < argc; i++)
        if (measure(argv[i]))
            return 1;
    return 0;
}

#endif

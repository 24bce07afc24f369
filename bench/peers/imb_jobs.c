/* AES-CBC with HMAC by Intel's libipsec-mb, in jobs as its manual has them: the peer of
 * bench/ipsec.py.
 *
 *   cc -O3 -march=native imb_jobs.c -o imb_jobs -lIPSec_MB
 *   ./imb_jobs SUITE SIZE...
 *
 * For each size of packet, in bytes of IP inside the tunnel, a line of JSON for jobs that the
 * library checks and for jobs that it does not: nanoseconds a job. The packets lie in their
 * buffers as ESP with room for the ICV; nothing but encryption and authentication is done.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <intel-ipsec-mb.h>

#include "common.h"

#define PACKETS 512
#define ROUNDS 2000
/* Some cache lines more than a power of two, lest all begin in the same place of the cache. */
#define STRIDE 2304
#define HEADER 24

static uint8_t ipad[64], opad[64];
static uint32_t keys[60] __attribute__((aligned(64))), unused[60] __attribute__((aligned(64)));

struct suite {
    const char *name;
    int key_len;
    IMB_HASH_ALG hash;
    int icv_len;
};

static const struct suite suites[] = {
    {"aes128-cbc-hmac-sha1-96", 16, IMB_AUTH_HMAC_SHA_1, 12},
    {"aes256-cbc-hmac-sha1-96", 32, IMB_AUTH_HMAC_SHA_1, 12},
    {"aes128-cbc-hmac-sha256-128", 16, IMB_AUTH_HMAC_SHA_256, 16},
    {"aes256-cbc-hmac-sha256-128", 32, IMB_AUTH_HMAC_SHA_256, 16},
};

static inline void fill(IMB_JOB *job, const struct suite *suite, uint8_t *esp, int body)
{
    job->cipher_mode = IMB_CIPHER_CBC;
    job->cipher_direction = IMB_DIR_ENCRYPT;
    job->chain_order = IMB_ORDER_CIPHER_HASH;
    job->hash_alg = suite->hash;
    job->enc_keys = keys;
    job->dec_keys = keys;
    job->key_len_in_bytes = suite->key_len;
    job->src = esp;
    job->dst = esp + HEADER;
    job->cipher_start_src_offset_in_bytes = HEADER;
    job->msg_len_to_cipher_in_bytes = body;
    job->hash_start_src_offset_in_bytes = 0;
    job->msg_len_to_hash_in_bytes = HEADER + body;
    job->iv = esp + 8;
    job->iv_len_in_bytes = 16;
    job->auth_tag_output = esp + HEADER + body;
    job->auth_tag_output_len_in_bytes = suite->icv_len;
    job->u.HMAC._hashed_auth_key_xor_ipad = ipad;
    job->u.HMAC._hashed_auth_key_xor_opad = opad;
}

/* Nanoseconds a job. */
static double measure(IMB_MGR *manager, const struct suite *suite, uint8_t *packets, int body,
                      int checked)
{
    double shortest = 1e18;
    for (int round = 0; round < ROUNDS; round++) {
        double start = now();
        for (int i = 0; i < PACKETS; i++) {
            IMB_JOB *job = IMB_GET_NEXT_JOB(manager);
            fill(job, suite, packets + i * STRIDE, body);
            job = checked ? IMB_SUBMIT_JOB(manager) : IMB_SUBMIT_JOB_NOCHECK(manager);
            for (; job; job = IMB_GET_COMPLETED_JOB(manager))
                if (job->status != IMB_STATUS_COMPLETED)
                    exit(fprintf(stderr, "a job failed\n"));
        }
        double ns = (now() - start) / PACKETS;
        shortest = ns < shortest ? ns : shortest;
    }
    while (IMB_FLUSH_JOB(manager))
        ;
    return shortest;
}

int main(int argc, char **argv)
{
    const struct suite *suite = suites;
    while (argc > 2 && suite < suites + 4 && strcmp(suite->name, argv[1]))
        suite++;
    if (argc < 3 || suite == suites + 4)
        return fprintf(stderr, "SUITE SIZE...\n"), 2;
    IMB_MGR *manager = alloc_mb_mgr(0);
    IMB_ARCH arch;
    init_mb_mgr_auto(manager, &arch);
    uint8_t key[32] = {1}, block[64];
    if (suite->key_len == 16)
        IMB_AES_KEYEXP_128(manager, key, keys, unused);
    else
        IMB_AES_KEYEXP_256(manager, key, keys, unused);
    int sha1 = suite->hash == IMB_AUTH_HMAC_SHA_1;
    for (int pad = 0; pad < 2; pad++) {
        memset(block, pad ? 0x5c : 0x36, sizeof block);
        if (sha1)
            IMB_SHA1_ONE_BLOCK(manager, block, pad ? opad : ipad);
        else
            IMB_SHA256_ONE_BLOCK(manager, block, pad ? opad : ipad);
    }
    uint8_t *packets = aligned_alloc(64, PACKETS * STRIDE);
    memset(packets, 7, PACKETS * STRIDE);
    for (int i = 2; i < argc; i++) {
        int size = atoi(argv[i]), body = (size + 2 + 15) & ~15;
        if (size < 1 || HEADER + body + 16 > STRIDE)
            return fprintf(stderr, "%s: a size that has no room\n", argv[i]), 2;
        for (int checked = 1; checked >= 0; checked--)
            printf("{\"who\": \"ipsec-mb%s\", \"size\": %d, \"ns\": %.3f}\n",
                   checked ? "" : " unchecked", size,
                   measure(manager, suite, packets, body, checked));
    }
    free_mb_mgr(manager);
    return 0;
}

/* Sealing and opening ESP packets with Intel's libipsec-mb.
 *
 * Its interface is macros over function pointers of a manager; this file has the few functions
 * that intel.rs calls. Lengths have been checked there.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <intel-ipsec-mb.h>

/* As in intel.rs. */
enum thalweg_cipher { OF_CBC_SHA1, OF_CBC_SHA256, OF_GCM, OF_CHACHA20_POLY1305 };

struct thalweg_keys {
    uint32_t encrypt[15 * 4] __attribute__((aligned(64)));
    uint32_t decrypt[15 * 4] __attribute__((aligned(64)));
    uint8_t inner[64] __attribute__((aligned(64)));
    uint8_t outer[64] __attribute__((aligned(64)));
    struct gcm_key_data gcm;
    uint8_t salt[4];
    enum thalweg_cipher cipher;
    uint32_t key_len;
};

/* A packet, and the result. */
struct thalweg_job {
    const struct thalweg_keys *keys;
    uint8_t *esp;
    /* Where body and ICV begin, and the ICV's length. */
    uint32_t body, end, icv;
    uint32_t high;
    uint8_t extended, good;
    /* For the library, until the job is done. */
    uint8_t nonce[12], aad[12], tag[16];
};

IMB_MGR *thalweg_manager_new(int avx512)
{
    IMB_MGR *manager = alloc_mb_mgr(0);
    if (!manager)
        return NULL;
    if (avx512)
        init_mb_mgr_avx512(manager);
    else
        init_mb_mgr_avx2(manager);
    if (imb_get_errno(manager)) {
        free_mb_mgr(manager);
        return NULL;
    }
    return manager;
}

void thalweg_manager_free(IMB_MGR *manager)
{
    free_mb_mgr(manager);
}

static void hmac_keys(IMB_MGR *m, struct thalweg_keys *keys, const uint8_t *key, size_t len)
{
    uint8_t *const states[] = {keys->inner, keys->outer};
    for (int i = 0; i < 2; i++) {
        uint8_t block[64];
        memset(block, i ? 0x5c : 0x36, sizeof block);
        for (size_t n = 0; n < len; n++)
            block[n] ^= key[n];
        if (keys->cipher == OF_CBC_SHA1)
            IMB_SHA1_ONE_BLOCK(m, block, states[i]);
        else
            IMB_SHA256_ONE_BLOCK(m, block, states[i]);
        explicit_bzero(block, sizeof block);
    }
}

struct thalweg_keys *thalweg_keys_new(IMB_MGR *m, int cipher, const uint8_t *key, size_t key_len,
                                      const uint8_t *auth_key, size_t auth_len)
{
    struct thalweg_keys *keys = aligned_alloc(64, (sizeof *keys + 63) & ~(size_t)63);
    if (!keys)
        return NULL;
    memset(keys, 0, sizeof *keys);
    keys->cipher = cipher;
    if (cipher == OF_GCM || cipher == OF_CHACHA20_POLY1305) {
        key_len -= sizeof keys->salt;
        memcpy(keys->salt, key + key_len, sizeof keys->salt);
    }
    keys->key_len = key_len;
    if (cipher == OF_CHACHA20_POLY1305) {
        memcpy(keys->encrypt, key, key_len);
    } else if (cipher == OF_GCM) {
        if (key_len == 16)
            IMB_AES128_GCM_PRE(m, key, &keys->gcm);
        else
            IMB_AES256_GCM_PRE(m, key, &keys->gcm);
    } else {
        if (key_len == 16)
            IMB_AES_KEYEXP_128(m, key, keys->encrypt, keys->decrypt);
        else
            IMB_AES_KEYEXP_256(m, key, keys->encrypt, keys->decrypt);
        hmac_keys(m, keys, auth_key, auth_len);
    }
    return keys;
}

void thalweg_keys_free(struct thalweg_keys *keys)
{
    explicit_bzero(keys, sizeof *keys);
    free(keys);
}

/* CBC and HMAC. The upper half of an extended sequence number is hashed as if it followed the body
 * (RFC 4303, 2.2.1): it is written where the ICV goes, so the ICV is computed into `tag` first. */
static void fill_cbc(IMB_JOB *to, struct thalweg_job *job, int seal)
{
    const struct thalweg_keys *keys = job->keys;
    uint32_t hashed = job->end;
    if (job->extended) {
        const uint8_t high[] = {job->high >> 24, job->high >> 16, job->high >> 8, job->high};
        memcpy(job->esp + hashed, high, sizeof high);
        hashed += sizeof high;
    }
    to->cipher_mode = IMB_CIPHER_CBC;
    to->hash_alg = keys->cipher == OF_CBC_SHA1 ? IMB_AUTH_HMAC_SHA_1 : IMB_AUTH_HMAC_SHA_256;
    to->chain_order = seal ? IMB_ORDER_CIPHER_HASH : IMB_ORDER_HASH_CIPHER;
    to->enc_keys = keys->encrypt;
    to->dec_keys = keys->decrypt;
    to->iv = job->esp + job->body - 16;
    to->iv_len_in_bytes = 16;
    to->hash_start_src_offset_in_bytes = 0;
    to->msg_len_to_hash_in_bytes = hashed;
    to->u.HMAC._hashed_auth_key_xor_ipad = keys->inner;
    to->u.HMAC._hashed_auth_key_xor_opad = keys->outer;
}

/* Encryption and authentication in one (RFC 4106, RFC 7634). */
static void fill_aead(IMB_JOB *to, struct thalweg_job *job, int seal)
{
    const struct thalweg_keys *keys = job->keys;
    size_t aad_len = job->extended ? 12 : 8;
    memcpy(job->nonce, keys->salt, 4);
    memcpy(job->nonce + 4, job->esp + 8, 8);
    memcpy(job->aad, job->esp, 4);
    memcpy(job->aad + aad_len - 4, job->esp + 4, 4);
    if (job->extended) {
        const uint8_t high[] = {job->high >> 24, job->high >> 16, job->high >> 8, job->high};
        memcpy(job->aad + 4, high, sizeof high);
    }
    to->chain_order = seal ? IMB_ORDER_CIPHER_HASH : IMB_ORDER_HASH_CIPHER;
    to->iv = job->nonce;
    to->iv_len_in_bytes = sizeof job->nonce;
    to->hash_start_src_offset_in_bytes = job->body;
    to->msg_len_to_hash_in_bytes = job->end - job->body;
    if (keys->cipher == OF_GCM) {
        to->cipher_mode = IMB_CIPHER_GCM;
        to->hash_alg = IMB_AUTH_AES_GMAC;
        to->enc_keys = to->dec_keys = &keys->gcm;
        to->u.GCM.aad = job->aad;
        to->u.GCM.aad_len_in_bytes = aad_len;
    } else {
        to->cipher_mode = IMB_CIPHER_CHACHA20_POLY1305;
        to->hash_alg = IMB_AUTH_CHACHA20_POLY1305;
        to->enc_keys = to->dec_keys = keys->encrypt;
        to->u.CHACHA20_POLY1305.aad = job->aad;
        to->u.CHACHA20_POLY1305.aad_len_in_bytes = aad_len;
    }
}

static void done(IMB_JOB *from)
{
    if (from) {
        struct thalweg_job *job = from->user_data;
        job->good = from->status == IMB_STATUS_COMPLETED;
    }
}

/* Encrypts or decrypts the bodies of all jobs, and writes their tags to `tag`. */
void thalweg_run(IMB_MGR *manager, struct thalweg_job *jobs, size_t count, int seal)
{
    for (size_t i = 0; i < count; i++) {
        struct thalweg_job *job = jobs + i;
        IMB_JOB *to = IMB_GET_NEXT_JOB(manager);
        to->cipher_direction = seal ? IMB_DIR_ENCRYPT : IMB_DIR_DECRYPT;
        to->key_len_in_bytes = job->keys->key_len;
        to->src = job->esp;
        to->dst = job->esp + job->body;
        to->cipher_start_src_offset_in_bytes = job->body;
        to->msg_len_to_cipher_in_bytes = job->end - job->body;
        to->auth_tag_output = job->tag;
        to->auth_tag_output_len_in_bytes = job->icv;
        to->user_data = job;
        if (job->keys->cipher == OF_CBC_SHA1 || job->keys->cipher == OF_CBC_SHA256)
            fill_cbc(to, job, seal);
        else
            fill_aead(to, job, seal);
        for (IMB_JOB *d = IMB_SUBMIT_JOB(manager); d; d = IMB_GET_COMPLETED_JOB(manager))
            done(d);
    }
    for (IMB_JOB *d; (d = IMB_FLUSH_JOB(manager));)
        done(d);
}

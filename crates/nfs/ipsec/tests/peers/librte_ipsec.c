/* ESP by DPDK's librte_ipsec, over OpenSSL or libipsec-mb: the peer of src/tests/librte.rs.
 *
 * The first line of an association says suite, extended sequence numbers (true or false), IP version
 * of the tunnel, and whether UDP is around ESP; keys and addresses are those of the test. Then each
 * line has a packet in hexadecimal, from its IP header on: "open HEX" is answered with "clear HEX"
 * or "refused", "seal HEX" with "sealed HEX". An empty line ends it, and another may follow.
 */
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cryptodev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ip.h>
#include <rte_ipsec.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_udp.h>

#define IV_AT (sizeof(struct rte_crypto_op) + sizeof(struct rte_crypto_sym_op))
#define MOST 4096

/* Those of all associations of a device, two each. */
#define SESSIONS 255

struct crypto {
    uint8_t id;
    struct rte_mempool *sessions;
};

static struct rte_mempool *packets, *ops;

static void failed(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, rte_strerror(rte_errno));
    exit(1);
}

static struct crypto started(const char *name)
{
    int id = rte_cryptodev_get_dev_id(name);
    if (id < 0)
        failed(name);
    struct crypto device = {.id = id};
    unsigned size = rte_cryptodev_sym_get_private_session_size(id);
    device.sessions =
        rte_cryptodev_sym_session_pool_create(name, SESSIONS, size, 0, 0, SOCKET_ID_ANY);
    if (!device.sessions)
        failed("no memory");
    struct rte_cryptodev_config config = {.nb_queue_pairs = 1, .socket_id = SOCKET_ID_ANY};
    struct rte_cryptodev_qp_conf queue = {.nb_descriptors = 256, .mp_session = device.sessions};
    if (rte_cryptodev_configure(id, &config)
        || rte_cryptodev_queue_pair_setup(id, 0, &queue, SOCKET_ID_ANY)
        || rte_cryptodev_start(id))
        failed("no crypto device");
    return device;
}

struct end {
    const char *suite;
    int esn, v6, nat, outbound;
};

/* The transforms of a suite; those of CBC are two, in the order in which they are done. */
static struct rte_crypto_sym_xform *transforms(const struct end *end)
{
    static uint8_t key[32], auth_key[32];
    static struct rte_crypto_sym_xform all[2][2];
    struct rte_crypto_sym_xform *x = all[end->outbound], *cipher = x, *auth = x + 1;
    memset(x, 0, sizeof all[0]);
    int aes128 = !strncmp(end->suite, "aes128", 6), sha256 = !!strstr(end->suite, "sha256");
    for (int i = 0; i < 32; i++) {
        key[i] = i;
        auth_key[i] = 32 + i;
    }
    if (!strstr(end->suite, "cbc")) {
        int gcm = !!strstr(end->suite, "gcm");
        x->type = RTE_CRYPTO_SYM_XFORM_AEAD;
        x->aead.op = end->outbound ? RTE_CRYPTO_AEAD_OP_ENCRYPT : RTE_CRYPTO_AEAD_OP_DECRYPT;
        x->aead.algo = gcm ? RTE_CRYPTO_AEAD_AES_GCM : RTE_CRYPTO_AEAD_CHACHA20_POLY1305;
        x->aead.key.data = key;
        x->aead.key.length = aes128 ? 16 : 32;
        x->aead.iv.offset = IV_AT;
        x->aead.iv.length = 12;
        x->aead.digest_length = 16;
        x->aead.aad_length = end->esn ? 12 : 8;
        return x;
    }
    if (!end->outbound) {
        auth = x;
        cipher = x + 1;
    }
    cipher->type = RTE_CRYPTO_SYM_XFORM_CIPHER;
    cipher->cipher.op =
        end->outbound ? RTE_CRYPTO_CIPHER_OP_ENCRYPT : RTE_CRYPTO_CIPHER_OP_DECRYPT;
    cipher->cipher.algo = RTE_CRYPTO_CIPHER_AES_CBC;
    cipher->cipher.key.data = key;
    cipher->cipher.key.length = aes128 ? 16 : 32;
    cipher->cipher.iv.offset = IV_AT;
    cipher->cipher.iv.length = 16;
    auth->type = RTE_CRYPTO_SYM_XFORM_AUTH;
    auth->auth.op = end->outbound ? RTE_CRYPTO_AUTH_OP_GENERATE : RTE_CRYPTO_AUTH_OP_VERIFY;
    auth->auth.algo = sha256 ? RTE_CRYPTO_AUTH_SHA256_HMAC : RTE_CRYPTO_AUTH_SHA1_HMAC;
    auth->auth.key.data = auth_key;
    auth->auth.key.length = sha256 ? 32 : 20;
    auth->auth.digest_length = sha256 ? 16 : 12;
    x[0].next = x + 1;
    return x;
}

/* The tunnel's IP header, as far as it is the same for all packets. */
static uint8_t header(const struct end *end, uint8_t *out)
{
    uint8_t protocol = end->nat ? IPPROTO_UDP : IPPROTO_ESP;
    if (end->v6) {
        struct rte_ipv6_hdr *ip = (void *)out;
        ip->vtc_flow = rte_cpu_to_be_32(6u << 28);
        ip->proto = protocol;
        ip->hop_limits = 64;
        memcpy(ip->src_addr, "\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\1", 16);
        memcpy(ip->dst_addr, "\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\2", 16);
        return sizeof *ip;
    }
    struct rte_ipv4_hdr *ip = (void *)out;
    ip->version_ihl = 0x45;
    ip->time_to_live = 64;
    ip->next_proto_id = protocol;
    ip->src_addr = rte_cpu_to_be_32(RTE_IPV4(192, 0, 2, 1));
    ip->dst_addr = rte_cpu_to_be_32(RTE_IPV4(192, 0, 2, 2));
    return sizeof *ip;
}

static struct rte_ipsec_session *session(const struct crypto *device, const struct end *end)
{
    static uint8_t headers[2][64];
    struct rte_ipsec_sa_prm p = {.userdata = 1};
    uint8_t *ip = headers[end->outbound];
    memset(ip, 0, sizeof headers[0]);
    p.ipsec_xform.spi = 4660;
    memcpy(&p.ipsec_xform.salt, "\xaa\xbb\xcc\xdd", 4);
    p.ipsec_xform.options.esn = end->esn;
    // Of an inbound SA the library knows no UDP: what stands before ESP is the caller's matter.
    p.ipsec_xform.options.udp_encap = end->nat && end->outbound;
    p.ipsec_xform.udp.sport = p.ipsec_xform.udp.dport = 4500;
    p.ipsec_xform.direction =
        end->outbound ? RTE_SECURITY_IPSEC_SA_DIR_EGRESS : RTE_SECURITY_IPSEC_SA_DIR_INGRESS;
    p.ipsec_xform.proto = RTE_SECURITY_IPSEC_SA_PROTO_ESP;
    p.ipsec_xform.mode = RTE_SECURITY_IPSEC_SA_MODE_TUNNEL;
    p.ipsec_xform.tunnel.type =
        end->v6 ? RTE_SECURITY_IPSEC_TUNNEL_IPV6 : RTE_SECURITY_IPSEC_TUNNEL_IPV4;
    p.ipsec_xform.replay_win_sz = 64;
    p.crypto_xform = transforms(end);
    p.tun.hdr_len = header(end, ip);
    p.tun.next_proto = IPPROTO_IPIP;
    p.tun.hdr = ip;
    int size = rte_ipsec_sa_size(&p);
    struct rte_ipsec_session *s = rte_zmalloc(NULL, sizeof *s, 64);
    if (size < 0 || !s || !(s->sa = rte_zmalloc(NULL, size, 64))
        || rte_ipsec_sa_init(s->sa, &p, size) < 0)
        failed("no SA");
    s->type = RTE_SECURITY_ACTION_TYPE_NONE;
    s->crypto.dev_id = device->id;
    s->crypto.ses =
        rte_cryptodev_sym_session_create(device->id, p.crypto_xform, device->sessions);
    if (!s->crypto.ses || rte_ipsec_session_prepare(s))
        failed("no session");
    return s;
}

static struct rte_mbuf *read_packet(const char *hex, const struct end *end)
{
    struct rte_mbuf *m = rte_pktmbuf_alloc(packets);
    size_t len = strlen(hex) / 2;
    uint8_t *to = m ? (uint8_t *)rte_pktmbuf_append(m, len) : NULL;
    if (!to)
        failed("no room for a packet");
    for (size_t i = 0; i < len; i++)
        sscanf(hex + 2 * i, "%2hhx", to + i);
    m->l2_len = 0;
    m->l3_len = end->outbound || !end->v6 ? 20 : 40;
    if (end->nat && !end->outbound)
        m->l3_len += sizeof(struct rte_udp_hdr);
    return m;
}

/* Whether the packet is sealed or opened. */
static int work(struct rte_ipsec_session *s, struct rte_mbuf *m)
{
    struct rte_crypto_op *op = rte_crypto_op_alloc(ops, RTE_CRYPTO_OP_TYPE_SYMMETRIC), *done;
    int good = op && rte_ipsec_pkt_crypto_prepare(s, &m, &op, 1) == 1
        && rte_cryptodev_enqueue_burst(s->crypto.dev_id, 0, &op, 1) == 1;
    if (good) {
        while (!rte_cryptodev_dequeue_burst(s->crypto.dev_id, 0, &done, 1))
            ;
        if (done->status != RTE_CRYPTO_OP_STATUS_SUCCESS)
            m->ol_flags |= RTE_MBUF_F_RX_SEC_OFFLOAD_FAILED;
        good = rte_ipsec_pkt_process(s, &m, 1) == 1;
    }
    rte_crypto_op_free(op);
    return good;
}

static void print(const char *word, struct rte_mbuf *m)
{
    const uint8_t *bytes = rte_pktmbuf_mtod(m, uint8_t *);
    printf("%s ", word);
    for (unsigned i = 0; i < m->pkt_len; i++)
        printf("%02x", bytes[i]);
    putchar('\n');
}

/* Seals and opens the packets of an association, to the empty line. */
static void serve(const struct crypto *device, const struct end *in)
{
    static char line[3 * MOST], word[8], hex[2 * MOST];
    struct end out = *in;
    out.outbound = 1;
    struct rte_ipsec_session *opens = session(device, in), *seals = session(device, &out);
    while (fgets(line, sizeof line, stdin) && sscanf(line, "%7s %8191s", word, hex) == 2) {
        int seal = !strcmp(word, "seal");
        struct rte_mbuf *m = read_packet(hex, seal ? &out : in);
        if (!work(seal ? seals : opens, m)) {
            puts("refused");
        } else {
            // The checksum of the tunnel's header is left to whoever sends.
            struct rte_ipv4_hdr *ip = rte_pktmbuf_mtod(m, struct rte_ipv4_hdr *);
            if (seal && !out.v6) {
                ip->hdr_checksum = 0;
                ip->hdr_checksum = rte_ipv4_cksum(ip);
            }
            print(seal ? "sealed" : "clear", m);
        }
        rte_pktmbuf_free(m);
    }
}

int main(int argc, char **argv)
{
    char *eal[] = {argv[0], "--no-huge", "-m", "128", "--no-pci", "--no-shconf", "--no-telemetry",
                   "-l", "0", "--log-level=error", "--vdev", "crypto_openssl0",
                   "--vdev", "crypto_aesni_mb0"};
    (void)argc;
    if (rte_eal_init(sizeof eal / sizeof *eal, eal) < 0)
        failed("no EAL");
    packets = rte_pktmbuf_pool_create("packets", 255, 0, 0, MOST, SOCKET_ID_ANY);
    ops = rte_crypto_op_pool_create("ops", RTE_CRYPTO_OP_TYPE_SYMMETRIC, 255, 0, 64, SOCKET_ID_ANY);
    if (!packets || !ops)
        failed("no memory");
    struct crypto openssl = started("crypto_openssl0"), aesni_mb = started("crypto_aesni_mb0");
    static char line[128], suite[64], esn[8], v6[8], nat[8];
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "%63s %7s %7s %7s", suite, esn, v6, nat) != 4)
            return 2;
        struct end in = {suite, !strcmp(esn, "true"), !strcmp(v6, "true"), !strcmp(nat, "true"), 0};
        serve(strstr(suite, "chacha20") ? &aesni_mb : &openssl, &in);
    }
    return 0;
}

/* Packet filters by libpcap.
 *
 * This file holds the few functions that libpcap.rs calls, so that the compiler checks them against
 * libpcap's own headers.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pcap/pcap.h>

/* Longer packets than any that is captured: what a filter returns for those that match. */
#define SNAP_LEN 262144

static void keep(char *error, size_t size, const char *message)
{
    snprintf(error, size, "%s", message);
}

/* A handle for Ethernet, or for the interface of that name: then tags are looked up where its
 * kernel leaves them. */
static pcap_t *open_handle(const char *interface, char *error, size_t size)
{
    char message[PCAP_ERRBUF_SIZE] = "";
    pcap_t *handle;
    int status;

    if (!interface) {
        handle = pcap_open_dead(DLT_EN10MB, SNAP_LEN);
        if (!handle)
            keep(error, size, "no memory for a filter");
        return handle;
    }
    handle = pcap_create(interface, message);
    if (!handle) {
        keep(error, size, message);
        return NULL;
    }
    pcap_set_snaplen(handle, SNAP_LEN);
    status = pcap_activate(handle);
    if (status >= 0)
        return handle;
    keep(error, size, *pcap_geterr(handle) ? pcap_geterr(handle) : pcap_statustostr(status));
    pcap_close(handle);
    return NULL;
}

/* Compiles a filter for Ethernet packets, or for the interface of that name. NULL after an error,
 * whose message is then in `error`. */
struct bpf_program *thalweg_filter_compile(const char *interface, const char *text, char *error,
                                           size_t size)
{
    pcap_t *handle = open_handle(interface, error, size);
    struct bpf_program *program;

    if (!handle)
        return NULL;
    program = calloc(1, sizeof *program);
    if (!program) {
        keep(error, size, "no memory for a filter");
    } else if (pcap_compile(handle, program, text, 1, PCAP_NETMASK_UNKNOWN) < 0) {
        keep(error, size, pcap_geterr(handle));
        free(program);
        program = NULL;
    }
    pcap_close(handle);
    return program;
}

void thalweg_filter_free(struct bpf_program *program)
{
    pcap_freecode(program);
    free(program);
}

/* Whether a packet of `wire` bytes, of which `captured` are at `bytes`, matches. */
int thalweg_filter_matches(const struct bpf_program *program, const unsigned char *bytes,
                           unsigned captured, unsigned wire)
{
    struct pcap_pkthdr header;

    memset(&header, 0, sizeof header);
    header.caplen = captured;
    header.len = wire;
    return pcap_offline_filter(program, &header, bytes) != 0;
}

/* The kernel's `struct sock_filter` has the same form as libpcap's instructions (socket(7)). */
_Static_assert(sizeof(struct bpf_insn) == 8, "an instruction has eight bytes");

const struct bpf_insn *thalweg_filter_instructions(const struct bpf_program *program,
                                                   unsigned *count)
{
    *count = program->bf_len;
    return program->bf_insns;
}

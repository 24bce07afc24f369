/* Recognises applications with nDPI.
 *
 * Its structures change from version to version; this file holds the few functions that ndpi.rs
 * calls, which checks lengths.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <ndpi/ndpi_api.h>

#if NDPI_MAJOR != 4 || NDPI_MINOR != 2
#error "nDPI 4.2 is needed"
#endif

/* As in ndpi.rs. */
struct thalweg_seen {
    uint16_t master, application, category;
    /* Further packets may reveal more; no further packet will. */
    uint8_t more, failed;
    uint8_t guessed;
};

struct ndpi_detection_module_struct *thalweg_ndpi_new(void)
{
    struct ndpi_detection_module_struct *module = ndpi_init_detection_module(ndpi_no_prefs);
    NDPI_PROTOCOL_BITMASK all;

    if (!module)
        return NULL;
    NDPI_BITMASK_SET_ALL(all);
    ndpi_set_protocol_detection_bitmask2(module, &all);
    ndpi_finalize_initialization(module);
    return module;
}

void thalweg_ndpi_free(struct ndpi_detection_module_struct *module)
{
    ndpi_exit_detection_module(module);
}

/* The name of an application; NULL past the last. */
const char *thalweg_ndpi_application(struct ndpi_detection_module_struct *module, uint16_t id)
{
    return id < ndpi_get_num_supported_protocols(module) ? ndpi_get_proto_name(module, id) : NULL;
}

/* The name of a category; NULL past the last. */
const char *thalweg_ndpi_category(struct ndpi_detection_module_struct *module, uint16_t id)
{
    return id < NDPI_PROTOCOL_NUM_CATEGORIES
        ? ndpi_category_get_name(module, (ndpi_protocol_category_t)id) : NULL;
}

struct ndpi_flow_struct *thalweg_ndpi_flow_new(void)
{
    struct ndpi_flow_struct *flow = ndpi_flow_malloc(SIZEOF_FLOW_STRUCT);

    if (flow)
        memset(flow, 0, SIZEOF_FLOW_STRUCT);
    return flow;
}

void thalweg_ndpi_flow_free(struct ndpi_flow_struct *flow)
{
    ndpi_free_flow(flow);
}

static void tell(struct thalweg_seen *seen, ndpi_protocol protocol)
{
    seen->master = protocol.master_protocol;
    seen->application = protocol.app_protocol;
    seen->category = (uint16_t)protocol.category;
}

/* Inspects a packet, from its IP header on. */
void thalweg_ndpi_packet(struct ndpi_detection_module_struct *module, struct ndpi_flow_struct *flow,
                         const uint8_t *packet, uint16_t length, uint64_t milliseconds,
                         struct thalweg_seen *seen)
{
    tell(seen, ndpi_detection_process_packet(module, flow, packet, length, milliseconds));
    seen->more = ndpi_extra_dissection_possible(module, flow);
    seen->failed = flow->fail_with_unknown;
}

/* Ends the inspection of a flow: what is known without a further packet. */
void thalweg_ndpi_give_up(struct ndpi_detection_module_struct *module,
                          struct ndpi_flow_struct *flow, struct thalweg_seen *seen)
{
    tell(seen, ndpi_detection_giveup(module, flow, 1, &seen->guessed));
}

/* What would be known if the inspection ended now; the flow continues. */
void thalweg_ndpi_guess(struct ndpi_detection_module_struct *module,
                        const struct ndpi_flow_struct *flow, struct thalweg_seen *seen)
{
    /* Giving up changes numbers in the flow and follows its pointers; it neither frees their
     * targets nor replaces the pointers. */
    struct ndpi_flow_struct copy = *flow;

    tell(seen, ndpi_detection_giveup(module, &copy, 1, &seen->guessed));
}

/* The name of the host that the flow addresses; empty if it is not known. */
const char *thalweg_ndpi_host(const struct ndpi_flow_struct *flow)
{
    return flow->host_server_name;
}

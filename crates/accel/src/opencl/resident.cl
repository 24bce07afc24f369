// A work-group of a resident kernel: the device's side of the protocol in region.rs.
//
// Defined ahead of this text: LANES, ROWS, LINE (words of a line), SLOTS_AT (the word at which slots
// begin), PAUSE (what a work-group does before it looks again), NEAR (words of local memory), slots, and the
// functions, by their numbers: `work` calls one, `near_words` returns how much of its table is in local memory.

#if defined(__opencl_c_atomic_scope_all_devices) || __OPENCL_C_VERSION__ == 200
#define EVERYWHERE memory_scope_all_svm_devices
#else
// The processor is the device.
#define EVERYWHERE memory_scope_device
#endif

uint acquire(global uint *word)
{
    return atomic_load_explicit((volatile global atomic_uint *)word, memory_order_acquire, EVERYWHERE);
}

void release(global uint *word, uint value)
{
    atomic_store_explicit((volatile global atomic_uint *)word, value, memory_order_release, EVERYWHERE);
}

kernel __attribute__((reqd_work_group_size(LANES, 1, 1)))
void resident(global uint *region, global uchar *packets)
{
    const uint group = get_group_id(0), lane = get_local_id(0);
    global uint *host_line = region + LINE * (1 + 2 * group);
    global uint *device_line = host_line + LINE;
    global slot_t *slots = (global slot_t *)(region + SLOTS_AT) + (ulong)group * ROWS * LANES + lane;
    const uint function = host_line[1], table_len = host_line[3];
    global const uchar *table = (global const uchar *)(region + host_line[2]);
    local uint ends, sealed, near[NEAR];
    uint done = 0;

    // Seen by all work-items after the first barrier.
    const uint copied = min(near_words(function), table_len / 4);
    for (uint at = lane; at < copied; at += LANES) near[at] = ((global const uint *)table)[at];
    if (lane == 0) release(device_line + 1, 1);
    for (;;) {
        if (lane == 0) {
            // In this order: what was sealed before the end is worked on.
            ends = acquire(region);
            sealed = acquire(host_line);
            if (sealed == done && !ends) PAUSE;
        }
        barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
        const uint until = sealed, last = ends;
        barrier(CLK_LOCAL_MEM_FENCE);
        // More than there are: this memory is a queue no longer. Nothing is written there, not even the end; to
        // run through 2^32 rows would take minutes.
        if (until - done > ROWS) return;
        while (done != until) {
            global slot_t *slot = slots + (done & (ROWS - 1)) * LANES;
            if (slot->flag) {
                const uint2 argument = (uint2)(slot->argument[0], slot->argument[1]);
                const uint2 result =
                    work(function, packets + slot->offset, slot->length, argument, table,
                         (local const uchar *)near);
                slot->result[0] = result.x;
                slot->result[1] = result.y;
            }
            done++;
            barrier(CLK_GLOBAL_MEM_FENCE);
            if (lane == 0) release(device_line, done);
        }
        if (last) break;
    }
    barrier(CLK_GLOBAL_MEM_FENCE);
    if (lane == 0) release(device_line + 1, 2);
}

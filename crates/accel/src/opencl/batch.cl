// A batch: a work-item a packet, and an end. Defined ahead of this text: NEAR (words of local memory), the
// functions with `work` and `near_words`, and slots. The table has as many words.

kernel void batch(global slot_t *slots, uint count, global uchar *packets, global const uchar *table)
{
    const uint at = get_global_id(0);
    local uint near[NEAR];
    for (uint word = get_local_id(0); word < near_words(0); word += get_local_size(0))
        near[word] = ((global const uint *)table)[word];
    barrier(CLK_LOCAL_MEM_FENCE);
    if (at >= count) return;
    global slot_t *slot = slots + at;
    const uint2 argument = (uint2)(slot->argument[0], slot->argument[1]);
    const uint2 result = work(0, packets + slot->offset, slot->length, argument, table,
                              (local const uchar *)near);
    slot->result[0] = result.x;
    slot->result[1] = result.y;
}

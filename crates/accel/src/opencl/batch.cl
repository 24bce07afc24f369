// A batch: a work-item a packet, and an end. Defined ahead of this text: the functions with `work`, and slots.

kernel void batch(global slot_t *slots, uint count, global uchar *packets, global const uchar *table)
{
    const uint at = get_global_id(0);
    if (at >= count) return;
    global slot_t *slot = slots + at;
    const uint2 argument = (uint2)(slot->argument[0], slot->argument[1]);
    const uint2 result = work(0, packets + slot->offset, slot->length, argument, table);
    slot->result[0] = result.x;
    slot->result[1] = result.y;
}

// A launch: a work-group for each row, a work-item for each slot, and an end. In OpenCL C 1.2.
//
// Defined ahead of this text: LANES, NEAR (words of local memory), slots, and the functions, by their numbers:
// `work` calls one, `near_words` returns how much of its table is in local memory. Results are behind all rows:
// flight.rs.

typedef struct {
    uint function;
    // In words from the start of all tables.
    uint table;
    // In bytes.
    uint table_len;
    uint unused;
    slot_t slots[LANES];
} row_t;

kernel __attribute__((reqd_work_group_size(LANES, 1, 1)))
void launch(global row_t *rows, global uchar *packets, global const uint *tables)
{
    global const row_t *row = rows + get_group_id(0);
    global uint2 *results = (global uint2 *)(rows + get_num_groups(0));
    global const uint *table = tables + row->table;
    const uint lane = get_local_id(0), copied = min(near_words(row->function), row->table_len / 4);
    local uint near[NEAR];
    for (uint at = lane; at < copied; at += LANES) near[at] = table[at];
    barrier(CLK_LOCAL_MEM_FENCE);
    global const slot_t *slot = row->slots + lane;
    if (!slot->flag) return;
    results[get_global_id(0)] =
        work(row->function, packets + slot->offset, slot->length, (uint2)(slot->argument[0], slot->argument[1]),
             (global const uchar *)table, (local const uchar *)near);
}

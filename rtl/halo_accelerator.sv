// A lookup accelerator beside a slice of the last-level cache (Yuan, Wang, Wang and Huang,
// "HALO", ISCA 2019, section 4), with keys of 16 bytes and buckets of eight entries.
//
// A query takes a place on the scoreboard and advances independently: metadata, key, hash, both
// buckets, the slots of entries whose signature matches. Memory takes a request a cycle and
// gives a line a cycle, in any order; a line is examined in the cycle after its arrival.
// Locks are taken with the read of a line, and released with the answer, by `answer_entry`.
//
// A bucket: eight signatures of 16 bits, eight numbers of slots of 32 bits. A slot, of 32
// bytes: the value, eight bytes, and the key.
module halo_accelerator #(
    parameter int ENTRIES = 10,
    parameter int TABLES = 10,
    parameter int ADDRESS = 48,
    parameter int KEY = 128,
    parameter int TAG = 16,
    localparam int ENTRY_BITS = $clog2(ENTRIES)
) (
    input  logic                  clk,
    input  logic                  rst,
    // A query.
    input  logic                  query,
    output logic                  query_ready,
    input  logic [TAG-1:0]        query_tag,
    input  logic [ADDRESS-1:0]    query_table,
    input  logic [ADDRESS-1:0]    query_key,
    // A read.
    output logic                  request,
    output logic                  request_lock,
    output logic [ADDRESS-1:0]    request_address,
    output logic [ENTRY_BITS-1:0] request_entry,
    output logic [TAG-1:0]        request_tag,
    output logic [1:0]            request_what,
    // Its line.
    input  logic                  response,
    input  logic [ENTRY_BITS-1:0] response_entry,
    input  logic [1:0]            response_what,
    input  logic [511:0]          response_line,
    // A line of metadata that a core has changed.
    input  logic                  drop,
    input  logic [ADDRESS-1:0]    drop_address,
    // An answer; its query releases its locks.
    output logic                  answer,
    output logic [TAG-1:0]        answer_tag,
    output logic                  answer_found,
    output logic [63:0]           answer_value,
    output logic [ENTRY_BITS-1:0] answer_entry
);
    localparam int WAYS = 8;
    // What is read: metadata or a key (the state tells which), buckets, a slot.
    localparam [1:0] NEAR = 2'd0, BUCKET_0 = 2'd1, BUCKET_1 = 2'd2, SLOT = 2'd3;

    typedef enum logic [3:0] {
        FREE, DECODE, METADATA, FETCH, KEY_READ, KEY_WAIT, HASH, HASHING, READ_0, READ_1,
        FIRST, SECOND, SLOT_READ, SLOT_WAIT, COMMIT
    } state_t;

    state_t             state [ENTRIES];
    logic [TAG-1:0]     tag [ENTRIES];
    logic [ADDRESS-1:0] table_at [ENTRIES];
    logic [ADDRESS-1:0] key_at [ENTRIES];
    logic [ADDRESS-1:0] buckets_at [ENTRIES];
    logic [ADDRESS-1:0] slots_at [ENTRIES];
    logic [31:0]        mask [ENTRIES];
    logic [63:0]        seed [ENTRIES];
    logic [KEY-1:0]     key [ENTRIES];
    logic [31:0]        index [ENTRIES];
    logic [15:0]        signature [ENTRIES];
    // For each bucket: whether it has been compared, the candidate entries, their slots.
    logic [1:0]         compared [ENTRIES];
    logic [WAYS-1:0]    candidates_0 [ENTRIES];
    logic [WAYS-1:0]    candidates_1 [ENTRIES];
    logic [32*WAYS-1:0] numbers_0 [ENTRIES];
    logic [32*WAYS-1:0] numbers_1 [ENTRIES];
    // The half of its line that holds the slot being read.
    logic [ENTRIES-1:0] slot_half;
    // The bucket whose candidates it examines.
    logic [ENTRIES-1:0] second;
    logic [ENTRIES-1:0] found;
    logic [63:0]        value [ENTRIES];

    // The line that arrived, for the cycle in which it is examined.
    logic                  line_valid;
    logic [ENTRY_BITS-1:0] line_entry;
    logic [1:0]            line_what;
    logic [511:0]          line;

    // Bit i * ENTRIES + j: the query in place i came before that in place j.
    logic [ENTRIES*ENTRIES-1:0] older;

    // The oldest of the queries with a request, and whether there is one.
    function automatic logic [ENTRY_BITS:0] choose(
        input logic [ENTRIES-1:0] wants, input logic [ENTRIES*ENTRIES-1:0] came_before
    );
        logic [ENTRY_BITS-1:0] who;
        logic                  first;
        who = '0;
        for (int i = 0; i < ENTRIES; i++) begin
            first = wants[i];
            for (int j = 0; j < ENTRIES; j++) if (wants[j] && came_before[j*ENTRIES+i]) first = 1'b0;
            if (first) who = who | ENTRY_BITS'(i);
        end
        choose = {|wants, who};
    endfunction

    logic [ENTRIES-1:0]    is_free, wants_metadata, wants_memory, wants_hash, wants_commit;
    logic [ENTRY_BITS-1:0] free_entry, meta_entry, memory_entry, hash_entry, commit_entry;
    logic                  any_meta, any_memory, any_hash, any_commit;

    always_comb begin
        for (int i = 0; i < ENTRIES; i++) begin
            wants_metadata[i] = state[i] == METADATA;
            wants_memory[i] = state[i] == FETCH || state[i] == KEY_READ
                || state[i] == READ_0 || state[i] == READ_1 || state[i] == SLOT_READ;
            wants_hash[i] = state[i] == HASH;
            wants_commit[i] = state[i] == COMMIT;
        end
        {any_meta, meta_entry} = choose(wants_metadata, older);
        {any_memory, memory_entry} = choose(wants_memory, older);
        {any_hash, hash_entry} = choose(wants_hash, older);
        {any_commit, commit_entry} = choose(wants_commit, older);
        for (int i = 0; i < ENTRIES; i++)
            // A query whose answer leaves frees its place at once.
            is_free[i] = state[i] == FREE
                || (any_commit && commit_entry == ENTRY_BITS'(i));
        query_ready = |is_free;
        free_entry = '0;
        for (int i = ENTRIES - 1; i >= 0; i--) if (is_free[i]) free_entry = ENTRY_BITS'(i);
    end

    // Metadata.
    logic               held, ready, claim, fill, fetching;
    logic [ADDRESS-1:0] meta_buckets, meta_slots;
    logic [31:0]        meta_mask;
    logic [63:0]        meta_seed;

    // Whether another query is about to fetch the same table.
    always_comb begin
        fetching = 1'b0;
        for (int i = 0; i < ENTRIES; i++)
            if (state[i] == FETCH && table_at[i] == table_at[meta_entry]) fetching = 1'b1;
    end
    assign claim = any_memory && state[memory_entry] == FETCH;
    assign fill = response && response_what == NEAR && state[response_entry] == METADATA;

    halo_metadata #(.TABLES(TABLES), .ADDRESS(ADDRESS)) metadata (
        .clk, .rst, .ask(any_meta), .table_address(table_at[meta_entry]), .held, .ready,
        .buckets(meta_buckets), .slots(meta_slots), .mask(meta_mask), .seed(meta_seed),
        .claim, .claim_address(table_at[memory_entry]),
        .fill, .fill_address(table_at[response_entry]), .fill_line(response_line),
        .drop, .drop_address
    );

    // Hash.
    logic                  hashed;
    logic [ENTRY_BITS-1:0] hashed_entry;
    /* verilator lint_off UNUSEDSIGNAL */ // the lowest bits say nothing new
    logic [63:0]           hash;
    /* verilator lint_on UNUSEDSIGNAL */

    halo_hash #(.ENTRY_BITS(ENTRY_BITS)) hasher (
        .clk, .rst, .valid(any_hash), .entry(hash_entry), .key(key[hash_entry][63:0]),
        .seed(seed[hash_entry]), .hashed, .hashed_entry, .hash
    );

    // A query that the hash reaches in this cycle sees it at once.
    logic [31:0] hash_index, hash_index_masked;
    logic [15:0] hash_signature;
    assign hash_index = hash[63:32];
    assign hash_index_masked = hash_index & mask[hashed_entry];
    assign hash_signature = hash[31:16] == 16'd0 ? 16'd1 : hash[31:16];

    // What is read.
    logic [ADDRESS-1:0] bucket_0, bucket_1, slot;
    logic [WAYS-1:0]    left;
    logic [32*WAYS-1:0] slots_left;
    logic [2:0]         way;

    always_comb begin
        left = second[memory_entry] ? candidates_1[memory_entry] : candidates_0[memory_entry];
        slots_left = second[memory_entry] ? numbers_1[memory_entry] : numbers_0[memory_entry];
        way = 3'd0;
        for (int i = WAYS - 1; i >= 0; i--) if (left[i]) way = 3'(i);
        bucket_0 = buckets_at[memory_entry] + ADDRESS'({index[memory_entry], 6'd0});
        bucket_1 = buckets_at[memory_entry] + ADDRESS'(
            {(index[memory_entry] ^ {16'd0, signature[memory_entry]}) & mask[memory_entry], 6'd0});
        slot = slots_at[memory_entry]
            + ADDRESS'({slots_left[32*way+:32], 5'd0});
        request = any_memory;
        request_entry = memory_entry;
        request_tag = tag[memory_entry];
        request_lock = 1'b0;
        request_what = NEAR;
        request_address = table_at[memory_entry];
        case (state[memory_entry])
            KEY_READ: request_address = key_at[memory_entry];
            READ_0: begin request_address = bucket_0; request_what = BUCKET_0; end
            READ_1: begin request_address = bucket_1; request_what = BUCKET_1; end
            SLOT_READ: begin request_address = slot; request_what = SLOT; end
            default: ;
        endcase
        if (request_what != NEAR) request_lock = any_memory;
    end

    // The line under examination: signatures of a bucket, the key of a slot. The key of a
    // slot of 32 bytes lies in either half of its line.
    logic [WAYS-1:0] agrees;
    logic            is_key, upper;
    /* verilator lint_off UNUSEDSIGNAL */ // a slot has 8 bytes to spare
    logic [255:0]    half;
    /* verilator lint_on UNUSEDSIGNAL */

    always_comb begin
        for (int i = 0; i < WAYS; i++)
            agrees[i] = line[16*i+:16] == signature[line_entry] && line[16*i+:16] != 16'd0;
        upper = slot_half[line_entry];
        half = upper ? line[511:256] : line[255:0];
        is_key = half[64+:KEY] == key[line_entry];
    end
    // Whether a key of 16 bytes lies in which quarter of its line.
    logic [1:0] key_quarter;
    assign key_quarter = key_at[response_entry][5:4];

    // Whether a bucket of an entry is compared, and what of it is to be looked at: with what
    // is compared in this cycle.
    logic [ENTRIES-1:0] compared_0, compared_1, some_0, some_1;
    always_comb
        for (int i = 0; i < ENTRIES; i++) begin
            compared_0[i] = compared[i][0];
            compared_1[i] = compared[i][1];
            some_0[i] = candidates_0[i] != '0;
            some_1[i] = candidates_1[i] != '0;
            if (line_valid && line_entry == ENTRY_BITS'(i) && line_what == BUCKET_0) begin
                compared_0[i] = 1'b1;
                some_0[i] = agrees != '0;
            end
            if (line_valid && line_entry == ENTRY_BITS'(i) && line_what == BUCKET_1) begin
                compared_1[i] = 1'b1;
                some_1[i] = agrees != '0;
            end
        end

    always_ff @(posedge clk) begin
        line_valid <= response && !rst;
        line_entry <= response_entry;
        line_what <= response_what;
        line <= response_line;
        answer <= any_commit && !rst;
        answer_tag <= tag[commit_entry];
        answer_found <= found[commit_entry];
        answer_value <= value[commit_entry];
        answer_entry <= commit_entry;
        if (any_commit) state[commit_entry] <= FREE;

        // A bucket's result is stored: the line belongs to another query in the next cycle.
        if (line_valid && line_what == BUCKET_0) begin
            compared[line_entry][0] <= 1'b1;
            candidates_0[line_entry] <= agrees;
            numbers_0[line_entry] <= line[128+:32*WAYS];
        end
        if (line_valid && line_what == BUCKET_1) begin
            compared[line_entry][1] <= 1'b1;
            candidates_1[line_entry] <= agrees;
            numbers_1[line_entry] <= line[128+:32*WAYS];
        end

        for (int i = 0; i < ENTRIES; i++)
            case (state[i])
                DECODE: state[i] <= METADATA;
                FIRST:
                    if (compared_0[i]) begin
                        second[i] <= 1'b0;
                        state[i] <= some_0[i] ? SLOT_READ : SECOND;
                    end
                SECOND:
                    if (compared_1[i]) begin
                        second[i] <= 1'b1;
                        state[i] <= some_1[i] ? SLOT_READ : COMMIT;
                    end
                default: ;
            endcase

        // A cached table is known in a cycle; any other is fetched, by the first query that
        // requests it.
        if (any_meta && ready) begin
            state[meta_entry] <= KEY_READ;
            buckets_at[meta_entry] <= meta_buckets;
            slots_at[meta_entry] <= meta_slots;
            mask[meta_entry] <= meta_mask;
            seed[meta_entry] <= meta_seed;
        end else if (any_meta && !held && !fetching) begin
            state[meta_entry] <= FETCH;
        end

        if (any_memory)
            case (state[memory_entry])
                FETCH: state[memory_entry] <= METADATA;
                KEY_READ: state[memory_entry] <= KEY_WAIT;
                READ_0: state[memory_entry] <= READ_1;
                READ_1: state[memory_entry] <= FIRST;
                SLOT_READ: begin
                    state[memory_entry] <= SLOT_WAIT;
                    slot_half[memory_entry] <= slot[5];
                    if (second[memory_entry]) candidates_1[memory_entry] <= left & (left - 1'b1);
                    else candidates_0[memory_entry] <= left & (left - 1'b1);
                end
                default: ;
            endcase

        // The key goes to the hash in the cycle after its arrival.
        if (response && response_what == NEAR && state[response_entry] == KEY_WAIT) begin
            key[response_entry] <= response_line[128*key_quarter+:KEY];
            state[response_entry] <= HASH;
        end
        if (any_hash) state[hash_entry] <= HASHING;
        if (hashed) begin
            index[hashed_entry] <= hash_index_masked;
            signature[hashed_entry] <= hash_signature;
            state[hashed_entry] <= READ_0;
        end

        if (line_valid && line_what == SLOT) begin
            if (is_key) begin
                found[line_entry] <= 1'b1;
                value[line_entry] <= half[63:0];
                state[line_entry] <= COMMIT;
            end else if (second[line_entry] ? some_1[line_entry] : some_0[line_entry]) begin
                state[line_entry] <= SLOT_READ;
            end else begin
                state[line_entry] <= second[line_entry] ? COMMIT : SECOND;
            end
        end

        if (query && query_ready) begin
            state[free_entry] <= DECODE;
            tag[free_entry] <= query_tag;
            table_at[free_entry] <= query_table;
            key_at[free_entry] <= query_key;
            compared[free_entry] <= '0;
            found[free_entry] <= 1'b0;
            for (int i = 0; i < ENTRIES; i++)
                for (int j = 0; j < ENTRIES; j++)
                    if (ENTRY_BITS'(i) == free_entry) older[i*ENTRIES+j] <= 1'b0;
                    else if (ENTRY_BITS'(j) == free_entry) older[i*ENTRIES+j] <= 1'b1;
            value[free_entry] <= '0;
        end
        if (rst) for (int i = 0; i < ENTRIES; i++) state[i] <= FREE;
    end
endmodule

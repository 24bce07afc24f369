// The metadata cache: where a table's buckets and slots lie, how many buckets it has, and
// what is mixed into its hash. A table that is being fetched holds its place; a line that
// a core has changed is invalidated.
module halo_metadata #(
    parameter int TABLES = 10,
    parameter int ADDRESS = 48
) (
    input  logic               clk,
    input  logic               rst,
    // The table that is looked up.
    input  logic               ask,
    input  logic [ADDRESS-1:0] table_address,
    output logic               held,     // it has a place,
    output logic               ready,    // and what belongs there has arrived
    output logic [ADDRESS-1:0] buckets,
    output logic [ADDRESS-1:0] slots,
    output logic [31:0]        mask,
    output logic [63:0]        seed,
    // A table to allocate a place for: memory has accepted its request.
    input  logic               claim,
    input  logic [ADDRESS-1:0] claim_address,
    // Its line.
    input  logic               fill,
    input  logic [ADDRESS-1:0] fill_address,
    /* verilator lint_off UNUSEDSIGNAL */ // there is more room in a line
    input  logic [511:0]       fill_line,
    /* verilator lint_on UNUSEDSIGNAL */
    // A line that a core has changed.
    input  logic               drop,
    input  logic [ADDRESS-1:0] drop_address
);
    logic [TABLES-1:0]  taken, arrived;
    logic [ADDRESS-1:0] address [TABLES];
    logic [ADDRESS-1:0] buckets_at [TABLES];
    logic [ADDRESS-1:0] slots_at [TABLES];
    logic [31:0]        masks [TABLES];
    logic [63:0]        seeds [TABLES];
    // older[i][j]: i was used before j.
    logic [TABLES-1:0]  older [TABLES];

    logic [TABLES-1:0] hit, oldest, used;

    always_comb begin
        buckets = '0;
        slots = '0;
        mask = '0;
        seed = '0;
        for (int i = 0; i < TABLES; i++) begin
            hit[i] = taken[i] && address[i] == table_address;
            // A free place is older than any other.
            oldest[i] = 1'b1;
            for (int j = 0; j < TABLES; j++)
                if (j != i) begin
                    if (!taken[j] && (taken[i] || j < i)) oldest[i] = 1'b0;
                    if (taken[j] && taken[i] && !older[i][j]) oldest[i] = 1'b0;
                end
            if (hit[i]) begin
                buckets = buckets_at[i];
                slots = slots_at[i];
                mask = masks[i];
                seed = seeds[i];
            end
        end
        used = claim ? oldest : (ask ? hit : '0);
    end

    assign held = |hit;
    assign ready = |(hit & arrived);

    always_ff @(posedge clk) begin
        for (int i = 0; i < TABLES; i++) begin
            if (used[i]) begin
                older[i] <= '0;
                for (int j = 0; j < TABLES; j++) if (j != i) older[j][i] <= 1'b1;
            end
            if (claim && oldest[i]) begin
                taken[i] <= 1'b1;
                arrived[i] <= 1'b0;
                address[i] <= claim_address;
            end else if (drop && address[i] == drop_address) begin
                taken[i] <= 1'b0;
            end
            if (fill && taken[i] && address[i] == fill_address) begin
                arrived[i] <= 1'b1;
                buckets_at[i] <= fill_line[ADDRESS-1:0];
                slots_at[i] <= fill_line[64+:ADDRESS];
                masks[i] <= fill_line[128+:32];
                seeds[i] <= fill_line[192+:64];
            end
        end
        if (rst) begin
            taken <= '0;
            arrived <= '0;
            for (int i = 0; i < TABLES; i++) older[i] <= '0;
        end
    end
endmodule

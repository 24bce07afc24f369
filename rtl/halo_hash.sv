// The hash unit: the finaliser of SplitMix (Steele, Lea and Flood, OOPSLA 2014) of a key's
// number and the table's seed. A hash takes eight cycles, the first of which is the one in which
// the key arrives; one key a cycle.
//
// The simulator's tables know a key by its number, which its first eight bytes hold; a real
// key would first be folded to eight bytes.
module halo_hash #(
    parameter int ENTRY_BITS = 4
) (
    input  logic                  clk,
    input  logic                  rst,
    input  logic                  valid,
    input  logic [ENTRY_BITS-1:0] entry,
    input  logic [63:0]           key,
    input  logic [63:0]           seed,
    output logic                  hashed,
    output logic [ENTRY_BITS-1:0] hashed_entry,
    output logic [63:0]           hash
);
    localparam int STAGES = 7;
    localparam [63:0] FIRST = 64'hbf58_476d_1ce4_e5b9;
    localparam [63:0] SECOND = 64'h94d0_49bb_1331_11eb;

    logic [STAGES-1:0]     busy;
    logic [ENTRY_BITS-1:0] whose [STAGES];
    logic [63:0]           value [STAGES];
    // The half of a product by the multiplier's upper word is held next to the other half.
    logic [31:0]           first_high, second_high;

    function automatic logic [63:0] fold(input logic [63:0] n, input int shift);
        fold = n ^ (n >> shift);
    endfunction

    always_ff @(posedge clk) begin
        busy  <= rst ? '0 : {busy[STAGES-2:0], valid};
        whose[0] <= entry;
        for (int i = 1; i < STAGES; i++) whose[i] <= whose[i-1];
        value[0] <= fold(key + seed, 30);
        value[1] <= value[0] * {32'd0, FIRST[31:0]};
        first_high <= value[0][31:0] * FIRST[63:32];
        value[2] <= value[1] + {first_high, 32'd0};
        value[3] <= fold(value[2], 27);
        value[4] <= value[3] * {32'd0, SECOND[31:0]};
        second_high <= value[3][31:0] * SECOND[63:32];
        value[5] <= value[4] + {second_high, 32'd0};
        value[6] <= fold(value[5], 31);
    end

    assign hashed = busy[STAGES-1];
    assign hashed_entry = whose[STAGES-1];
    assign hash = value[STAGES-1];
endmodule

// A slot: slot.rs.
typedef struct {
    ulong offset;
    uint length;
    uint flag;
    uint argument[2];
    uint result[2];
} slot_t;


//! Functions that a device runs on packets: the part of an NF that takes the time.

/// The work of an NF on one packet, as a device can do it: without state, without branches to other
/// packets, over bytes and a table.
///
/// It exists twice. What [`scalar`](Self::scalar) returns and leaves in the bytes defines what the
/// [`source`](Self::source) has to.
#[derive(Clone, Copy, Debug)]
pub struct DeviceFunction {
    /// Its name: an identifier of C.
    pub name: &'static str,
    /// OpenCL C that defines `uint2 NAME(global uchar *bytes, uint len, uint2 argument, global const
    /// uchar *table)`. Other names in it begin with `NAME_`, as several functions become one kernel.
    pub source: &'static str,
    /// The same on a processor.
    pub scalar: Scalar,
}

/// Works on the bytes of a job in place, by its argument and a table; returns its result.
///
/// The table is what the NF wrote. Bytes come from a network: any content must be harmless, as it
/// must be in the OpenCL form.
pub type Scalar = fn(bytes: &mut [u8], argument: [u32; 2], table: &[u8]) -> [u32; 2];

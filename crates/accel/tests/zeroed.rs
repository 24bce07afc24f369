//! Tables, which may have keys, are zeroed before their memory is freed.
#![allow(unsafe_code)] // a region is lent on

use std::sync::{Arc, Mutex};

use thalweg_accel::{AccelError, Accelerator, Backend, Launch, Options, Partition, REFLECT};
use thalweg_accel::{Resident, Soft};
use thalweg_packet::{PacketMemory, Pool};

/// The bytes of each region when it was freed.
type Freed = Arc<Mutex<Vec<Vec<u8>>>>;

/// `Soft`, with memory that is looked at when it is freed.
struct Looking(Freed);

/// Owns a region.
struct Owner {
    memory: PacketMemory,
    freed: Freed,
}

impl Drop for Owner {
    fn drop(&mut self) {
        let (base, len) = (self.memory.base().as_ptr(), self.memory.len());
        // SAFETY: the region is still mapped, and its user has dropped it.
        let bytes = unsafe { std::slice::from_raw_parts(base, len) };
        self.freed.lock().unwrap().push(bytes.to_vec());
    }
}

impl Backend for Looking {
    fn name(&self) -> String {
        Soft.name()
    }

    fn allocate(&self, len: usize) -> Result<PacketMemory, AccelError> {
        let memory = Soft.allocate(len)?;
        let (base, len) = (memory.base(), memory.len());
        let owner = Box::new(Owner { memory, freed: self.0.clone() });
        // SAFETY: the owner keeps the region, which nothing else uses.
        Ok(unsafe { PacketMemory::from_raw_parts(base, len, owner) })
    }

    fn start(&self, launch: Launch) -> Result<Box<dyn Resident>, AccelError> {
        Soft.start(launch)
    }
}

#[test]
fn no_key_is_left_in_memory_that_a_device_shared() {
    let freed = Freed::default();
    let pool = Arc::new(Pool::anonymous(64, 2048).unwrap());
    let key = *b"a key of sixteen";
    let partition = |work_groups| {
        let table = key.repeat(100).into();
        Partition { function: REFLECT, table, work_groups }
    };
    let partitions = vec![partition(1), partition(2)];
    let accelerator =
        Accelerator::start(&Looking(freed.clone()), partitions, Options::default(), pool).unwrap();
    assert_eq!(freed.lock().unwrap().len(), 0, "it runs");
    drop(accelerator);
    let freed = freed.lock().unwrap();
    let [region] = &freed[..] else { panic!("{} regions", freed.len()) };
    let has = |part: &[u8]| region.windows(part.len()).any(|bytes| bytes == part);
    assert!(region.len() > 3200 && !has(&key) && !has(&key[..8]));
}

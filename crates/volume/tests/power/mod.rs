//! Disks that lose power at any byte.

#![allow(unreachable_pub, reason = "each test uses its part")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use diskside_io::Errno;
use diskside_io::buffer::{Hugepages, SharedMemory};
use diskside_io::request::RequestFuture;
use diskside_volume::media::AtomicMedium;
use diskside_volume::medium::{Access, Action, Medium, Properties, Step};

pub const SECTOR: usize = 512;

/// The common state of two disks: they lose power together, when so many sectors more were written.
#[derive(Debug)]
pub struct Power {
    pub state: Mutex<PowerState>,
}

#[derive(Debug)]
pub struct PowerState {
    pub sectors_left: u64,
    pub chance: u64,
}

impl Power {
    /// Power for so many sectors that are written.
    pub fn new(sectors_left: u64, chance: u64) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(PowerState { sectors_left, chance }) })
    }
}

impl PowerState {
    pub fn next(&mut self) -> u64 {
        // SplitMix64.
        self.chance = self.chance.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.chance ^ (self.chance >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

/// A disk whose unflushed sectors reach it one by one, in any order, when its power fails.
#[derive(Debug)]
pub struct Disk {
    power: Arc<Power>,
    properties: Properties,
    sectors: Mutex<Sectors>,
}

#[derive(Debug)]
struct Sectors {
    durable: Vec<u8>,
    cached: BTreeMap<usize, [u8; SECTOR]>,
}

impl Disk {
    pub fn new(power: &Arc<Power>, bytes: Vec<u8>) -> Arc<Self> {
        let properties = Properties {
            len_bytes: bytes.len() as u64,
            read_only: false,
            volatile_write_cache: true,
            thin: false,
            direct: true,
            atomic_len: 0,
            delta_len: 0,
        };
        let sectors = Mutex::new(Sectors { durable: bytes, cached: BTreeMap::new() });
        Arc::new(Self { power: Arc::clone(power), properties, sectors })
    }

    /// The content after that: of each cached sector the old content or the new one.
    pub fn after_power_loss(&self) -> Vec<u8> {
        let mut power = self.power.state.lock().unwrap();
        let mut sectors = self.sectors.lock().unwrap();
        let Sectors { durable, cached } = &mut *sectors;
        for (sector, bytes) in std::mem::take(cached) {
            if power.next().is_multiple_of(2) {
                durable[sector * SECTOR..(sector + 1) * SECTOR].copy_from_slice(&bytes);
            }
        }
        durable.clone()
    }
}

impl Medium for Disk {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn start(&self, access: &Access<'_>) -> Step {
        let mut power = self.power.state.lock().unwrap();
        let mut sectors = self.sectors.lock().unwrap();
        if power.sectors_left == 0 {
            return Action::Failed(Errno::IO).into();
        }
        match *access {
            Access::Read { offset, len } => {
                let mut bytes = sectors.durable[offset as usize..offset as usize + len].to_vec();
                let first = offset as usize / SECTOR;
                for (sector, cached) in sectors.cached.range(first..first + len / SECTOR) {
                    bytes[(sector - first) * SECTOR..(sector - first + 1) * SECTOR].copy_from_slice(cached);
                }
                let memory = SharedMemory::zeroed(len, Hugepages::No);
                memory.write(0, &bytes);
                Action::Bytes(memory.slice(0..len)).into()
            }
            Access::Write { offset, data, durable } => {
                let first = offset as usize / SECTOR;
                for (sector, bytes) in (first..).zip(data.chunks_exact(SECTOR)) {
                    if power.sectors_left == 0 {
                        return Action::Failed(Errno::IO).into();
                    }
                    power.sectors_left -= 1;
                    sectors.cached.insert(sector, bytes.try_into().unwrap());
                }
                if durable {
                    let range = first..first + data.len() / SECTOR;
                    flush(&mut sectors, |sector| range.contains(&sector));
                }
                Action::Done(data.len() as u64).into()
            }
            Access::Delta(_) => Action::Failed(Errno::OPNOTSUPP).into(),
            Access::Zero { .. } => Action::WriteZeroes.into(),
            Access::Flush => {
                flush(&mut sectors, |_| true);
                Action::Done(0).into()
            }
        }
    }
}

fn flush(sectors: &mut Sectors, which: impl Fn(usize) -> bool) {
    let Sectors { durable, cached } = sectors;
    cached.retain(|&sector, bytes| {
        if which(sector) {
            durable[sector * SECTOR..(sector + 1) * SECTOR].copy_from_slice(bytes);
        }
        !which(sector)
    });
}

/// Starts an access that the thread of the journal carries out.
pub fn begin(medium: &AtomicMedium, access: &Access<'_>) -> Result<RequestFuture, Errno> {
    match medium.start(access).action {
        Action::Elsewhere(future) => Ok(future),
        Action::Failed(errno) => Err(errno),
        other => panic!("{other:?}"),
    }
}

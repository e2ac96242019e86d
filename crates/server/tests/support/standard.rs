//! The state behind the standard computing commands, driven by bytes: loading, activating, range sets, memory, copies and
//! executions of two hosts, in any order, against the target's own tables and a model of what they may say.
//!
//! These hold after each command: its status is one that the specification has for it; memory and the volume contain
//! the bytes of the commands that succeeded, and nothing else changed; sets and programs are within their bounds and as
//! many as were made. When the hosts have gone, nothing of theirs is left.

use diskside_compute::fuzz::Commands;
use diskside_nvme::Status;
use diskside_nvme::wire::memory::{
    EXECUTE_PROGRAM, Execution, MemoryCopySource, MemoryRange, RANGE_SET_MANAGEMENT, memory_log, memory_opcode,
};
use diskside_nvme::wire::{CSI_COMPUTE, program_opcode};
use diskside_nvme::wire::{CopySourceEntry, Sgl, Sqe, cns, nvm_opcode};
use diskside_server::Target;
use diskside_server::config::{Size, VolumeSpec};
use diskside_wire::function::{Endpoint, EndpointKind, ProgramDirectory, function_log, program_state};
use zerocopy::{FromBytes, IntoBytes};

const VOLUME: u32 = 1;
const MEMORY: u32 = 1023;
const COMPUTE: u32 = 1024;
const MEMORY_LEN: usize = 64 << 10;
const BLOCK: usize = 512;
const VOLUME_LEN: usize = 32 << 10;
const HOSTS: [&str; 2] = ["nqn.2026-11.org.example:a", "nqn.2026-11.org.example:b"];
const HOST_PROGRAMS: u16 = 2;
/// Commands of one input.
const COMMANDS_MAX: usize = 200;

/// A target that does not serve. It is made once, because that takes long.
pub struct Lab {
    target: Target,
    shipped: usize,
    /// The objects that are loaded: a good program, and an invalid one.
    objects: Vec<Vec<u8>>,
}

/// One input's commands.
struct Run<'a> {
    lab: &'a Lab,
    input: &'a [u8],
    commands: Commands,
    memory: Vec<u8>,
    volume: Vec<u8>,
    sets: Vec<(usize, u16, Vec<MemoryRange>)>,
}

impl Lab {
    pub fn new() -> Self {
        let shipped = diskside_functions::shipped();
        let volume: VolumeSpec = format!("data=mem:{VOLUME_LEN},block={BLOCK},rw").parse().expect("a volume");
        let indexes = shipped.len() as u16 + 4;
        let target = Target::builder().volume(volume).compute(|compute| {
            compute.memory = Size::from_bytes(MEMORY_LEN as u64);
            compute.programs = indexes;
            compute.host_programs = HOST_PROGRAMS;
        });
        let target = target.build().expect("a target");
        let mut bad = shipped[0].object.to_vec();
        bad.truncate(600);
        Self { target, shipped: shipped.len(), objects: vec![shipped[1].object.to_vec(), bad] }
    }

    /// Runs the commands that the bytes mean.
    pub fn run(&self, input: &[u8]) {
        let commands = Commands::new(self.target.handle().compute().expect("the target computes"), &HOSTS);
        let (memory, volume) = (vec![0; MEMORY_LEN], vec![0; VOLUME_LEN]);
        let mut run = Run { lab: self, input, commands, memory, volume, sets: Vec::new() };
        run.clear();
        for command in 0..COMMANDS_MAX {
            if run.input.is_empty() {
                break;
            }
            run.step();
            run.check(command % 8 == 0);
        }
        run.check(true);
        let Run { commands, .. } = run;
        drop(commands);
        let after = Commands::new(self.target.handle().compute().expect("the target computes"), &HOSTS);
        for host in 0..HOSTS.len() {
            assert_eq!(sets(&after, host), 0, "sets go with their hosts");
            assert_eq!(programs(&after, host).len(), self.shipped, "programs go with their hosts");
        }
    }
}

impl Run<'_> {
    // -- the input ----------------------------------------------------------------------------------------------------

    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.input.split_first() else { return 0 };
        self.input = rest;
        *first
    }

    fn word(&mut self) -> u64 {
        u64::from(u16::from_le_bytes([self.byte(), self.byte()]))
    }

    /// A place or a length: most often one that can be.
    fn place(&mut self, granularity: u64) -> u64 {
        let word = self.word();
        match self.byte() % 16 {
            0 => word,
            1 => word << 48,
            2 => MEMORY_LEN as u64 - word % 64,
            _ => word / granularity * granularity,
        }
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let seed = self.byte();
        (0..len).map(|at| (at as u8).wrapping_mul(31) ^ seed).collect()
    }

    // -- commands -----------------------------------------------------------------------------------------------------

    fn step(&mut self) {
        let host = usize::from(self.byte() & 1);
        match self.byte() % 13 {
            0 => self.write(host),
            1 => self.read(host),
            2 => self.fill(host),
            3 => self.copy_within(host),
            4 => self.copy_from_volume(host),
            5 => self.copy_to_volume(host),
            6 => self.create_set(host),
            7 => self.delete_set(host),
            8 => self.execute(host),
            9 => self.load(host),
            10 => self.manage_program(host),
            11 => self.pages(host),
            _ => self.raw(host),
        }
    }

    fn send(&self, host: usize, sqe: Sqe, admin: bool, data: &[u8]) -> (Status, u64) {
        let mut sqe = sqe;
        sqe.set_sgl(Sgl::transport(data.len() as u32));
        let (status, result, back) = self.commands.run(host, &sqe, admin, data);
        assert!(back.is_empty(), "{sqe:?}");
        (status, result)
    }

    fn receive(&self, host: usize, sqe: Sqe, admin: bool, len: usize) -> (Status, Vec<u8>) {
        let mut sqe = sqe;
        sqe.set_sgl(Sgl::transport(len as u32));
        let (status, _, data) = self.commands.run(host, &sqe, admin, &[]);
        (status, data)
    }

    /// Where a memory command works, if it is one that can be.
    fn range(start: u64, len: u64) -> Option<std::ops::Range<usize>> {
        let end = start.checked_add(len).filter(|end| *end <= MEMORY_LEN as u64)?;
        (start.is_multiple_of(4) && len.is_multiple_of(4)).then_some(start as usize..end as usize)
    }

    fn write(&mut self, host: usize) {
        let (start, len) = (self.place(4), self.place(4) % 9000);
        let data = self.bytes(len as usize);
        let (status, _) = self.send(host, Sqe::memory_write(MEMORY, start, len as u32), false, &data);
        match Self::range(start, len) {
            Some(range) => {
                assert_eq!(status, Status::SUCCESS);
                self.memory[range].copy_from_slice(&data);
            }
            None => assert_eq!(status, Status::INVALID_FIELD.dnr()),
        }
    }

    fn read(&mut self, host: usize) {
        let (start, len) = (self.place(4), self.place(4) % 9000);
        let room = if self.byte() == 0 { len / 2 } else { len };
        let (status, data) = self.receive(host, Sqe::memory_read(MEMORY, start, len as u32), false, room as usize);
        match Self::range(start, len) {
            Some(_) if room < len => assert_eq!(status, Status::DATA_SGL_LENGTH_INVALID.dnr()),
            Some(range) => assert!(status == Status::SUCCESS && data == self.memory[range]),
            None => assert_eq!(status, Status::INVALID_FIELD.dnr()),
        }
    }

    fn fill(&mut self, host: usize) {
        let (start, len) = (self.place(4), self.place(4));
        let (status, _) = self.send(host, Sqe::memory_fill(MEMORY, start, len as u32), false, &[]);
        match Self::range(start, u64::from(len as u32)) {
            Some(range) => {
                assert_eq!(status, Status::SUCCESS);
                self.memory[range].fill(0);
            }
            None => assert_eq!(status, Status::INVALID_FIELD.dnr()),
        }
    }

    /// Sources in the memory, and the bytes there if all of them can be.
    fn memory_sources(&mut self, granularity: u64) -> (Vec<MemoryCopySource>, Option<Vec<u8>>, u64) {
        let count = usize::from(self.byte() % 4) + 1;
        let (mut sources, mut bytes, mut sum) = (Vec::new(), Some(Vec::new()), 0);
        for _ in 0..count {
            let (start, len) = (self.place(granularity), self.place(granularity) % 9000 / granularity * granularity);
            let odd = self.byte();
            let nsid = if odd == 1 { VOLUME } else { MEMORY };
            let source = MemoryCopySource::new(nsid, start, len as u32);
            sources.push(if odd == 2 { source.with_fast_only() } else { source });
            sum += len;
            let part = Self::range(start, len).filter(|_| odd != 1 && odd != 2);
            bytes = bytes.zip(part).map(|(mut bytes, part)| {
                bytes.extend_from_slice(&self.memory[part]);
                bytes
            });
        }
        (sources, bytes, sum)
    }

    fn copy_within(&mut self, host: usize) {
        let (sources, bytes, sum) = self.memory_sources(4);
        let start = self.place(4);
        let len = if self.byte() == 0 { self.word() } else { sum };
        let sqe = Sqe::memory_copy(MEMORY, start, len, sources.len() as u32, 4);
        let (status, _) = self.send(host, sqe, false, sources.as_bytes());
        if status == Status::SUCCESS {
            let (bytes, range) = (bytes.expect("sources that can be"), Self::range(start, len).expect("a place"));
            self.memory[range].copy_from_slice(&bytes);
        }
        let allowed = [
            Status::INVALID_FIELD,
            Status::OVERLAPPING_IO_RANGE,
            Status::INVALID_NAMESPACE_OR_FORMAT,
            Status::FAST_COPY_NOT_POSSIBLE,
        ];
        allow(status, &allowed);
    }

    fn copy_from_volume(&mut self, host: usize) {
        let count = usize::from(self.byte() % 4) + 1;
        let (mut sources, mut bytes) = (Vec::new(), Some(Vec::new()));
        let mut sum = 0;
        for _ in 0..count {
            let (slba, blocks, odd) = (self.word() % 70, self.word() % 20 + 1, self.byte());
            let nsid = *[VOLUME, MEMORY, 77].get(usize::from(odd)).unwrap_or(&VOLUME);
            sources.push(CopySourceEntry::new(nsid, slba, blocks as u32));
            let (from, len) = (slba as usize * BLOCK, blocks as usize * BLOCK);
            sum += len as u64;
            let part = self.volume.get(from..from + len).filter(|_| nsid == VOLUME);
            bytes = bytes.zip(part).map(|(bytes, part): (Vec<u8>, &[u8])| [&bytes, part].concat());
        }
        let start = self.place(4);
        let len = if self.byte() == 0 { self.word() } else { sum };
        let format = if self.byte() == 0 { self.byte() % 16 } else { 2 };
        let sqe = Sqe::memory_copy(MEMORY, start, len, sources.len() as u32, format);
        let (status, _) = self.send(host, sqe, false, sources.as_bytes());
        if status == Status::SUCCESS && matches!(format, 2 | 3) {
            let (bytes, range) = (bytes.expect("sources that can be"), Self::range(start, len).expect("a place"));
            self.memory[range].copy_from_slice(&bytes);
        } else if status == Status::SUCCESS {
            // Descriptors of blocks, read as those of memory, say something else.
            self.take_over();
        }
        let allowed = [
            Status::INVALID_FIELD,
            Status::OVERLAPPING_IO_RANGE,
            Status::INVALID_NAMESPACE_OR_FORMAT,
            Status::INCOMPATIBLE_NAMESPACE_OR_FORMAT,
            Status::FAST_COPY_NOT_POSSIBLE,
            Status::LBA_OUT_OF_RANGE,
        ];
        allow(status, &allowed);
    }

    fn copy_to_volume(&mut self, host: usize) {
        let granularity = if self.byte().is_multiple_of(4) { 4 } else { BLOCK as u64 };
        let (sources, bytes, _) = self.memory_sources(granularity);
        let slba = if self.byte() == 0 { u64::MAX - self.word() } else { self.word() % 70 };
        let (status, _) = self.send(host, Sqe::copy(VOLUME, slba, sources.len() as u32, 4), false, sources.as_bytes());
        if status == Status::SUCCESS {
            let (bytes, at) = (bytes.expect("sources that can be"), slba as usize * BLOCK);
            self.volume[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        let allowed = [
            Status::INVALID_FIELD,
            Status::INVALID_NAMESPACE_OR_FORMAT,
            Status::FAST_COPY_NOT_POSSIBLE,
            Status::LBA_OUT_OF_RANGE,
        ];
        allow(status, &allowed);
    }

    fn ranges(&mut self) -> Vec<MemoryRange> {
        let count = usize::from(self.byte() % 5);
        let mut ranges = Vec::new();
        for _ in 0..count {
            let nsid = if self.byte() == 0 { VOLUME } else { MEMORY };
            let (start, len) = (self.place(8), self.place(8) % 9000);
            ranges.push(MemoryRange::new(nsid, start, len as u32));
        }
        ranges
    }

    fn create_set(&mut self, host: usize) {
        let ranges = self.ranges();
        let count = if self.byte() == 0 { self.byte() } else { ranges.len() as u8 };
        let (status, rsid) = self.send(host, Sqe::create_range_set(COMPUTE, count), true, ranges.as_bytes());
        if status == Status::SUCCESS {
            let rsid = u16::try_from(rsid).expect("a number of a set");
            assert!(rsid != 0 && self.sets.iter().all(|(_, known, _)| *known != rsid), "set {rsid} is there already");
            self.sets.push((host, rsid, ranges));
        }
        let allowed = [
            Status::MAXIMUM_MEMORY_RANGES_EXCEEDED,
            Status::MAXIMUM_MEMORY_RANGE_SETS_EXCEEDED,
            Status::DATA_SGL_LENGTH_INVALID,
            Status::INVALID_MEMORY_NAMESPACE,
            Status::INVALID_MEMORY_RANGE_SET,
            Status::OVERLAPPING_MEMORY_RANGES,
        ];
        allow(status, &allowed);
    }

    /// A set that is there, or any number.
    fn rsid(&mut self) -> u16 {
        let at = usize::from(self.byte());
        match self.sets.get(at % (self.sets.len() + 1)) {
            Some((_, rsid, _)) => *rsid,
            None => at as u16,
        }
    }

    fn delete_set(&mut self, host: usize) {
        let rsid = self.rsid();
        let (status, _) = self.send(host, Sqe::delete_range_set(COMPUTE, rsid), true, &[]);
        match self.sets.iter().position(|(_, known, _)| *known == rsid) {
            None => assert_eq!(status, Status::INVALID_MEMORY_RANGE_SET_IDENTIFIER.dnr()),
            Some(at) if self.sets[at].0 != host => {
                assert_eq!(status, Status::INVALID_MEMORY_RANGE_SET_IDENTIFIER.dnr());
            }
            Some(at) => {
                assert_eq!(status, Status::SUCCESS);
                self.sets.remove(at);
            }
        }
    }

    fn execute(&mut self, host: usize) {
        let pind = u16::from(self.byte()) % (self.lab.shipped as u16 + 5);
        let (rsid, ranges) = if self.byte().is_multiple_of(2) { (self.rsid(), Vec::new()) } else { (0, self.ranges()) };
        let extra = usize::from(self.byte()) / 4;
        let args = self.bytes(extra);
        let data_len = if self.byte() == 0 { self.word() as u32 } else { 0 };
        let count = if self.byte() == 0 { self.byte() } else { ranges.len() as u8 };
        let (word, cparam2) = (self.word(), self.word());
        // A kernel gets a volume that it may read, one that it may write as well, or what comes.
        let (files, cparam1) = match word % 4 {
            1 => (Endpoint::whole(EndpointKind::Volume(VOLUME)).to_bytes().to_vec(), 1),
            2 => (Endpoint::whole(EndpointKind::Volume(VOLUME)).to_bytes().to_vec(), 1 << 16),
            _ => (Vec::new(), word),
        };
        let data = [ranges.as_bytes(), &files, &args].concat();
        let execution = Execution { pind, rsid, ranges: count.into(), data_len, cparam1, cparam2 };
        let (status, _) = self.send(host, Sqe::execute_program(COMPUTE, &execution), false, &data);
        if status == Status::SUCCESS || status == Status::FUNCTION_FAILED.dnr() {
            // What it wrote, it wrote into its ranges.
            let set = self.sets.iter().find(|(_, known, _)| *known == rsid && rsid != 0);
            let ranges = set.map_or(ranges, |(_, _, ranges)| ranges.clone());
            self.take_over_in(&ranges);
            // A kernel writes its files, too.
            if cparam1 == 1 << 16 {
                self.volume = self.volume_now();
            }
        }
        let allowed = [
            Status::FUNCTION_FAILED,
            Status::NAMESPACE_NOT_REACHABLE,
            Status::INSUFFICIENT_PROGRAM_RESOURCES,
            Status::INVALID_FIELD,
            Status::INVALID_PROGRAM_INDEX,
            Status::NO_PROGRAM,
            Status::PROGRAM_NOT_ACTIVATED,
            Status::FUNCTION_NOT_FOUND,
            Status::FUNCTION_KIND_NOT_SUPPORTED,
            Status::MAXIMUM_MEMORY_RANGES_EXCEEDED,
            Status::DATA_SGL_LENGTH_INVALID,
            Status::INVALID_MEMORY_RANGE_SET_IDENTIFIER,
            Status::INVALID_MEMORY_NAMESPACE,
            Status::INVALID_MEMORY_RANGE_SET,
            Status::OVERLAPPING_MEMORY_RANGES,
        ];
        allow(status, &allowed);
    }

    fn pind(&mut self) -> u16 {
        self.lab.shipped as u16 - 1 + u16::from(self.byte() % 6)
    }

    fn load(&mut self, host: usize) {
        let (pind, choice) = (self.pind(), self.byte());
        let object = self.lab.objects[usize::from(choice & 1)].clone();
        // In three parts, one of which may be missing or twice.
        let third = object.len().div_ceil(3);
        let order: &[usize] = match choice % 8 {
            0 => &[0, 2],
            1 => &[0, 0, 1, 2],
            2 => &[0],
            _ => &[0, 1, 2],
        };
        for part in order {
            let bytes = &object[third * part..object.len().min(third * (part + 1))];
            let sqe = Sqe::load_program(COMPUTE, pind, object.len() as u32, (third * part) as u32, bytes.len() as u32);
            let (status, _) = self.send(host, sqe, true, bytes);
            let allowed = [
                Status::INVALID_PROGRAM_INDEX,
                Status::INVALID_PROGRAM_DATA,
                Status::PROGRAM_IN_USE,
                Status::PROGRAM_INDEX_NOT_DOWNLOADABLE,
                Status::INSUFFICIENT_PROGRAM_RESOURCES,
            ];
            allow(status, &allowed);
        }
    }

    fn manage_program(&mut self, host: usize) {
        let pind = self.pind();
        let sqe = match self.byte() % 4 {
            0 => Sqe::unload_program(COMPUTE, pind),
            select => Sqe::activate_program(COMPUTE, pind, select > 1),
        };
        let (status, _) = self.send(host, sqe, true, &[]);
        let allowed = [
            Status::INVALID_PROGRAM_INDEX,
            Status::NO_PROGRAM,
            Status::PROGRAM_IN_USE,
            Status::PROGRAM_INDEX_NOT_DOWNLOADABLE,
            Status::OPERATION_DENIED,
            Status::MAXIMUM_PROGRAMS_ACTIVATED,
        ];
        allow(status, &allowed);
    }

    fn pages(&mut self, host: usize) {
        let page =
            [memory_log::PROGRAMS, memory_log::PROGRAM_TYPES, memory_log::RANGE_SETS, function_log::PROGRAMS, 0xee];
        let page = page[usize::from(self.byte()) % page.len()];
        let (len, offset) = ((self.word() as u32 % 2048 + 1) * 4, self.word());
        let sqe = Sqe::get_log_page(page, offset, len, 0, false);
        let (status, data) = self.receive(host, sqe, true, len as usize);
        assert_eq!(data.len(), if status == Status::SUCCESS { len as usize } else { 0 });
        allow(status, &[Status::INVALID_FIELD, Status::INVALID_LOG_PAGE]);
        let (status, data) =
            self.receive(host, Sqe::identify(cns::COMMAND_SET_NAMESPACE, COMPUTE, CSI_COMPUTE), true, 4096);
        assert_eq!((status, data.len()), (Status::SUCCESS, 4096));
    }

    /// Any 64 bytes that are a command of these, with any data. No status says too much.
    fn raw(&mut self, host: usize) {
        let choice = self.byte();
        let (opcode, admin, nsid) = [
            (memory_opcode::WRITE, false, MEMORY),
            (memory_opcode::READ, false, MEMORY),
            (memory_opcode::FILL, false, MEMORY),
            (memory_opcode::COPY, false, MEMORY),
            (nvm_opcode::COPY, false, VOLUME),
            (EXECUTE_PROGRAM, false, COMPUTE),
            (RANGE_SET_MANAGEMENT, true, COMPUTE),
            (program_opcode::LOAD, true, COMPUTE),
            (program_opcode::ACTIVATION, true, COMPUTE),
        ][usize::from(choice) % 9];
        let mut sqe = Sqe::new(opcode, nsid);
        for dword in 2..16 {
            // The buffer's address is where 6 to 9 are.
            if !(6..10).contains(&dword) {
                let value = (self.word() as u32) << (8 * u32::from(self.byte() % 3));
                sqe = if dword == 4 {
                    sqe.with_dword4(value)
                } else if dword == 5 {
                    sqe
                } else {
                    sqe.with_dword(dword, value)
                };
            }
        }
        let len = usize::from(self.byte()) * 8;
        let data = self.bytes(len);
        sqe.set_sgl(Sgl::transport(len as u32));
        let (status, result, _) = self.commands.run(host, &sqe, admin, &data);
        if opcode == RANGE_SET_MANAGEMENT && status == Status::SUCCESS {
            match sqe.range_set_select() {
                0 => {
                    let ranges = <[MemoryRange]>::ref_from_bytes(&data).expect("it was taken").to_vec();
                    self.sets.push((host, result as u16, ranges));
                }
                _ => self.sets.retain(|(_, rsid, _)| *rsid != sqe.range_set_id()),
            }
        }
        self.take_over();
    }

    // -- what holds ---------------------------------------------------------------------------------------------------

    /// Everything is zero at first, whatever the input before left.
    fn clear(&mut self) {
        assert_eq!(self.send(0, Sqe::memory_fill(MEMORY, 0, MEMORY_LEN as u32), false, &[]).0, Status::SUCCESS);
        let source = MemoryCopySource::new(MEMORY, 0, VOLUME_LEN as u32);
        assert_eq!(self.send(0, Sqe::copy(VOLUME, 0, 1, 4), false, source.as_bytes()).0, Status::SUCCESS);
    }

    fn memory_now(&self) -> Vec<u8> {
        let (status, data) = self.receive(0, Sqe::memory_read(MEMORY, 0, MEMORY_LEN as u32), false, MEMORY_LEN);
        assert_eq!(status, Status::SUCCESS, "nobody has the memory");
        data
    }

    /// The volume's bytes, by way of the memory, which holds what it held afterwards.
    fn volume_now(&self) -> Vec<u8> {
        let source = CopySourceEntry::new(VOLUME, 0, (VOLUME_LEN / BLOCK) as u32);
        let copy = Sqe::memory_copy(MEMORY, 0, VOLUME_LEN as u64, 1, 2);
        assert_eq!(self.send(0, copy, false, source.as_bytes()).0, Status::SUCCESS);
        let volume = self.memory_now()[..VOLUME_LEN].to_vec();
        let back = Sqe::memory_write(MEMORY, 0, VOLUME_LEN as u32);
        assert_eq!(self.send(0, back, false, &self.memory[..VOLUME_LEN]).0, Status::SUCCESS);
        volume
    }

    fn take_over_in(&mut self, ranges: &[MemoryRange]) {
        let now = self.memory_now();
        for range in ranges {
            let place = range.start.get() as usize..range.start.get() as usize + range.len.get() as usize;
            self.memory[place.clone()].copy_from_slice(&now[place]);
        }
    }

    /// Whatever is there now is right.
    fn take_over(&mut self) {
        self.memory = self.memory_now();
        self.volume = self.volume_now();
    }

    /// Everything, or what is quick.
    fn check(&self, all: bool) {
        assert!(self.memory_now() == self.memory, "memory holds what was written");
        assert!(!all || self.volume_now() == self.volume, "the volume holds what was copied to it");
        let mut loaded = 0;
        for host in 0..HOSTS.len() {
            assert_eq!(sets(&self.commands, host), self.sets.iter().filter(|(owner, ..)| *owner == host).count());
            let programs = programs(&self.commands, host);
            let own = programs.iter().filter(|state| *state & program_state::OWN != 0).count();
            assert_eq!(programs.len(), self.lab.shipped + own, "no other host's are listed");
            assert!(own <= HOST_PROGRAMS.into());
            loaded += own;
        }
        assert!(loaded <= 4);
    }
}

/// Success, or one of these: nothing is under way that could end, so sent again the command would fail again.
fn allow(status: Status, allowed: &[Status]) {
    assert!(status == Status::SUCCESS || allowed.iter().any(|one| status == one.dnr()), "{status}");
}

/// Range sets of a host.
fn sets(commands: &Commands, host: usize) -> usize {
    let mut sqe = Sqe::get_log_page(memory_log::RANGE_SETS, 0, 64, 0, false);
    sqe.set_sgl(Sgl::transport(64));
    let (_, _, page) = commands.run(host, &sqe, true, &[]);
    u32::from_le_bytes(page[..4].try_into().expect("four bytes")) as usize
}

/// The states of the programs that a host sees, without the service that is there if this machine can scan, and has no object.
fn programs(commands: &Commands, host: usize) -> Vec<u8> {
    let mut sqe = Sqe::get_log_page(function_log::PROGRAMS, 0, 32 << 10, 0, false);
    sqe.set_sgl(Sgl::transport(32 << 10));
    let (_, _, page) = commands.run(host, &sqe, true, &[]);
    let entries = ProgramDirectory::decode(&page).expect("a directory").1;
    entries.iter().filter(|entry| entry.len.get() > 0).map(|entry| entry.state).collect()
}

//! Media, driven by a thread of their own: many writes at a time, and waits for them.

use std::time::Duration;

use diskside_io::Errno;
use diskside_io::buffer::Buffer;
use diskside_io::ring::{Completion, Op, Payload, Ring, RingConfig};

use crate::medium::{Access, Action, Medium};

/// Bytes of zeroes that are written at a time where there is no shorter way.
const ZERO_STEP_LEN: u64 = 1 << 20;

pub(super) struct Disk {
    ring: Ring,
}

/// A write, and how far it is.
pub(super) struct Part {
    pub(super) offset: u64,
    /// Taken while the ring has it.
    pub(super) buffer: Option<Buffer>,
    done: usize,
}

impl Part {
    pub(super) fn new(offset: u64, buffer: Buffer) -> Self {
        Self { offset, buffer: Some(buffer), done: 0 }
    }
}

impl Disk {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self { ring: Ring::new(&RingConfig { spin: Duration::ZERO, ..RingConfig::default() })? })
    }

    /// Writes all parts, together.
    pub(super) fn write(&mut self, medium: &dyn Medium, parts: &mut [Part], durable: bool) -> Vec<Result<(), Errno>> {
        let mut results = vec![Ok(()); parts.len()];
        let mut in_flight = 0;
        for (index, part) in parts.iter_mut().enumerate() {
            match self.go_on(medium, index, part, durable) {
                Ok(begun) => in_flight += usize::from(begun),
                Err(errno) => results[index] = Err(errno),
            }
        }
        while in_flight > 0 {
            let Completion { token, result, payload, .. } = self.next();
            let index = token as usize;
            let part = &mut parts[index];
            if let Payload::Buffer(buffer) = payload {
                part.buffer = Some(buffer);
            }
            in_flight -= 1;
            let moved = match result {
                Err(Errno::INTR | Errno::AGAIN) => Ok(()),
                Err(errno) => Err(errno),
                Ok(0) => Err(Errno::IO),
                Ok(moved) => {
                    part.done += moved as usize;
                    Ok(())
                }
            };
            match moved.and_then(|()| self.go_on(medium, index, part, durable)) {
                Ok(begun) => in_flight += usize::from(begun),
                Err(errno) => results[index] = Err(errno),
            }
        }
        results
    }

    /// Begins the rest of a part; false: there is none.
    fn go_on(&mut self, medium: &dyn Medium, index: usize, part: &mut Part, durable: bool) -> Result<bool, Errno> {
        loop {
            let Some(buffer) = part.buffer.take() else { return Err(Errno::IO) };
            if part.done >= buffer.len() {
                part.buffer = Some(buffer);
                return Ok(false);
            }
            let offset = part.offset + part.done as u64;
            let step = medium.start(&Access::Write { offset, data: &buffer[part.done..], durable });
            wait(step.delay);
            match step.action {
                Action::File { file, len } => {
                    let range = part.done..buffer.len().min(part.done + len);
                    self.ring.push(index as u64, Op::Write { file, offset, buffer, range, durable });
                    return Ok(true);
                }
                Action::Done(moved) if moved > 0 => {
                    part.done += moved as usize;
                    part.buffer = Some(buffer);
                }
                action => {
                    part.buffer = Some(buffer);
                    return Err(failure(&action));
                }
            }
        }
    }

    /// Fills the buffer from `offset` on.
    pub(super) fn read(&mut self, medium: &dyn Medium, offset: u64, mut buffer: Buffer) -> Result<Buffer, Errno> {
        let mut done = 0;
        while done < buffer.len() {
            let (at, len) = (offset + done as u64, buffer.len() - done);
            let step = medium.start(&Access::Read { offset: at, len });
            wait(step.delay);
            let moved = match step.action {
                Action::Bytes(bytes) => {
                    let len = bytes.len().min(len);
                    bytes.part(0..len).copy_to(&mut buffer[done..done + len]);
                    len
                }
                Action::File { file, len: most } => {
                    let range = done..done + len.min(most);
                    self.ring.push(0, Op::Read { file, offset: at, buffer, range });
                    let Completion { result, payload, .. } = self.next();
                    let Payload::Buffer(back) = payload else { return Err(Errno::IO) };
                    buffer = back;
                    match result {
                        Err(Errno::INTR | Errno::AGAIN) => continue,
                        result => result? as usize,
                    }
                }
                action => return Err(failure(&action)),
            };
            if moved == 0 {
                return Err(Errno::IO);
            }
            done += moved;
        }
        Ok(buffer)
    }

    /// Fills all buffers, together.
    pub(super) fn read_all(
        &mut self,
        medium: &dyn Medium,
        mut parts: Vec<(u64, Buffer)>,
    ) -> Vec<Result<Buffer, Errno>> {
        // One file serves a whole part: a medium that does otherwise is read part by part.
        let mut results: Vec<Result<Buffer, Errno>> = Vec::with_capacity(parts.len());
        let mut in_flight = 0;
        for (index, (offset, buffer)) in parts.iter_mut().enumerate() {
            let (offset, len) = (*offset, buffer.len());
            let buffer = std::mem::replace(buffer, Buffer::zeroed(0));
            let step = medium.start(&Access::Read { offset, len });
            match step.action {
                Action::File { file, len: most } if most >= len && step.delay.is_zero() => {
                    self.ring.push(index as u64, Op::Read { file, offset, buffer, range: 0..len });
                    in_flight += 1;
                    results.push(Err(Errno::IO));
                }
                // A medium in memory, or a slow one.
                _ => results.push(Ok(buffer)),
            }
        }
        let mut short: Vec<usize> = Vec::new();
        let is_direct: Vec<bool> = results.iter().map(Result::is_err).collect();
        while in_flight > 0 {
            let Completion { token, result, payload, .. } = self.next();
            let index = token as usize;
            in_flight -= 1;
            let Payload::Buffer(buffer) = payload else { continue };
            match result {
                Ok(moved) if moved as usize == buffer.len() => results[index] = Ok(buffer),
                Ok(_) | Err(Errno::INTR | Errno::AGAIN) => {
                    short.push(index);
                    results[index] = Ok(buffer);
                }
                Err(errno) => results[index] = Err(errno),
            }
        }
        for index in 0..parts.len() {
            if is_direct[index] && !short.contains(&index) {
                continue;
            }
            let buffer = std::mem::replace(&mut results[index], Err(Errno::IO));
            results[index] = buffer.and_then(|buffer| self.read(medium, parts[index].0, buffer));
        }
        results
    }

    /// Makes a range read as zeroes.
    pub(super) fn zero(&mut self, medium: &dyn Medium, offset: u64, len: u64) -> Result<(), Errno> {
        let mut done = 0;
        while done < len {
            let (offset, rest) = (offset + done, len - done);
            let access = Access::Zero { offset, len: rest, deallocate: true };
            let step = medium.start(&access);
            wait(step.delay);
            done += match step.action {
                Action::Done(zeroed) if zeroed > 0 => zeroed,
                Action::Ring(op) => match self.run(op) {
                    Ok(()) => rest,
                    Err(Errno::OPNOTSUPP) => {
                        medium.refused(&access);
                        0
                    }
                    Err(errno) => return Err(errno),
                },
                Action::WriteZeroes => {
                    let len = rest.min(ZERO_STEP_LEN);
                    let mut part = [Part::new(offset, Buffer::zeroed(len as usize))];
                    self.write(medium, &mut part, false).remove(0)?;
                    len
                }
                action => return Err(failure(&action)),
            };
        }
        Ok(())
    }

    /// Makes what was written survive power loss.
    pub(super) fn flush(&mut self, medium: &dyn Medium) -> Result<(), Errno> {
        let step = medium.start(&Access::Flush);
        wait(step.delay);
        match step.action {
            Action::Done(_) => Ok(()),
            Action::Ring(op) => self.run(op),
            action => Err(failure(&action)),
        }
    }

    fn run(&mut self, op: Op) -> Result<(), Errno> {
        self.ring.push(0, op);
        self.next().result.map(drop)
    }

    fn next(&mut self) -> Completion {
        loop {
            if let Some(completion) = self.ring.next_completion() {
                return completion;
            }
            // An operation that cannot be submitted now, for want of memory, can be later.
            if self.ring.wait(None).is_err() {
                std::thread::sleep(RETRY);
            }
        }
    }
}

const RETRY: Duration = Duration::from_millis(1);

fn failure(action: &Action) -> Errno {
    if let Action::Failed(errno) = action { *errno } else { Errno::IO }
}

fn wait(delay: Duration) {
    if !delay.is_zero() {
        std::thread::sleep(delay);
    }
}

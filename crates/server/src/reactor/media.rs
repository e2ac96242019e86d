//! The media of a reactor's volumes: it registers their files and memory with the ring, starts them in time, and knows
//! whether they are at work.

use std::sync::Arc;

use diskside_io::buffer::Arena;
use diskside_io::ring::Op;

use super::core::Core;

impl Core {
    pub(super) fn refresh_volumes(&mut self) {
        let seen = self.volumes.version();
        self.volumes.refresh(&self.shared.volumes, &self.shared.volume_stats);
        if self.volumes.version() == seen {
            return;
        }
        // The file of a volume that was removed must be closed. The others' files are registered when they are used
        // next.
        for file in self.media_files.drain(..) {
            self.ring.unregister_file(&file);
        }
        if !self.asked_to_register && self.volumes.any_outside_memory() {
            self.asked_to_register = true;
            self.register_memory();
        }
    }

    /// Registers memory for what is read and written through the ring. Without it the same takes a little longer.
    fn register_memory(&mut self) {
        let arena = Arena::new(REGISTERED_BYTES);
        match self.ring.register(&arena) {
            Ok(()) => self.memory.use_registered(arena),
            Err(error) => tracing::debug!(reactor = self.index, %error, "no registered memory; is RLIMIT_MEMLOCK low?"),
        }
        self.counters().memory_registered_bytes.set(self.memory.registered_bytes());
    }

    /// Whether what is sent now is, or waits for, the answer of a disk.
    pub(super) fn media_at_work(&self) -> bool {
        self.media_ended || self.media_in_flight > 0
    }

    pub(super) fn register_file_of(&mut self, op: &Op) {
        if let Some(file) = op.file()
            && !self.ring.is_registered(file)
            && self.ring.register_file(file)
        {
            self.media_files.push(Arc::clone(file));
        }
    }

    /// Hands the media's operations to the kernel before a send is added, so that they run while it copies. The kernel
    /// starts block operations that are submitted together when it has looked at the last of them.
    pub(super) fn start_media(&mut self) {
        if std::mem::take(&mut self.media_waits) {
            // An error is the ring's, and the next wait has it too.
            let _ = self.ring.submit();
        }
    }
}

/// The memory that a reactor that serves files registers with its ring. It counts towards `RLIMIT_MEMLOCK`, often 8 MiB
/// in all.
const REGISTERED_BYTES: usize = 4 << 20;
